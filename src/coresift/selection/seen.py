"""What training saw of each sample: norms and losses, and how its label ranked, without a pass of their own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import as_numpy, check_length

# "low": 0, or (C - 1) / floor(C / 2) if the label is in the lower half of the ranking of C >= 4 classes, so that the
# mean is the share of wrong labels where the model is right; "sure": largest probability, negative if it is not the
# label's. "order" counts the samples that training has met, "means" are running means of losses, the last half of it.


class Seen:
    """Tables of n numbers, NaN where training has not met the sample; the value seen last counts."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.tables: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        kind = np.float64 if name == "order" else np.float32  # float32 does not count above 2^24
        return self.tables.setdefault(name, np.full(self.n, np.nan, dtype=kind))

    @property
    def n_met(self) -> int:
        """Number of samples that training has met, counting repeats."""
        known = self.tables.get("order")
        return 0 if known is None or np.isnan(known).all() else int(np.nanmax(known)) + 1

    def record(self, rows: Any, **columns: Any) -> None:
        """Store columns for these rows: norms, losses, low, sure."""
        rows = as_numpy(rows)
        given = {name: as_numpy(values) for name, values in columns.items() if values is not None}
        for name, values in given.items():
            if rows.shape != values.shape or rows.ndim != 1:
                shapes = f"rows have shape {rows.shape} and {name} {values.shape}"
                raise InvalidInputError(f"{shapes}: one of the {name} for each row is needed.")
            if values.dtype.kind not in "biuf" or (name == "norms" and (values < 0).any()):
                raise InvalidInputError(f"{name} must be numbers of at least 0, or NaN where they are not known.")
        if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= self.n):
            raise InvalidInputError(f"rows must be integers from 0 to {self.n - 1}.")
        for name, values in given.items():
            known = np.isfinite(values)
            self[name][rows[known]] = values[known]
        if "losses" in given:
            known = np.isfinite(given["losses"])
            met, losses = rows[known], given["losses"][known]
            self["order"][met] = self.n_met + np.arange(len(met))
            before = self["means"][met]
            self["means"][met] = np.where(np.isnan(before), losses, 0.5 * (before + losses))

    def restore(self, tables: Mapping[str, NDArray[Any]]) -> None:
        """Go back to the tables of a checkpoint."""
        self.tables = {}
        for name, values in tables.items():
            check_length(len(values), self.n, f"the table of {name}")
            self[name][:] = values


def wrong_labels(seen: Seen) -> tuple[float, float] | None:
    """Estimate the share of wrong labels twice, over the half of the rows that were met last; None if they are few.

    First by the mean of "low", then by the share of errors among the quarter of rows that the model is most sure of.
    """
    order, low, sure = (seen[name] for name in ("order", "low", "sure"))
    rows = np.flatnonzero(np.isfinite(low) & np.isfinite(sure))
    if len(rows) < 40:
        return None
    rows = rows[np.argsort(order[rows], kind="stable")[len(rows) // 2 :]]
    surest = np.argsort(-np.abs(sure[rows]), kind="stable")[: -(-len(rows) // 4)]
    return float(low[rows].mean(dtype=np.float64)), float(np.mean(sure[rows][surest] < 0))
