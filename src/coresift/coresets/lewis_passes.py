"""The paper's bounds (:mod:`coresift.core.paper`) of rows read in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.bound import log_shares
from ..core.lewis_passes import Run
from ..core.paper import PaperBound, paper_bound
from ..rows.rows import Block
from .bounds import RowBound
from .geometry import Geometry


@dataclass(frozen=True)
class ScaledRows:
    """Reads a block as dense points in the coordinates of a geometry, with the logarithms of their shares."""

    geometry: Geometry

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Points (b, d) and log-shares (b,)."""
        geometry = self.geometry
        return geometry.points(block.X).gather(slice(None)).dense(), log_shares(
            block.weights / geometry.mass.sum()
        )


class LewisBound(RowBound):
    """A row bound from the factors that the passes found."""

    def __init__(self, geometry: Geometry, bound: PaperBound) -> None:
        self.geometry, self._bound = geometry, bound
        self.name, self.is_certified, self.note = bound.name, bound.is_certified, bound.note

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the scores, not capped at 0."""
        return self._bound.log_values(block)


def lewis_bound(run: Run, geometry: Geometry, kind: str, radius: float) -> LewisBound:
    """Find the paper's bound of a kind ("paper", "lemma" or "laplacian") in passes over blocks of rows."""
    shape = (int(geometry.counts.sum()), len(geometry.center))
    bound = paper_bound(
        run, ScaledRows(geometry), shape, kind=kind, radius=radius, max_norm=geometry.max_norm
    )
    return LewisBound(geometry, bound)
