"""The weighted loss: a weighted mean, whatever the scale, the shape or the number of ranks."""

import pytest
import torch
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from coresift.training import weighted_loss

NUMBERS = st.floats(0.01, 100.0)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8), NUMBERS)
def test_it_is_the_weighted_mean_and_free_of_scale(pairs: list[tuple[float, float]], scale: float) -> None:
    losses, weights = torch.tensor(pairs, dtype=torch.float64).T
    expected = sum(a * b for a, b in pairs) / sum(b for _, b in pairs)
    assert weighted_loss(losses, weights).item() == pytest.approx(expected)
    assert weighted_loss(losses, scale * weights).item() == pytest.approx(expected)


def test_its_gradient_is_the_share_of_the_weight() -> None:
    losses = torch.tensor([1.0, 2.0, 5.0], requires_grad=True)
    weighted_loss(losses, torch.tensor([1.0, 0.0, 3.0])).backward()
    assert losses.grad is not None
    assert losses.grad.tolist() == [0.25, 0.0, 0.75]


def test_several_outputs_are_averaged_within_a_sample() -> None:
    losses = torch.tensor([[1.0, 3.0], [0.0, 8.0]])
    assert weighted_loss(losses, torch.tensor([1.0, 3.0])).item() == pytest.approx((2 + 3 * 4) / 4)


def test_weights_of_zero_give_nothing_and_no_nan() -> None:
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = weighted_loss(losses, torch.zeros(2))
    loss.backward()
    assert loss.item() == 0
    assert losses.grad is not None
    assert losses.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("losses", "weights"),
    [
        (torch.tensor(1.0), torch.ones(1)),  # reduced already
        (torch.ones(3), torch.ones(2)),
        (torch.ones(3), torch.ones(3, 1)),  # would broadcast to (3, 3)
    ],
)
def test_shapes_that_do_not_fit_are_refused(losses: torch.Tensor, weights: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match=r"one loss .*one weight"):
        weighted_loss(losses, weights)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(kind: torch.dtype) -> None:
    """The sum of the weights may pass the largest half, 65,504."""
    assert weighted_loss(torch.full((1024,), 0.5, dtype=kind), torch.full((1024,), 100.0)).item() == 0.5
    assert weighted_loss(torch.ones(4, dtype=kind), torch.full((4,), 20_000.0)).item() == 1.0
