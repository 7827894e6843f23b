r"""The paper's bounds over passes: Lewis weights of the lifted rows from weighted Gram matrices, one pass each.

In memory the weights of all rows are kept (:mod:`coresift.core.lewis`). Here nothing of a row is: the weights of each
step are :math:`\ell_p = r\,u_p |q_p T| / \sum u|q T|` for the whitening factor T of the step before, and are computed
again when a row is read. A pass with the factors of two steps finds :math:`\kappa = \max \tau/\ell` of the one and the
Gram matrix for the next. Wherever it stops, :math:`\min(1, \kappa\tau_p)` dominates; see that module for the proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.special import logsumexp

from .._errors import InvalidInputError
from ..core.bound import log_shares
from ..core.paper import _lifted_norms as lifted_norms
from ..core.points import squared_norms
from ..core.rowwise import add_gram, graded_svd, row_norms, stacked_qr, whitening_error
from ..rows.rows import Block
from .fitting import Estimator, Runner
from .rbf import RBFCoreset
from .row_bounds import shares_of
from .survey import Geometry

_TOLERANCE = 1e-3
_MAX_PASSES = 20
_RANK_CUTOFF = 1e-12
_NOISE = 16.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Lift:
    """Lifted rows ``[|p|^2, -2p, 1]`` with weights ``u = w/c``, and the constants ``c``, all as logarithms."""

    geometry: Geometry
    kind: str  # "paper", "lemma" or "laplacian"
    radius: float

    def rows(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Lifted rows (b, d + 2), norms, ``log w/W`` and ``log c``."""
        geometry = self.geometry
        scaled = (block.X.astype(np.float64, copy=False) - geometry.center) / geometry.scale
        squares = squared_norms(scaled)
        lifted = np.empty((len(scaled), scaled.shape[1] + 2))
        lifted[:, 0] = squares
        np.multiply(scaled, -2.0, out=lifted[:, 1:-1])
        lifted[:, -1] = 1.0
        norms = np.sqrt(squares)
        return lifted, norms, log_shares(shares_of(geometry, block, None)), self._log_c(norms)

    def _log_c(self, norms: np.ndarray) -> np.ndarray:
        if self.kind == "paper":
            return np.zeros(len(norms))
        if self.kind == "laplacian":
            exponent = 3.0 * np.sqrt(lifted_norms(norms))
        elif self.radius >= 1.0:
            exponent = 3.0 * self.radius**2 * lifted_norms(norms)
        else:
            exponent = (norms + self.radius) ** 2
        return exponent + np.log1p(exponent)

    @property
    def power(self) -> float:
        """The Laplacian lemma takes the f-SVD of the weights u^2."""
        return 2.0 if self.kind == "laplacian" else 1.0


class LiftSurvey:
    """Largest and summed weights, scales of the columns, and the longest lifted row."""

    def __init__(self, lift: Lift) -> None:
        self.lift = lift
        self.largest, self.log_sum = -np.inf, -np.inf
        self.peaks = np.zeros(len(lift.geometry.center) + 2)
        self.is_certified = True

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        lifted, norms, log_w, log_c = self.lift.rows(block)
        log_u = log_w - log_c
        self.largest = max(self.largest, float(log_u.max()))
        self.log_sum = float(np.logaddexp(self.log_sum, logsumexp(log_u)))
        held = log_w > -np.inf
        if held.any():
            self.peaks = np.maximum(self.peaks, np.abs(lifted[held]).max(axis=0))
        if self.lift.kind == "lemma" and self.lift.radius >= 1.0:
            printed = 3.0 * self.lift.radius**2 * lifted_norms(norms[held])
            self.is_certified &= bool(np.all(printed >= (norms[held] + self.lift.radius) ** 2))

    def merge(self, other: LiftSurvey) -> None:
        """Add the survey of later rows."""
        self.largest = max(self.largest, other.largest)
        self.log_sum = float(np.logaddexp(self.log_sum, other.log_sum))
        self.peaks = np.maximum(self.peaks, other.peaks)
        self.is_certified &= other.is_certified


class Weighted:
    """Rows with their weights over the largest; those outside of the retained space are told apart."""

    def __init__(self, lift: Lift, log_scale: float, column_scale: np.ndarray) -> None:
        self.lift, self.log_scale, self.column_scale = lift, log_scale, column_scale
        self.basis: np.ndarray | None = None  # (r, d + 2), of the scaled columns
        self.noise = 0.0

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Lifted rows and weights."""
        lifted, _, log_w, log_c = self.lift.rows(block)
        return lifted, np.exp(self.lift.power * (log_w - log_c) - self.log_scale)

    def outside(self, lifted: np.ndarray, T: np.ndarray) -> np.ndarray:
        """Rows with a part outside of the space that the factor T covers."""
        if self.basis is None:
            return np.zeros(len(lifted), dtype=bool)
        scaled = lifted * self.column_scale
        return row_norms(scaled - (scaled @ self.basis.T) @ self.basis) > self.noise * row_norms(lifted @ T)


class Triangle:
    """R of the weighted rows, by QR of blocks, merged: the start."""

    def __init__(self, weighted: Weighted) -> None:
        self.weighted = weighted
        self.R = np.zeros((0, len(weighted.column_scale)))

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        lifted, weights = self.weighted(block)
        self._add(lifted * (weights[:, None] * self.weighted.column_scale))

    def merge(self, other: Triangle) -> None:
        """Add the factor of later rows."""
        self._add(other.R)

    def _add(self, rows: np.ndarray) -> None:
        self.R = stacked_qr([self.R, rows], self.R.shape[1])


class LewisStep:
    """kappa of the factor T against the weights that it came from, and the Gram matrix for those that it gives."""

    def __init__(self, weighted: Weighted, T: np.ndarray, before: np.ndarray | None, unit: float) -> None:
        self.weighted, self.T, self.before, self.unit = weighted, T, before, unit
        self.gram = np.zeros((T.shape[1],) * 2)
        self.total = 0.0
        self.kappa = 1.0

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        lifted, weights = self.weighted(block)
        weights[self.weighted.outside(lifted, self.T)] = 0.0
        whitened = lifted @ self.T
        norms = row_norms(whitened)
        if self.before is not None:
            old = self.unit * row_norms(lifted @ self.before)
            ratio = np.divide(norms, old, out=np.ones(len(old)), where=(weights > 0) & (old > 0))
            self.kappa = max(self.kappa, float(ratio.max()))
        self.total += float(weights @ norms)
        add_gram(self.gram, whitened, weights, norms)

    def merge(self, other: LewisStep) -> None:
        """Add the sums over later rows."""
        self.gram += other.gram
        self.total += other.total
        self.kappa = max(self.kappa, other.kappa)


class LewisBound:
    """Algorithm 1 and the lemmas of the paper (:mod:`coresift.core.paper`), from the factor that the passes found."""

    def __init__(self, weighted: Weighted, survey: LiftSurvey, T: np.ndarray, kappa: float) -> None:
        lift = weighted.lift
        self.weighted, self.geometry = weighted, lift.geometry
        self.log_sum = survey.log_sum
        self.farthest = float(np.sqrt(lifted_norms(np.array([lift.geometry.max_norm]))[0]))
        margin, inverse = whitening_error(T, weighted.column_scale)
        self.T, used = T * (kappa * (1.0 + margin)), weighted.column_scale > 0
        factor = np.zeros((T.shape[1], len(weighted.column_scale)))
        factor[:, used] = inverse / weighted.column_scale[used] / (kappa * (1.0 + margin))
        self.to_u = graded_svd(factor, self.T)[2]
        self.name = "paper" if lift.kind in ("paper", "laplacian") else "lemma"
        R, rho = lift.radius, lift.geometry.max_norm
        self.log_constant = 12.0 * R**2 + np.log1p(8.0 * R**2) if lift.kind == "paper" else 0.0
        reach = (rho + R) ** 2
        self.is_certified = survey.is_certified and (
            lift.kind != "paper" or bool(self.log_constant >= reach + np.log1p(reach))
        )
        verdict = "holds" if self.is_certified else "does not apply"
        self.note = (
            f"The paper's proof {verdict} for these rows and this radius; Lewis weights by {kappa:.4g}."
        )

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the scores, not capped."""
        lift = self.weighted.lift
        lifted, norms, log_w, log_c = lift.rows(block)
        log_u = log_w - log_c
        log_l1 = lift.power * log_u - self.weighted.log_scale
        sides = np.abs(lifted @ self.to_u).sum(axis=1)
        log_l1 = log_l1 + log_shares(np.maximum(sides, row_norms(lifted @ self.T)))
        outside = self.weighted.outside(lifted, self.T)
        log_l1[outside] = np.maximum(log_l1[outside], 0.0)
        log_values = self.log_constant + log_c + np.logaddexp(log_u - self.log_sum, log_l1 / lift.power)
        if lift.kind == "laplacian":
            log_values = np.logaddexp(log_values, norms + self.farthest + log_w)
        log_values[log_w == -np.inf] = -np.inf
        return log_values


def lewis_bound(runner: Runner, estimator: Estimator, geometry: Geometry) -> LewisBound:
    """The bound "paper" or "lemma" of an estimator: a survey, a start by QR, Gram matrices until kappa is near 1."""
    if isinstance(estimator, RBFCoreset):
        lift = Lift(geometry, estimator.bound, float(estimator.radius))
    else:
        lift = Lift(geometry, "laplacian", 1.0)
    survey = runner.run("lifted rows", LiftSurvey(lift))
    exponents = np.clip(np.frexp(survey.peaks)[1], -700, 700)
    weighted = Weighted(
        lift, lift.power * survey.largest, np.where(survey.peaks > 0, np.ldexp(1.0, -exponents), 0.0)
    )
    R = runner.run("QR", Triangle(weighted)).R
    column_norms = np.linalg.norm(R, axis=0)
    unit_columns = np.divide(1.0, column_norms, out=np.zeros(len(column_norms)), where=column_norms > 0)
    _, sigma, Vt = scipy.linalg.svd(R * unit_columns, full_matrices=False)
    kept = sigma > _RANK_CUTOFF * sigma.max()
    weighted.column_scale = weighted.column_scale * unit_columns
    if np.count_nonzero(kept) < np.count_nonzero(weighted.column_scale):
        weighted.basis = Vt[kept]
        weighted.noise = _NOISE * float(np.sqrt(len(Vt))) * float(sigma.max())
    T = weighted.column_scale[:, None] * (Vt[kept].T / sigma[kept])
    before, unit = None, 1.0
    for _ in range(_MAX_PASSES):
        step = runner.run("Lewis weights", LewisStep(weighted, T, before, unit))
        if before is not None and step.kappa <= 1.0 + max(
            _TOLERANCE, whitening_error(T, weighted.column_scale)[0]
        ):
            break
        eigenvalues, Q = scipy.linalg.eigh(step.gram)
        if not eigenvalues[0] > 1e-10 * eigenvalues[-1]:
            raise InvalidInputError("the rows are too nearly dependent for Lewis weights; use bound='cells'.")
        unit = T.shape[1] / step.total
        before, T = T, T @ (Q * np.sqrt(unit / eigenvalues))
    else:
        step = runner.run("Lewis weights", LewisStep(weighted, T, before, unit))
    return LewisBound(weighted, survey, T, step.kappa)
