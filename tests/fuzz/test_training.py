"""Settings of a training run, whatever they are: a run, or a clear error before it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from coresift import CoresiftError
from coresift._validation import parse_budget, parse_bytes
from coresift.training import build_model, train

torch.set_num_threads(1)
ODD = st.sampled_from([None, 0, -1, 1.5, np.nan, np.inf, "words", "", [], True, 10**30])
X = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


@given(
    name=st.sampled_from(
        [
            *("epochs", "batch_size", "select_every", "lr", "momentum", "weight_decay", "schedule", "val_fraction"),
            *("eval_every", "seed", "device", "workers", "budget"),
        ]
    ),
    value=ODD,
)
@settings(max_examples=120)
def test_a_wrong_setting_is_named_before_the_run(name: str, value: Any) -> None:
    options: dict[str, Any] = {"strategy": "random", "budget": 0.5, "epochs": 1, "device": "cpu", name: value}
    torch.manual_seed(0)
    try:
        found = train(nn.Linear(3, 2), (X, Y), **options)
    except CoresiftError:
        return
    assert found.n_epochs >= 1
    assert all(torch.isfinite(parameter).all() for parameter in found.model.parameters())


@given(budget=ODD | st.text(max_size=6) | st.floats() | st.integers(), n=st.integers(1, 10**6))
def test_budgets(budget: Any, n: int) -> None:
    try:
        size = parse_budget(budget, n)
    except CoresiftError:
        return
    assert 1 <= size <= n


@given(text=st.text(max_size=8) | ODD)
def test_amounts_of_memory(text: Any) -> None:
    try:
        found = parse_bytes(text, "max_memory")
    except CoresiftError:
        return
    assert found > 0


@given(name=st.text(max_size=20) | ODD, width=ODD, n_classes=st.integers(-1, 5) | ODD)
@settings(max_examples=60)
def test_names_of_models(name: Any, width: Any, n_classes: Any) -> None:
    try:
        model = build_model(name, n_classes=n_classes, input_shape=(3,), width=width, seed=0)
    except CoresiftError:
        return
    assert isinstance(model, nn.Module)


@pytest.mark.parametrize("X_bad", [np.full((4, 3), np.nan, np.float32), np.zeros((0, 3)), np.array([["a"]])])
def test_data_that_cannot_be_trained_on(X_bad: np.ndarray) -> None:
    with pytest.raises(CoresiftError):
        train(nn.Linear(3, 2), (X_bad, np.zeros(len(X_bad), dtype=np.int64)), "random", 0.5, epochs=1, device="cpu")
