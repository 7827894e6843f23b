r"""The paper's sensitivity bounds under their own names: Algorithm 1 and the two lemmas of its appendix.

All three lift a point to :math:`q_p = [|p|^2, -2p, 1]`, so that :math:`|p-x|^2 = |q_p\cdot y_x|` for
:math:`y_x = [1, x, |x|^2]`, and use :math:`e^{-h} \ge (1+h)/(e^H(1+H))` for :math:`0 \le h \le H` (the
quotient :math:`e^{-h}/(1+h)` falls). For the Gaussian loss with :math:`h_p(x) = |p-x|^2 \le H_p` on the query
ball, :math:`c_p = e^{H_p}(1+H_p)` and :math:`u = w/c`:

.. math:: \frac{w_p e^{-h_p}}{\sum_q w_q e^{-h_q}} \le \frac{w_p(1+h_p)}{\sum_q u_q(1+h_q)}
          \le c_p\Big(\frac{u_p}{\sum u} + \frac{u_p h_p}{\sum_q u_q h_q}\Big)
          \le c_p\Big(\frac{u_p}{\sum u} + u_p|U(q_p)|_1\Big),

the last step by the l1-SVD of the lifted points with weights u (:mod:`coresift.core.lewis`). Any :math:`H_p
\ge (|p|+R)^2` will do; that is what decides below whether a printed constant is a certificate. Scores are
never capped at 1: they average thousands, and a cap would make every draw uniform.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from .bound import SensitivityBound, log_shares
from .lewis import lewis_weights
from .points import Points, squared_norms
from .rowwise import BLOCK_BYTES


def algorithm1(points: Points, weights: np.ndarray, radius: float, tol: float = 1e-3) -> SensitivityBound:
    r"""Algorithm 1 as printed: :math:`s(p) = e^{12R^2}(1+8R^2)\,(w_p/W + w_p|U(q_p)|_1)`, uncapped.

    U is that of the l1-SVD of the lifted points with weights w. With one constant for all points the weights
    u are w up to a factor, so the proof above needs :math:`e^{12R^2}(1+8R^2) \ge e^B(1+B)` for :math:`B =
    (\rho+R)^2`, :math:`\rho` the largest norm: true for points of the unit ball and :math:`R \ge 1`, false
    for far points and a small ball. O(n d^2) a pass, a handful of passes.
    """
    log_constant = 12.0 * radius**2 + np.log1p(8.0 * radius**2)
    farthest = (points.max_norm + radius) ** 2
    is_certified = bool(log_constant >= farthest + np.log1p(farthest))
    log_w = log_shares(weights)
    log_l1 = _log_l1_sensitivity(points, log_w, tol)
    log_values = log_constant + np.logaddexp(log_w - logsumexp(log_w), log_l1)
    relation, verdict = ("is at least", "holds") if is_certified else ("is below", "does not apply")
    note = (
        f"At R = {radius:.4g} and largest norm rho = {points.max_norm:.4g} the constant e^(12R^2)(1+8R^2) "
        f"{relation} e^B(1+B), B = (rho+R)^2, so the paper's proof {verdict}."
    )
    return SensitivityBound(log_values, "paper", is_certified, note)


def lemma(
    points: Points,
    weights: np.ndarray,
    radius: float,
    variant: Literal["auto", "printed", "tight"] = "auto",
    tol: float = 1e-3,
) -> SensitivityBound:
    r"""The appendix lemma, Gaussian: :math:`s(p) \le c_p\,(u_p/\sum u + u_p|U(q_p)|_1)`, :math:`u = w/c`.

    ``variant="printed"`` takes the paper's :math:`c_p = e^{H}(1+H)` with :math:`H = 3R^2|q_p|`, stated for
    :math:`R \ge 1`. It is a certificate exactly when :math:`3R^2|q_p| \ge (|p|+R)^2` for every point, which
    Cauchy-Schwarz gives for :math:`R \ge 0.65` (:math:`1+R^2+R^4 \le 9R^4`). ``"tight"`` takes :math:`H =
    (|p|+R)^2`, valid for every R by the same proof, and smaller. ``"auto"`` is the printed one where the
    paper states it, :math:`R \ge 1`, and the tight one elsewhere.
    """
    log_w = log_shares(weights)
    norms = np.sqrt(_sq_norms(points))
    reach = (norms + radius) ** 2
    printed = 3.0 * radius**2 * _lifted_norms(norms)
    if variant == "auto":
        variant = "printed" if radius >= 1.0 else "tight"
    if variant == "printed":
        exponent = printed
        # at R >= 1 the inequality is strict by far: no allowance for rounding is needed
        is_certified = bool(np.all(printed >= reach, where=log_w > -np.inf))
        relation, verdict = ("is", "holds") if is_certified else ("is not", "does not apply")
        note = (
            f"At R = {radius:.4g} the printed exponent 3R^2|q| {relation} at least (|p|+R)^2 for every point, "
            f"so the paper's proof {verdict}."
        )
    else:
        exponent, is_certified = reach, True
        note = "The paper's lemma with the exponent (|p|+R)^2 for 3R^2|q|: its proof then holds for every R."
    log_c = exponent + np.log1p(exponent)
    log_u = log_w - log_c
    log_l1 = _log_l1_sensitivity(points, log_u, tol)
    log_values = log_c + np.logaddexp(log_u - logsumexp(log_u), log_l1)
    return SensitivityBound(log_values, "lemma", is_certified, note)


def laplacian_lemma(points: Points, weights: np.ndarray, tol: float = 1e-3) -> SensitivityBound:
    r"""The appendix lemma for :math:`f = e^{-|p-x|}` and every x in R^d:

    .. math:: s(p) \le c_p\Big(\frac{u_p}{\sum u} + u_p\sqrt{|U(q_p)|_1}\Big)
              + e^{|p| + \sqrt{|q^*|}}\frac{w_p}{W},
              \qquad c_p = e^{H_p}(1+H_p),\ H_p = 3\sqrt{|q_p|},\ u = w/c,

    U from the l1-SVD of the lifted points with weights :math:`u^2`, :math:`q^*` the longest lifted point.

    Proof. For :math:`|x| \le 1`, :math:`|p-x| \le |p|+1 \le 2\sqrt{|q_p|} \le H_p`, since :math:`|q_p| \ge
    \max(|p|^2, 1)`; then as for the Gaussian with :math:`h = \sqrt{|q\cdot y|}`, and :math:`\sum
    u\sqrt{|q\cdot y|} \ge (\sum u^2|q\cdot y|)^{1/2}`. For the other x the last term, by the triangle
    inequality :math:`|x|-|p| \le |p-x| \le |x|+|p|` and :math:`\sqrt{|q^*|} \ge |p|`. The supremum over both
    sets is at most the sum. Nothing in this needs the unit ball, so it is always a certificate (the last term
    alone is one for every x, and far smaller).
    """
    log_w = log_shares(weights)
    norms = np.sqrt(_sq_norms(points))
    root = np.sqrt(_lifted_norms(norms))
    exponent = 3.0 * root
    log_c = exponent + np.log1p(exponent)
    log_u = log_w - log_c
    log_l1 = 0.5 * _log_l1_sensitivity(points, 2.0 * log_u, tol)  # u sqrt|U|_1 = (u^2 |U|_1)^(1/2)
    inside = log_c + np.logaddexp(log_u - logsumexp(log_u), log_l1)
    beyond = norms + root.max(where=log_w > -np.inf, initial=0.0) + log_w - logsumexp(log_w)
    note = "The paper's lemma; its proof holds for every finite set of points and every query in R^d."
    return SensitivityBound(np.logaddexp(inside, beyond), "paper", True, note)


def _lifted_norms(norms: np.ndarray) -> np.ndarray:
    """``|q_p| = sqrt(|p|^4 + 4|p|^2 + 1)``."""
    lifted: np.ndarray = np.hypot(norms**2, np.hypot(2.0 * norms, 1.0))
    return lifted


def _sq_norms(points: Points) -> np.ndarray:
    sq_norms = np.empty(points.n)
    for rows, block in points.blocks():
        sq_norms[rows] = block.sq_norms
    return sq_norms


def _lifted_blocks(points: Points) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of the rows ``[|p|^2, -2p, 1]``; sparse points become dense a block at a time."""
    for rows, block in points.blocks(extra_columns=points.d + 2, budget=BLOCK_BYTES):
        dense = block.dense()
        lifted = np.empty((dense.shape[0], points.d + 2))
        lifted[:, 0] = squared_norms(dense)
        np.multiply(dense, -2.0, out=lifted[:, 1:-1])
        lifted[:, -1] = 1.0
        yield rows, lifted


def _log_l1_sensitivity(points: Points, log_u: np.ndarray, tol: float) -> np.ndarray:
    r"""Log of :math:`u_p|U(q_p)|_1`, which dominates :math:`\sup_y u_p|q_p\cdot y| / \sum_q u_q|q_q\cdot y|`.

    :math:`|U|_1 \ge |U|_2` in whatever basis V the singular vectors come, and :math:`u_p|U(q_p)|_2` dominates
    at any tolerance. A row with a part outside the numerical row space has no U there; its ratio is at most
    1, and it gets no less.
    """
    found = lewis_weights(lambda: _lifted_blocks(points), points.n, points.d + 2, log_u, tol)
    _, _, to_u = found.svd  # (d + 2, r), for the weights over their maximum
    log_norms = np.empty(points.n)
    for rows, lifted in _lifted_blocks(points):
        log_norms[rows] = log_shares(np.abs(lifted @ to_u).sum(axis=1))
    # the maximum gives the rows outside their 1, and keeps the rounding of the singular vectors out of the bound
    log_l1: np.ndarray = np.maximum(log_u - found.log_scale + log_norms, found.log_values)
    return log_l1
