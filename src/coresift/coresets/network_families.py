"""The families of sums that a network's loss is made of: their shares and the larger of their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..core.bound import SensitivityBound, log_shares
from ..core.points import squared_norms

ROOT = float(np.sqrt(2.0))


@dataclass(frozen=True)
class FamilyBound(SensitivityBound):
    """The largest bound of each row over the families, and the total of each family."""

    totals: dict[str, float] = field(default_factory=dict)


def signed_shares(shares: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """``w y`` over its sum, of the rows with y > 0; None if there are none of positive weight."""
    part = np.maximum(targets, 0.0)
    peak = part.max(where=shares > 0, initial=0.0)
    if peak == 0.0:
        return None
    mass = shares * (part / peak)  # products of small numbers must not vanish
    return mass / mass.sum()


def target_shares(shares: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """``w |y|^2`` over its sum; None if no row of positive weight has a target but zero."""
    sizes = np.sqrt(squared_norms(targets / (np.abs(targets).max() or 1.0)))
    peak = sizes.max(where=shares > 0, initial=0.0)
    if peak == 0.0:
        return None
    mass = shares * (sizes / peak) ** 2
    return mass / mass.sum()


def single_query(shares: np.ndarray) -> SensitivityBound:
    """Sensitivities of a single sum: the shares themselves."""
    return SensitivityBound(log_shares(shares), "exact", True, "One sum: the sensitivities are the shares.")


def larger(a: SensitivityBound, b: SensitivityBound) -> SensitivityBound:
    """The larger of two bounds for each row, and what is known of both."""
    take = b.log_values > a.log_values
    gaps = [np.zeros(len(take)) if bound.gap is None else bound.gap for bound in (a, b)]
    worst = a if not a.is_certified else b
    return SensitivityBound(
        np.where(take, b.log_values, a.log_values),
        b.name,
        a.is_certified and b.is_certified,
        worst.note,
        None if a.gap is None and b.gap is None else np.where(take, gaps[1], gaps[0]),
    )
