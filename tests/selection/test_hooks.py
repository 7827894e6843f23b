"""Last-layer gradients of modules: equal to autograd's own, and the module is as it was."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.data import TensorDataset

from coresift import CoresiftError, InvalidInputError, InvalidTypeError
from coresift.selection import Craig, SelectionContext
from coresift.selection.losses import Kind, kind_of, per_sample_loss, with_class_numbers
from coresift.training import train

RNG = np.random.default_rng(0)
X = RNG.normal(size=(23, 6)).astype(np.float32)
Y = RNG.integers(3, size=23)


class Head(nn.Module):
    """Its linear layers are declared in another order than they run in, and something follows after the last."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 3)
        self.first = nn.Linear(6, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return functional.log_softmax(self.last(torch.tanh(self.first(x))), dim=1)


class Positions(nn.Module):
    """The last layer runs at three places of each sample."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 3)

    def forward(self, x):
        return self.last(x.reshape(len(x), 3, 2)).square().sum(dim=1)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.last(x[:, :3])))


class InPlace(nn.Module):
    """What follows after the last layer changes its output in place."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return functional.relu(self.last(x), inplace=True)


class Logits(nn.Module):
    """As models of Hugging Face return."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return {"loss": None, "logits": self.last(x)}


def noisy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3, bias=False))


def last_of(model):
    return model.last if hasattr(model, "last") else [m for m in model.modules() if isinstance(m, nn.Linear)][-1]


def by_autograd(model, X, y, loss):
    """One backward pass per sample, in evaluation mode."""
    model = copy.deepcopy(model).eval()
    layer = last_of(model)
    rows = []
    for x, target in zip(torch.as_tensor(X), y, strict=True):
        model.zero_grad()
        output = model(x[None])
        output = output["logits"] if isinstance(output, dict) else output
        loss(output, torch.as_tensor(target)[None]).sum().backward()
        parts = [layer.weight.grad] + ([layer.bias.grad[:, None]] if layer.bias is not None else [])
        rows.append(torch.cat(parts, dim=1).reshape(-1).numpy().copy())
    return np.stack(rows)


@pytest.mark.parametrize("make", [Head, Positions, Twice, InPlace, Logits, noisy])
def test_gradients_of_any_module_equal_autograd_sample_by_sample(make):
    torch.manual_seed(1)
    model = make()
    context = SelectionContext(X, Y, model=model, batch_size=10)
    found = context.gradients()
    expected = by_autograd(model, X, Y, functional.cross_entropy)
    np.testing.assert_allclose(found.dense(), expected, atol=2e-6)
    assert np.abs(expected).max() > 0.1
    assert (found.inputs is None) == (make in (Positions, Twice))  # only products of one place are kept as factors


def test_cross_entropy_is_softmax_minus_onehot():
    model = nn.Linear(6, 3)
    found = SelectionContext(X, Y, model=model).gradients()
    with torch.no_grad():
        expected = torch.softmax(model(torch.from_numpy(X)), dim=1).numpy() - np.eye(3)[Y]
    np.testing.assert_allclose(found.residuals, expected, atol=1e-6)
    np.testing.assert_array_equal(found.inputs, np.hstack([X, np.ones((len(X), 1))]))  # the bias


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        ("mse", lambda output, y: (output - y) ** 2),
        ("l1", lambda output, y: (output - y).abs()),
        ("huber", lambda output, y: functional.huber_loss(output[:, 0], y)),
        (nn.MSELoss(), lambda output, y: (output - y) ** 2),  # its mean is not taken over the samples
        (lambda output, y: (output[:, 0] - y) ** 4, lambda output, y: (output[:, 0] - y) ** 4),
    ],
)
@pytest.mark.filterwarnings("error")  # as broadcasting (n, 1) with (n,) would warn
def test_regression(loss, plain):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    target = RNG.normal(size=23)
    if isinstance(loss, nn.Module):
        context = SelectionContext(X, target[:, None], model=model, loss=loss)
    else:
        context = SelectionContext(X, target, model=model, loss=loss)
    expected = by_autograd(model, X, target.astype(np.float32), plain)
    np.testing.assert_allclose(context.gradients().dense(), expected, atol=1e-5)
    if isinstance(loss, nn.Module):
        assert loss.reduction == "mean"


def test_binary_targets():
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    found = SelectionContext(X, Y % 2, model=model, loss="bce").gradients()
    with torch.no_grad():
        expected = torch.sigmoid(model(torch.from_numpy(X))).numpy() - (Y % 2)[:, None]
    np.testing.assert_allclose(found.residuals, expected, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = noisy().train(training)
    model[1].eval()  # frozen by the user, in either mode
    model[0].weight.requires_grad_(False)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    flags = [p.requires_grad for p in model.parameters()]
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    context = SelectionContext(X, Y, model=model, X_val=X[:5], y_val=Y[:5])
    first = context.gradients().dense()
    context.validation()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model[4].weight.grad, torch.ones_like(model[4].weight))
    assert model[0].weight.grad is None
    assert not any(m._forward_hooks for m in model.modules())
    assert torch.is_grad_enabled()
    np.testing.assert_array_equal(first, context.at(1).gradients().dense())  # no dropout in it


class AlwaysNoisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.fails = False

    def forward(self, x):
        if self.fails:
            raise RuntimeError("planted")
        return self.last(functional.dropout(x, training=True))


def test_the_random_state_is_kept_even_of_a_model_that_draws_in_evaluation_mode_or_fails():
    model = AlwaysNoisy()
    state = torch.random.get_rng_state()
    SelectionContext(X, Y, model=model).gradients()
    assert torch.equal(torch.random.get_rng_state(), state)
    model.fails = True
    with pytest.raises(RuntimeError, match="planted"):
        SelectionContext(X, Y, model=model).gradients()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    assert model.last.training
    assert torch.is_grad_enabled()


class Gated(nn.Module):
    """A convolution as its head, and linear layers that only weigh the channels."""

    def __init__(self):
        super().__init__()
        self.body, self.gate, self.head = nn.Conv1d(1, 8, 1), nn.Linear(8, 8), nn.Conv1d(8, 3, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x[:, None]))
        return self.head(x * torch.sigmoid(self.gate(x.mean(2)))[:, :, None]).mean(2)


class Root(nn.Module):
    """A matrix of its own beside its layers, as a transformer has for places; a linear head with more behind it."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(2, 6))
        self.head, self.norm = nn.Linear(6, 3), nn.LayerNorm(3)

    def forward(self, x):
        return torch.log_softmax(self.norm(self.head(x + self.places[0])), dim=1)


def test_a_model_that_ends_in_no_linear_layer_has_gradients_in_its_outputs(caplog):
    torch.manual_seed(0)
    model = Gated()
    with caplog.at_level("INFO", logger="coresift"):
        found = SelectionContext(X, Y, model=model).gradients()
    assert "Gated does not end in a linear layer" in caplog.text
    output = torch.softmax(model(torch.as_tensor(X)), dim=1).detach().numpy()
    np.testing.assert_allclose(found.dense(), output - np.eye(3)[Y], atol=1e-6)
    validation = SelectionContext(X, Y, model=model, X_val=X, y_val=Y).validation()
    np.testing.assert_allclose(validation.residuals_at(validation.outputs), found.dense(), atol=1e-6)
    named = SelectionContext(X, Y, model=model, layer="gate").gradients()
    assert named.shape == (8, 9)  # who asks for it gets it


def test_what_is_around_a_linear_head_does_not_hide_it():
    torch.manual_seed(0)
    assert SelectionContext(X, Y, model=Root()).gradients().shape == (3, 7)
    for wrap in (parametrizations.weight_norm, parametrizations.spectral_norm):
        model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), wrap(nn.Linear(4, 3)))  # a layer with children
        assert SelectionContext(X, Y, model=model).gradients().shape == (3, 5)
    lazy = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.LazyLinear(3))
    assert SelectionContext(X, Y, model=lazy).gradients().shape == (3, 5)


class Masked(nn.MSELoss):
    """Targets with a mask beside each."""

    def forward(self, outputs, targets):
        return targets[:, 1] * (outputs[:, 0] - targets[:, 0]) ** 2


class Confident(nn.CrossEntropyLoss):
    """A class, and in its fraction how sure it is."""

    def forward(self, outputs, targets):
        return (targets % 1) * functional.cross_entropy(outputs, targets.long(), reduction="none")


def test_losses_that_are_derived_from_others_may_want_other_targets():
    outputs = torch.randn(5, 1)
    assert per_sample_loss(Masked())(outputs, torch.ones(5, 2)).shape == (5,)
    targets = torch.tensor([0.5, 1.25, 2.75, 0.5, 1.5])
    assert per_sample_loss(Confident())(torch.randn(5, 3), targets).shape == (5,)


def test_labels_are_not_rounded_to_the_precision_of_the_model():
    model = nn.Linear(6, 400, bias=False).bfloat16()
    y = np.full(23, 301.0, dtype=np.float32)  # bfloat16 has no 301
    found = SelectionContext(X, y, model=model).gradients().residuals
    assert (found.argmin(axis=1) == 301).all()


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_float_labels_are_labels_everywhere(kind):
    found = []
    for y in (Y, Y.astype(kind)):
        model = nn.Linear(6, 3)
        with torch.no_grad():
            model.weight.fill_(0.1)
            model.bias.zero_()
        options = {"epochs": 2, "val_fraction": 0.2, "eval_every": 1, "device": "cpu"}
        result = train(model, (X, y), "glister", 6, test=(X, y), **options)
        found.append((result.test, [line["accuracy"] for line in result.history]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("y", "loss"),
    [
        (Y.astype(np.int32), nn.CrossEntropyLoss()),
        (Y.astype(np.uint8), "cross_entropy"),
        (Y.astype(np.float32), "cross_entropy"),
        (Y.astype(np.float64), nn.CrossEntropyLoss()),
        (np.eye(3, dtype=int)[Y], nn.BCEWithLogitsLoss()),
        (np.eye(3, dtype=np.float32)[Y], "cross_entropy"),  # probabilities
    ],
)
def test_targets_of_any_type_of_numbers(y, loss):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    same = (
        {"y": Y, "loss": "cross_entropy"}
        if not isinstance(loss, nn.BCEWithLogitsLoss)
        else {"y": np.eye(3, dtype=np.float32)[Y], "loss": "bce"}
    )
    expected = SelectionContext(X, model=model, **same).gradients().dense()
    found = SelectionContext(X, y, model=model, loss=loss).gradients().dense()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    train(model, (X, y), "adaptive-coreset", 9, epochs=1, loss=loss, device="cpu")


@pytest.mark.parametrize(
    ("y", "loss", "message"),
    [
        (Y + 1, "cross_entropy", "labels 1 to 3, but the model has 3 outputs: labels must be from 0 to 2"),
        (Y + 1, nn.CrossEntropyLoss(), "labels must be from 0 to 2"),
        (Y + 0.5, "cross_entropy", "y has fractions"),
        (Y.astype(np.float32), "mse", r"targets have shape \(\d+,\) and outputs \(\d+, 3\)"),
        (Y.astype(np.float32), nn.MSELoss(), "one target is needed for each output"),
    ],
)
def test_targets_that_do_not_fit_are_named(y, loss, message):
    with pytest.raises(InvalidInputError, match=message):
        SelectionContext(X, y, model=nn.Linear(6, 3), loss=loss).gradients()
    with pytest.raises(InvalidInputError, match=message):
        train(nn.Linear(6, 3), (X, y), "adaptive-random", 9, epochs=1, loss=loss, device="cpu")


def test_a_named_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    found = SelectionContext(X, Y, model=model, layer="0").gradients()
    assert found.shape == (4, 7)
    np.testing.assert_array_equal(found.inputs, np.hstack([X, np.ones((len(X), 1))]))  # the bias
    with pytest.raises(InvalidInputError, match=r"layer = '1' is not a linear layer of the model; choose one of 0, 2"):
        SelectionContext(X, Y, model=model, layer="1").gradients()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "needs a model: pass model="),
        ({"loss": "hinge"}, "loss = 'hinge' is not one of"),
        ({"loss": lambda output, y: functional.cross_entropy(output, y)}, "reduces over the samples"),
        ({"X": np.full((23, 6), np.inf, np.float32)}, "NaN or infinity"),
        ({"y": None}, "give the context y"),
        ({"y": Y[:5]}, "y has length 5, but X has 23 rows; they"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message):
    given = {"X": X, "y": Y, "model": nn.Linear(6, 3), **change}
    with pytest.raises(CoresiftError, match=message):
        SelectionContext(**given).gradients()


def test_samples_may_be_tensors_or_a_data_set_with_a_transform():
    model = nn.Linear(6, 3)
    expected = SelectionContext(X, Y, model=model).gradients().dense()
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    for context in (
        SelectionContext(*tensors, model=model),
        SelectionContext(TensorDataset(*tensors), model=model),
        SelectionContext(TensorDataset(*tensors), Y, model=model),
        SelectionContext(X - 1.0, Y, model=model, transform=lambda x: x + 1.0),
        SelectionContext(X.tolist(), Y.tolist(), model=model),
    ):
        np.testing.assert_allclose(context.gradients().dense(), expected, atol=1e-6)


def test_half_precision_models():
    model = nn.Linear(6, 3).bfloat16()
    assert SelectionContext(X, Y, model=model).gradients().residuals.dtype == np.float32
    assert Craig().select(SelectionContext(X, Y, model=model), 5, RNG).size == 5


@pytest.mark.parametrize(
    ("module", "name"),
    [(nn.MSELoss(), "mse"), (nn.L1Loss(), "l1"), (nn.HuberLoss(), "huber"), (nn.BCEWithLogitsLoss(), "bce")],
)
def test_targets_beside_one_output_are_not_broadcast(module, name):
    """Targets (n,) and outputs (n, 1) are n pairs for modules too, as they are for the names."""
    outputs, targets = torch.randn(6, 1), torch.rand(6).round()
    expected = per_sample_loss(name)(outputs, targets)
    assert expected.shape == (6, 1)
    torch.testing.assert_close(per_sample_loss(module)(outputs, targets), expected)


def test_a_loss_of_all_pairs_is_refused():
    with pytest.raises(InvalidInputError, match=r"has shape \(6, 6\) instead of one number per sample"):
        per_sample_loss(lambda outputs, targets: (outputs - targets) ** 2)(torch.randn(6, 1), torch.randn(6))


def test_the_kind_of_a_loss() -> None:
    class Half(torch.nn.MSELoss):
        pass

    class MSELoss:  # of somebody else
        pass

    for loss in ("mse", torch.nn.SmoothL1Loss(), Half()):
        assert kind_of(loss) is Kind.NUMBERS
    for loss in ("cross_entropy", torch.nn.NLLLoss()):
        assert kind_of(loss) is kind_of(loss, derived=False) is Kind.CLASSES
    for loss in ("bce", torch.nn.BCELoss()):
        assert kind_of(loss) is Kind.SWITCHES
    for loss in (MSELoss(), "nothing", lambda outputs, targets: outputs, None):
        assert kind_of(loss) is None
    assert kind_of(Half(), derived=False) is None


def test_losses_of_classes_that_would_say_nothing_are_refused() -> None:
    compute = per_sample_loss("cross_entropy")
    with pytest.raises(InvalidInputError, match="one output"):
        compute(torch.randn(5, 1), torch.zeros(5, dtype=torch.long))
    with pytest.raises(InvalidInputError, match="negative numbers"):
        with_class_numbers(torch.tensor([[0.5, -0.5]]), "cross_entropy")
    shares = torch.tensor([[0.25, 0.75]])
    assert with_class_numbers(shares, "cross_entropy") is shares
    negative = -shares
    assert with_class_numbers(negative, "mse") is negative


def test_frames_and_series_have_gradients_and_text_has_not() -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(2, size=40)
    model = torch.nn.Linear(3, 2)
    expected = SelectionContext(X, y, model=model).gradients().residuals
    frame, series = pd.DataFrame(X), pd.Series(y, index=np.arange(40)[::-1])
    np.testing.assert_array_equal(SelectionContext(frame, series, model=model).gradients().residuals, expected)
    with pytest.raises(InvalidTypeError, match=r"y holds .*return_inverse"):
        SelectionContext(X, np.array(["no", "yes"])[y], model=model).gradients()
