"""The options of a selection, one object for the Python function, the command and its TOML file; budgets as text."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .._errors import InvalidInputError

if TYPE_CHECKING:
    from .estimators import LaplacianCoreset, RBFCoreset

# Everything but this module is imported where it is used, so that the help of a command is quick.

METHODS = ("keys", "systematic", "iid")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BOUNDS = ("auto", "closed-form", "cells", "exact", "paper", "lemma")


def _option(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """How to select; see :func:`coresift.select`. What is wrong whatever the data is refused here."""

    budget: str | int | float | None = _option(None, "Rows to choose: 5%, 0.05 or 1000. Or give --eps.", flags=("-b",))
    loss: str = _option("gaussian", "The loss whose sums are kept.", choices=("gaussian", "laplacian"))
    bandwidth: str | float | None = _option(
        None, "A number in the units of the data, 'median', or 'none': the farthest row."
    )
    radius: float = _option(1.0, "Radius of the ball of queries, in bandwidths.")
    bound: str = _option(
        "auto",
        "auto, closed-form, cells, exact, paper or lemma; laplacian: auto, cells, exact or paper.",
        choices=lambda: BOUNDS,
    )
    n_cells: int = _option(64, "Cells of the bound 'cells'.", flags=("--cells",), min=1)
    method: str | None = _option(
        None, "keys (default), systematic or iid (default with --eps).", choices=lambda: METHODS
    )
    eps: float | None = _option(None, "Instead of a budget: a relative error to guarantee.")
    delta: float = _option(0.05, "With --eps: the probability of missing it.")
    per_class: bool = _option(False, "A coreset for each label, sizes in proportion to its rows.")
    min_per_class: int = _option(0, "With --per-class: the least rows of a class.", min=0)
    normalize: bool = _option(False, "Scale the weights to sum to the weight of the rows.")
    n_queries: int = _option(32, "Random queries to compare at, in a last pass; 0: none.", flags=("--queries",), min=0)
    seed: int = _option(0, "Same seed, same rows, whatever the workers.", min=0)
    workers: int = _option(1, "Processes that read and compute.", flags=("--workers", "-j"), min=1)
    engine: str = _option(
        "local", "local, or ray (joins RAY_ADDRESS or starts by itself).", choices=lambda: ("local", "ray")
    )
    max_memory: str | float | None = _option(None, "Refuse to start if more is needed, such as 2GB.")

    def __post_init__(self) -> None:
        from .._validation import check_choice, check_count, check_probability

        check_choice(self.loss, "loss", ("gaussian", "laplacian"))
        check_choice(self.engine, "engine", ("local", "ray"))
        if isinstance(self.bandwidth, str):
            with suppress(ValueError):  # "median" stays; the estimator refuses other words
                number = None if self.bandwidth == "none" else float(self.bandwidth)
                object.__setattr__(self, "bandwidth", number)
        method = self.method or ("keys" if self.eps is None else "iid")
        object.__setattr__(self, "method", check_choice(method, "method", METHODS))
        for name, least in (("seed", 0), ("n_queries", 0), ("min_per_class", 0), ("workers", 1)):
            check_count(getattr(self, name), name, minimum=least)
        self.estimator().check_parameters()
        check_probability(self.delta, "delta")
        if self.max_memory is not None:
            object.__setattr__(self, "max_memory", parse_bytes(self.max_memory, "max_memory"))
        if (self.budget is None) == (self.eps is None):
            raise InvalidInputError("give either a budget or eps: how many rows, or which error.")
        if self.min_per_class and not self.per_class:
            raise InvalidInputError(
                f"min_per_class = {self.min_per_class} needs per_class: a draw over all classes promises none."
            )
        if self.per_class and (method != "keys" or self.bound in ("paper", "lemma")):
            raise InvalidInputError(
                "per_class goes with method='keys', which draws all classes in one pass, and with the bounds that "
                "compare a row with its class: 'auto', 'closed-form', 'cells' and 'exact'."
            )
        if self.eps is not None:
            check_probability(self.eps, "eps")
            if method != "iid":
                raise InvalidInputError(f"eps is guaranteed for method='iid', not for method={method!r}.")
            if self.normalize:
                raise InvalidInputError("eps is guaranteed for weights as drawn: leave normalize out.")

    def estimator(self) -> RBFCoreset | LaplacianCoreset:
        """The estimator of these options."""
        from .estimators import LaplacianCoreset, RBFCoreset

        made = LaplacianCoreset() if self.loss == "laplacian" else RBFCoreset(self.radius)
        return made.set_params(bandwidth=self.bandwidth, bound=self.bound, n_cells=self.n_cells, random_state=self.seed)


def parse_budget(budget: Any, n_rows: int) -> int:
    """A number of rows from ``"5%"``, ``"0.05"``, ``"1000"``, or a number."""
    from .._validation import check_budget

    if isinstance(budget, str):
        text = budget.strip().replace("_", "")
        if re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+", text):  # 1,000,000; elsewhere a comma may mean a point
            text = text.replace(",", "")
        try:
            budget = int(text) if re.fullmatch(r"[+-]?\d+", text) else _share(text)
        except (ValueError, ArithmeticError):
            raise InvalidInputError(
                f"budget = {budget!r} must be a number of rows, a fraction such as 0.05 or a percentage such as 5%."
            ) from None
    return check_budget(budget, n_rows, "budget")


def parse_shares(text: str) -> list[float]:
    """Shares from ``"1%,3%"`` or ``"0.01,0.03"``."""
    shares = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        try:
            shares.append(_share(word))
        except (ValueError, ArithmeticError):
            raise InvalidInputError(f"budget {word!r} is not a share; write 1%,3% or 0.01,0.03.") from None
    return shares


def _share(text: str) -> float:
    """0.7% is the float 0.007, which 0.7 / 100 is not: a run of a table is known by its budget."""
    return float(Decimal(text[:-1]) / 100) if text.endswith("%") else float(text)


def parse_bytes(text: Any, name: str) -> float:
    """A number of bytes from ``"2GB"``, ``"500M"``, or a number."""
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]?)i?b?\s*", str(text).lower())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise InvalidInputError(f"{name} = {text!r} must be a size such as 500MB or 4GB.")
    return value
