r"""The paper's sensitivity bounds under their own names: Algorithm 1 and the two lemmas of its appendix.

A point is lifted to :math:`q_p = [|p|^2, -2p, 1]`. For the Gaussian loss with :math:`|p-x|^2 \le H_p` on the query
ball, :math:`c_p = e^{H_p}(1+H_p)`, :math:`u = w/c` and U from the l1-SVD of the lifted points with weights u,

.. math:: s(p) \le c_p\Big(\frac{u_p}{\sum u} + u_p|U(q_p)|_1\Big) .

Scores are never capped at 1: they average thousands, and a cap would make every draw uniform. O(n d^2) a pass, a
handful of passes. docs/theory.md ("The paper's construction") has the proofs. The kinds:

* "paper": Algorithm 1 as printed, :math:`s(p) = e^{12R^2}(1+8R^2)\,(w_p/W + w_p|U(q_p)|_1)`: a certificate if this
  constant is at least :math:`e^B(1+B)` for :math:`B = (\rho+R)^2`, :math:`\rho` the largest norm.
* "lemma": the lemma of the appendix, with the printed :math:`H = 3R^2|q_p|` for :math:`R \ge 1`, where the paper states
  it, else with :math:`H = (|p|+R)^2`, by the same proof. Always a certificate.
* "laplacian": the lemma for :math:`f = e^{-|p-x|}` and every x in R^d, with :math:`H_p = 3\sqrt{|q_p|}`, U for the
  weights :math:`u^2` and :math:`q^*` the longest lifted point; always a certificate: :math:`s(p) \le c_p (u_p / \sum u
  + u_p\sqrt{|U(q_p)|_1}) + e^{|p| + \sqrt{|q^*|}} w_p/W`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp

from .lewis import Lewis, lewis_factor
from .lewis_passes import Run, Survey
from .points import log_shares, squared_norms

_STATED = 1.0  # the least radius for which the paper states its lemma
ReadScaled = Callable[[Any], tuple[np.ndarray, np.ndarray]]
"""From a block to its points (b, d), centred and scaled, and the logarithms of their shares of the weight."""


def lifted_norms(norms: np.ndarray) -> np.ndarray:
    """``|q_p| = sqrt(|p|^4 + 4|p|^2 + 1)``."""
    return np.asarray(np.hypot(norms**2, np.hypot(2.0 * norms, 1.0)))


def exponents(kind: str, norms: np.ndarray, radius: float) -> np.ndarray:
    """The H of points, for both lemmas; Algorithm 1 has one constant."""
    if kind == "laplacian":
        return 3.0 * np.sqrt(lifted_norms(norms))
    return 3.0 * radius**2 * lifted_norms(norms) if radius >= _STATED else (norms + radius) ** 2


@dataclass(frozen=True)
class Lift:
    """Reads blocks as lifted points with the weights of the l1-SVD: u, or u^2 for the Laplacian."""

    read: ReadScaled
    kind: str
    radius: float

    @property
    def power(self) -> float:
        return 2.0 if self.kind == "laplacian" else 1.0

    def __call__(self, block: Any) -> tuple[np.ndarray, np.ndarray]:
        lifted, _, log_w, log_c = self.parts(block)
        return lifted, self.power * (log_w - log_c)

    def parts(self, block: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Lifted points (b, d + 2), norms, ``log w/W`` and ``log c``."""
        points, log_w = self.read(block)
        lifted = np.empty((points.shape[0], points.shape[1] + 2))
        with np.errstate(over="ignore"):  # points of weight zero can be anywhere
            lifted[:, 0] = squared_norms(points)
            np.multiply(points, -2.0, out=lifted[:, 1:-1])
            lifted[:, -1] = 1.0
            norms = np.sqrt(lifted[:, 0])
            if self.kind == "paper":
                return lifted, norms, log_w, np.zeros(len(norms))
            exponent = exponents(self.kind, norms, self.radius)
        return lifted, norms, log_w, exponent + np.log1p(exponent)


class LiftSurvey(Survey):
    """The survey of the lifted points, with the sum of u."""

    def __init__(self, lift: Lift, n_points: int, n_columns: int) -> None:
        super().__init__(lift, n_points, n_columns + 2)
        self.lift = lift
        self.log_sum = -np.inf

    def update(self, block: Any) -> None:
        lifted, _, log_w, log_c = self.lift.parts(block)
        self.add(lifted, self.lift.power * (log_w - log_c))
        self.log_sum = float(np.logaddexp(self.log_sum, logsumexp(log_w - log_c)))

    def merge(self, other: Self) -> None:
        super().merge(other)
        self.log_sum = float(np.logaddexp(self.log_sum, other.log_sum))


class PaperBound:
    """One of the paper's bounds, as a map from blocks to the logarithms of scores (see the module)."""

    def __init__(self, lift: Lift, survey: LiftSurvey, lewis: Lewis, max_norm: float) -> None:
        self.lift, self.lewis, self.log_sum = lift, lewis, survey.log_sum
        _, _, self.to_u = lewis.svd  # (d + 2, r), for the weights over their maximum
        self.name = "lemma" if lift.kind == "lemma" else "paper"
        self.farthest = float(np.sqrt(lifted_norms(np.array(max_norm))))  # sqrt|q*|
        R = lift.radius
        self.log_constant = 12.0 * R**2 + np.log1p(8.0 * R**2) if lift.kind == "paper" else 0.0
        reach = (max_norm + R) ** 2
        self.is_certified = lift.kind != "paper" or bool(self.log_constant >= reach + np.log1p(reach))
        self.note = _note(lift.kind, R, max_norm, self.is_certified)

    def log_values(self, block: Any) -> np.ndarray:
        """(b,) logarithms of the scores, uncapped; they dominate at any tolerance. ``-inf`` for points of weight 0."""
        lifted, norms, log_w, log_c = self.lift.parts(block)
        log_u, power = log_w - log_c, self.lift.power
        with np.errstate(over="ignore", invalid="ignore"):  # points of weight zero can be anywhere
            log_l1 = power * log_u - self.lewis.rows.log_unit + log_shares(np.abs(lifted @ self.to_u).sum(axis=1))
            # gives the points outside their 1, and keeps the rounding of the singular vectors out of the bound
            log_l1 = np.maximum(log_l1, self.lewis.log_values(lifted, power * log_u))
            log_values = self.log_constant + log_c + np.logaddexp(log_u - self.log_sum, log_l1 / power)
            if self.lift.kind == "laplacian":
                log_values = np.logaddexp(log_values, norms + self.farthest + log_w)
        log_values[log_w == -np.inf] = -np.inf
        return log_values


def _note(kind: str, radius: float, max_norm: float, is_certified: bool) -> str:
    if kind == "paper":
        return (
            f"At R = {radius:.4g} and largest norm rho = {max_norm:.4g} the constant e^(12R^2)(1+8R^2) "
            f"{'is at least' if is_certified else 'is below'} e^B(1+B), B = (rho+R)^2, so the paper's proof "
            f"{'holds' if is_certified else 'does not apply'}."
        )
    if kind == "laplacian":
        return "The paper's lemma; its proof holds for every finite set of points and every query in R^d."
    if radius < _STATED:
        return "The paper's lemma with the exponent (|p|+R)^2 for 3R^2|q|: its proof then holds for every R."
    exponent = f"At R = {radius:.4g} the printed exponent 3R^2|q| is at least (|p|+R)^2 for every point"
    return f"{exponent}, so the paper's proof holds."


def paper_bound(
    run: Run, read: ReadScaled, shape: tuple[int, int], *, kind: str, radius: float, max_norm: float, tol: float = 1e-3
) -> PaperBound:
    """Find one of the paper's bounds in passes over (n, d) points of norm at most ``max_norm``."""
    lift = Lift(read, kind, radius)
    survey = run("lifted rows", LiftSurvey(lift, *shape))
    return PaperBound(lift, survey, lewis_factor(run, survey, tol), max_norm)
