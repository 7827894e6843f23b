"""Networks by name: sizes as published, shapes, seeds, and a user's own."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from coresift import CoresiftError, InvalidInputError, InvalidTypeError
from coresift.training.models import MODELS, build_model

torch.set_num_threads(1)

SHAPES = {"lenet": (1, 28, 28), "mnist-net": (1, 28, 28), "resnet9": (3, 32, 32), "resnet18": (3, 32, 32), "mlp": (54,)}


def n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_classes", "shape", "options", "expected"),
    [
        ("lenet", 10, (1, 28, 28), {}, 61_706),
        ("lenet", 10, (3, 32, 32), {}, 61_706 + 2 * 6 * 25),
        ("mnist-net", 10, (1, 28, 28), {}, 320 + 18_496 + (9216 * 128 + 128) + 1290),
        ("resnet9", 10, (3, 32, 32), {}, 412_954),
        ("resnet9", 10, (3, 32, 32), {"width": 64}, 6_573_130),
        ("resnet18", 10, (3, 32, 32), {}, 11_173_962),
        ("resnet18", 100, (3, 32, 32), {}, 11_173_962 + 90 * 513),
        ("resnet18", 1000, (3, 224, 224), {}, 11_689_512),
        ("resnet18", 10, (3, 32, 32), {"width": 16}, 701_466),
        ("mlp", 7, (54,), {}, 54 * 256 + 256 + 256 * 256 + 256 + 256 * 7 + 7),
        ("mlp", None, (2, 3, 4), {"width": 5}, 24 * 5 + 5 + 30 + 6),
    ],
)
def test_parameters_are_counted(name, n_classes, shape, options, expected) -> None:
    assert n_parameters(build_model(name, n_classes=n_classes, input_shape=shape, **options)) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_classes", [None, 1, 7])
def test_every_model_maps_a_batch_to_its_outputs_and_learns(name: str, n_classes: int | None) -> None:
    options = {} if name in ("lenet", "mnist-net") else {"width": 8}
    model = build_model(name, n_classes=n_classes, input_shape=SHAPES[name], **options)
    outputs = model(torch.randn(3, *SHAPES[name], generator=torch.Generator().manual_seed(0)))
    assert outputs.shape == (3, n_classes or 1)
    outputs.square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_stem_follows_from_the_size_unless_it_is_asked_for() -> None:
    def sizes(shape, **options):
        model = build_model("resnet18", n_classes=2, input_shape=shape, width=4, **options).eval()
        seen = []
        for part in (model.stem, *model.stages):
            part.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape[1:])))
        model(torch.zeros(1, *shape))
        return seen

    small = [(4, 32, 32), (4, 32, 32), (8, 16, 16), (16, 8, 8), (32, 4, 4)]
    assert sizes((3, 32, 32)) == small
    assert sizes((3, 64, 64))[0] == (4, 64, 64)
    assert sizes((3, 65, 65))[0] == (4, 17, 17)
    assert sizes((3, 128, 128)) == [(4, 32, 32), *small[1:]]
    assert sizes((3, 32, 32), stem="imagenet")[0] == (4, 8, 8)
    assert sizes((3, 128, 128), stem="cifar")[0] == (4, 128, 128)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_weights_follow_from_the_seed_and_no_random_state_is_touched(name: str) -> None:
    def weights(seed):
        model = build_model(name, n_classes=3, input_shape=SHAPES[name], seed=seed)
        return torch.cat([p.detach().ravel() for p in model.parameters()])

    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = weights(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(12)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))


def test_lenet_takes_images_of_two_sizes() -> None:
    for size in (28, 32):
        model = build_model("lenet", n_classes=4, input_shape=(3, size, size))
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 4)


def test_the_network_of_mnist_is_that_of_the_issue() -> None:
    model = build_model("mnist-net", n_classes=10, input_shape=(1, 28, 28))
    kinds = [type(layer).__name__ for layer in model]
    assert kinds[:7] == ["Conv2d", "ReLU", "Conv2d", "MaxPool2d", "ReLU", "Dropout", "Flatten"]
    assert kinds[7:] == ["Linear", "ReLU", "Dropout", "Linear"]
    assert [layer.p for layer in model if isinstance(layer, nn.Dropout)] == [0.25, 0.5]
    assert model[7].weight.shape == (128, 9216)
    assert model.eval()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("name", ["mnist-net", "resnet9"])
def test_images_that_are_too_small_are_refused(name: str) -> None:
    for shape in ((54,), (1, 5, 28)):
        with pytest.raises(InvalidInputError, match="at least"):
            build_model(name, n_classes=2, input_shape=shape)


def test_a_residual_pair_adds_its_input() -> None:
    model = build_model("resnet9", n_classes=3, input_shape=(3, 8, 8), width=4).eval()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for pair in (model.pair, model.last_pair):
            pair[1][1].weight.zero_()  # a batch norm that returns nothing: the pair adds nothing
        plain = model.second(model.first(x)).amax((2, 3))
        assert torch.allclose(model(x), model.fc(plain), atol=1e-6)
        sizes = [tuple(part.shape[1:]) for part in (model.first(x), model.second(model.first(x)))]
    assert sizes == [(8, 4, 4), (32, 1, 1)]


def test_a_block_adds_its_input() -> None:
    model = build_model("resnet18", n_classes=2, input_shape=(3, 32, 32), width=4).eval()
    block = model.stages[0][0]
    with torch.no_grad():
        block.conv2.weight.zero_()
        x = torch.randn(2, 4, 5, 5)
        assert torch.allclose(block(x), x.relu(), atol=1e-6)


USER = """
import torch
from torch import nn
import random

class Net(nn.Module):
    def __init__(self, n_classes, input_shape, width=3):
        super().__init__()
        self.layer = nn.Linear(torch.Size(input_shape).numel(), n_classes * width)

def plain():
    return nn.Linear(2, 2)

def everything(**options):
    model = nn.Linear(1, 1)
    model.options = options
    return model

class Holder:
    @staticmethod
    def make(n_classes):
        return nn.Linear(4, n_classes)

def needs(depth):
    return nn.Linear(1, 1)

def wrong():
    return 7

constant = 7
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which is not on Python's path."""
    (tmp_path / "my_networks.py").write_text(USER)
    (tmp_path / "needs_more.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    yield "my_networks"
    for name in ("my_networks", "needs_more"):
        sys.modules.pop(name, None)


def test_a_users_factory_gets_what_it_has_parameters_for(user: str) -> None:
    path = list(sys.path)
    net = build_model(f"{user}:Net", n_classes=5, input_shape=(2, 3), width=4)
    assert net.layer.weight.shape == (20, 6)
    assert build_model(f"{user}:Net", n_classes=5, input_shape=(2, 3)).layer.out_features == 15
    assert build_model(f"{user}:plain", n_classes=5, input_shape=(2,)).out_features == 2
    assert build_model(f"{user}:Holder.make", n_classes=5, input_shape=(2,)).out_features == 5
    options = build_model(f"{user}:everything", n_classes=None, input_shape=[2]).options
    assert options == {"n_classes": 1, "input_shape": (2,)}
    assert sys.path == path


def test_a_users_model_has_weights_of_the_seed(user: str) -> None:
    first, again, other = (
        build_model(f"{user}:plain", n_classes=1, input_shape=(2,), seed=seed).weight for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nosuch", "model = 'nosuch' must be lenet, mnist-net, resnet9, resnet18, mlp or package.module:factory"),
        ("my_networks", "must be lenet"),
        ("my networks:Net", "must have the form package.module:factory"),
        (":Net", "must have the form"),
        ("my_networks:", "must have the form"),
        ("my_networks:Net:x", "must have the form"),
        ("no_such_module:Net", "cannot be found: No module named 'no_such_module'"),
        ("torch.no_such_part:Net", "No module named 'torch.no_such_part'"),
        ("needs_more:Net", "cannot be found: No module named 'nothing_of_this_name'"),
        ("my_networks:Nothing", "cannot be found: module 'my_networks' has no attribute 'Nothing'"),
        ("my_networks:constant", "int, which cannot be called"),
        ("my_networks:wrong", "returned int, not a torch.nn.Module"),
        ("my_networks:needs", "missing a required .*'depth'; it can only be given"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(user: str, name: str, complaint: str) -> None:
    with pytest.raises(CoresiftError, match=complaint):
        build_model(name, n_classes=2, input_shape=(2,))


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("lenet", {"input_shape": (1, 27, 28)}, "28x28 or 32x32 pixels"),
        ("lenet", {"input_shape": (784,)}, "28x28 or 32x32 pixels"),
        ("lenet", {"width": 3}, "width = 3: 'lenet' has no such parameter"),
        ("lenet", {"stem": "cifar"}, "stem = 'cifar': 'lenet' has no such parameter"),
        ("mlp", {"stem": "cifar"}, "'mlp' has no such parameter"),
        ("resnet18", {"input_shape": (54,)}, r"takes images \(c, h, w\)"),
        ("resnet18", {"stem": "tiny"}, "stem = 'tiny' is not one of"),
        ("mlp", {"width": 0}, "width = 0 must be at least 1"),
        ("mlp", {"n_classes": 0}, "n_classes = 0 must be at least 1"),
        ("my_networks:plain", {"width": 3}, "width = 3: 'my_networks:plain' has no such parameter"),
    ],
)
def test_options_without_effect_are_refused(user: str, name: str, options: dict, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        build_model(name, **{"n_classes": 10, "input_shape": (1, 28, 28), **options})
    with pytest.raises(InvalidTypeError, match="must be a name"):
        build_model(7, n_classes=10, input_shape=(1,))


@pytest.mark.parametrize("n_channels", [1, 3])
def test_lenet_gives_the_same_bits_with_and_without_gradients(n_channels):
    """Without gradients it pools by slices, which must be the same function: ties and NaN included."""
    model = build_model("lenet", n_classes=10, input_shape=(n_channels, 28, 28))
    x = torch.randn(7, n_channels, 28, 28, generator=torch.Generator().manual_seed(0))
    x[1] = 0.0
    x[2, :, 3, 3] = torch.nan
    with torch.no_grad():
        quick = model(x)
    assert torch.equal(quick.isnan(), model(x).isnan())
    assert quick[2].isnan().all()
    assert torch.equal(quick.nan_to_num(), model(x).nan_to_num())


@pytest.mark.parametrize("n_channels", [1, 3])
def test_lenet_computes_channels_last(n_channels):
    model = build_model("lenet", n_classes=10, input_shape=(n_channels, 28, 28))
    seen = []
    model.conv1.register_forward_hook(lambda _, __, output: seen.append(output.stride()))
    model(torch.zeros(2, n_channels, 28, 28))
    assert seen == [(28 * 28 * 6, 1, 28 * 6, 6)]
