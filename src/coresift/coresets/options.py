"""The options of a selection: one object for the Python function, the command and its TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._errors import InvalidInputError

if TYPE_CHECKING:
    from .laplacian import LaplacianCoreset
    from .rbf import RBFCoreset

# Everything but this module is imported where it is used, so that the help of a command is quick.

METHODS = ("keys", "systematic", "iid")
BOUNDS = ("auto", "closed-form", "cells", "exact", "paper", "lemma")


def _option(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """How to select; see :func:`coresift.select`. What is wrong whatever the data is refused here."""

    budget: str | int | float | None = _option(
        None, "Rows to choose: 5%, 0.05 or 1000. Or give --eps.", flags=("-b",)
    )
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
    n_queries: int = _option(
        32, "Random queries to compare at, in a last pass; 0: none.", flags=("--queries",), min=0
    )
    seed: int = _option(0, "Same seed, same rows, whatever the workers.", min=0)
    workers: int = _option(1, "Processes that read and compute.", flags=("--workers", "-j"), min=1)
    engine: str = _option(
        "local", "local, or ray (joins RAY_ADDRESS or starts by itself).", choices=lambda: ("local", "ray")
    )
    max_memory: str | float | None = _option(None, "Refuse to start if more is needed, such as 2GB.")

    def __post_init__(self) -> None:
        from .._validation import check_choice, check_count, check_probability
        from .budget import parse_bytes

        check_choice(self.loss, "loss", ("gaussian", "laplacian"))
        check_choice(self.engine, "engine", ("local", "ray"))
        object.__setattr__(self, "bandwidth", _bandwidth(self.bandwidth))
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
                raise InvalidInputError(
                    "eps is guaranteed for weights as they are drawn: leave normalize out."
                )

    def estimator(self) -> RBFCoreset | LaplacianCoreset:
        """The estimator of these options."""
        shared: dict[str, Any] = {
            "bandwidth": self.bandwidth,
            "bound": self.bound,
            "n_cells": self.n_cells,
            "random_state": self.seed,
        }
        if self.loss == "laplacian":
            from .laplacian import LaplacianCoreset

            return LaplacianCoreset(**shared)
        from .rbf import RBFCoreset

        return RBFCoreset(radius=self.radius, **shared)


def _bandwidth(given: Any) -> Any:
    """None, "median" or a number, also if it is given as text."""
    if not isinstance(given, str) or given == "median":
        return given
    if given == "none":
        return None
    try:
        return float(given)
    except ValueError:
        raise InvalidInputError(
            f"bandwidth = {given!r} is neither 'median', 'none' nor a number above 0."
        ) from None
