"""Networks by name: LeNet-5, ResNet-18 with two stems, a perceptron; and any module that a user names.

The weights depend on the seed alone, and making them leaves every random state of the process as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice, check_count
from .user_model import call_factory

_LARGEST_SMALL_IMAGE = 64  # up to here ResNets begin with the CIFAR stem
STEMS = ("cifar", "imagenet")


def build_model(
    name: str,
    *,
    n_classes: int | None,
    input_shape: tuple[int, ...],
    width: int | None = None,
    stem: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """A network with fresh weights, on the CPU, in float32.

    Parameters
    ----------
    name : str
        "lenet": LeNet-5, 6 and 16 feature maps, 120-84 units, for images of 28x28 or 32x32. "resnet18". "mlp": two
        hidden layers. Or ``"package.module:factory"``, a callable that returns a module; of ``n_classes``,
        ``input_shape``, ``width`` and ``stem`` it is given those that it has parameters for.
    n_classes : int or None
        Outputs; None, for regression, means one.
    input_shape : tuple of int
        Of one sample: (c, h, w) or (d,).
    width : int, optional
        Feature maps of the first stage of a ResNet (64), units of a hidden layer of the perceptron (256).
    stem : "cifar" or "imagenet", optional
        How a ResNet begins: 3x3 with stride 1; or 7x7 with stride 2, and a max-pool. By default the first for images of
        at most 64 pixels.
    seed : int, default 0
        Of the weights.
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"model = {name!r} must be a name.")
    n_outputs = 1 if n_classes is None else check_count(n_classes, "n_classes")
    shape = tuple(check_count(size, "input_shape") for size in input_shape)
    if width is not None:
        width = check_count(width, "width")
    if stem is not None:
        check_choice(stem, "stem", STEMS)
    make: Callable[[], nn.Module]
    if ":" in name:
        given = {"n_classes": n_outputs, "input_shape": shape, "width": width, "stem": stem}
        make = lambda: call_factory(name, given)  # noqa: E731
    elif name in _BUILDERS:
        make = lambda: _BUILDERS[name](n_outputs, shape, width, stem)  # noqa: E731
    else:
        raise InvalidInputError(f"model = {name!r} must be {', '.join(MODELS)} or package.module:factory.")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # not torch.manual_seed, which seeds every GPU too, and those are not restored
        torch.default_generator.manual_seed(seed)
        return make()


class LeNet5(nn.Module):
    """LeNet-5 with ReLU and max-pooling: 28x28 images are padded to 32x32; 61,706 parameters for one channel."""

    def __init__(self, n_outputs: int, n_channels: int = 1, size: int = 28) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_channels, 6, 5, padding=(32 - size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, n_outputs)
        if n_channels == 1:  # one channel fits both layouts: the filters have to say that "last" is meant
            self.conv1.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(b, c, 28, 28) to (b, K)."""
        # Channels last: on a CPU some 15 % faster. The ReLU commutes with the maximum, and is cheaper after it.
        x = x.contiguous(memory_format=torch.channels_last)
        x = functional.relu(_halved(self.conv1(x)))  # (b, 6, 14, 14)
        x = functional.relu(_halved(self.conv2(x)))  # (b, 16, 5, 5)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


def _halved(x: Tensor) -> Tensor:
    """Max-pooling of 2x2; without gradients as maxima of slices: the network is 1.4 times as fast so, on a CPU."""
    if torch.is_grad_enabled() and x.requires_grad:
        return functional.max_pool2d(x, 2)
    rows = torch.maximum(x[:, :, ::2], x[:, :, 1::2])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the input itself, through a 1x1 convolution where the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, of ``width`` feature maps and twice as many in each further stage (He et al., 2016).

    Convolutions begin normal with variance ``2 / fan_out``, batch norms as the identity.
    """

    def __init__(self, n_outputs: int, n_channels: int = 3, width: int = 64, stem: str = "cifar") -> None:
        super().__init__()
        # On a CPU a quarter faster. PyTorch 2.13 crashes in the backward pass of the 7x7 stem with few feature maps.
        self.is_channels_last = stem == "cifar" and width % 8 == 0
        if stem == "cifar":
            first: list[nn.Module] = [nn.Conv2d(n_channels, width, 3, 1, 1, bias=False)]
        else:
            first = [nn.Conv2d(n_channels, width, 7, 2, 3, bias=False)]
        first += [nn.BatchNorm2d(width), nn.ReLU()]
        if stem == "imagenet":
            first.append(nn.MaxPool2d(3, 2, 1))
        self.stem = nn.Sequential(*first)
        maps = [width * 2**stage for stage in range(4)]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    BasicBlock(n_in, n_out, stride=1 if n_in == n_out else 2), BasicBlock(n_out, n_out, 1)
                )
                for n_in, n_out in zip([width, *maps], maps, strict=False)
            )
        )
        self.fc = nn.Linear(maps[-1], n_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(b, c, h, w) to (b, K)."""
        if self.is_channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


class MLP(nn.Sequential):
    """Flatten, two hidden layers with ReLU, a linear output."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int = 256) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(n_inputs, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, n_outputs),
        )


def _lenet(n_outputs: int, shape: tuple[int, ...], width: int | None, stem: str | None) -> nn.Module:
    if len(shape) != 3 or shape[1:] not in ((28, 28), (32, 32)):
        raise InvalidInputError(f"lenet takes images of 28x28 or 32x32 pixels; input_shape = {shape}.")
    _refuse("lenet", width=width, stem=stem)
    return LeNet5(n_outputs, shape[0], shape[1])


def _resnet18(n_outputs: int, shape: tuple[int, ...], width: int | None, stem: str | None) -> nn.Module:
    if len(shape) != 3:
        raise InvalidInputError(f"resnet18 takes images (c, h, w); input_shape = {shape}.")
    by_size = "cifar" if max(shape[1:]) <= _LARGEST_SMALL_IMAGE else "imagenet"
    return ResNet18(n_outputs, shape[0], width or 64, stem or by_size)


def _mlp(n_outputs: int, shape: tuple[int, ...], width: int | None, stem: str | None) -> nn.Module:
    _refuse("mlp", stem=stem)
    return MLP(int(torch.Size(shape).numel()), n_outputs, width or 256)


def _refuse(model: str, **options: Any) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidInputError(f"{option} = {value!r}: {model} has no such option.")


_BUILDERS: dict[str, Callable[[int, tuple[int, ...], int | None, str | None], nn.Module]] = {
    "lenet": _lenet,
    "resnet18": _resnet18,
    "mlp": _mlp,
}
MODELS = tuple(_BUILDERS)
