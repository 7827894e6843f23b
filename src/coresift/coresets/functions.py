"""The public functions ``audit`` and ``l1_svd``: the checks, then the core."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import (
    check_count,
    check_features,
    check_generator,
    check_instance,
    check_positive,
    check_weights,
)
from ..core import lewis
from ..core.audit import AuditResult, worst_query
from .certifying import MAX_MEMORY, asked
from .coreset import Coreset


def l1_svd(X: Any, *, sample_weight: Any = None, tol: float = 1e-3) -> lewis.L1SVD:
    r"""Compute the l1-SVD (f-SVD) of a weighted set of points, by Lewis weights.

    Finds an orthonormal V and a diagonal D such that for every x, with r the rank of X,

    .. math:: \|D V^\top x\|_2 \;\le\; \sum_p w_p |p \cdot x| \;\le\; \sqrt{r}\,(1 + \mathrm{tol})\, \|D V^\top x\|_2 .

    Parameters
    ----------
    X : array-like, frame or sparse matrix of shape (n, d)
        May be rank-deficient.
    sample_weight : array-like of shape (n,), optional
    tol : float, default 1e-3
        Relative error at which the fixed point stops; the weights dominate at any tolerance.

    Returns
    -------
    L1SVD
        ``.U`` (n, r), ``.D`` (r, r), ``.V`` (d, r) with :math:`U(p) = p V D^{-1}`, and ``.lewis_weights``
        :math:`w_p \|U(p)\|_2`, which bound the sensitivities :math:`\sup_x w_p|p \cdot x| / \sum_q w_q |q \cdot x|`
        and sum to the rank.
    """
    X = check_features(X)
    weights = check_weights(sample_weight, X.shape[0]) if sample_weight is not None else None
    with np.errstate(all="ignore"):  # overflow and underflow are refused below
        found = lewis.l1_svd(X, weights, check_positive(tol, "tol"))
        if not all(np.isfinite(part).all() for part in (found.D, found.V, found.to_u)):
            raise InvalidInputError(
                "X spans more orders of magnitude than floats can hold the factors of: scale its columns first."
            )
    return found


def audit(
    X: Any,
    core: Coreset,
    *,
    sample_weight: Any = None,
    radius: float | None = None,
    loss: str | None = None,
    bandwidth: float | None = None,
    n_starts: int = 32,
    n_random: int = 1000,
    max_iter: int = 50,
    max_evaluations: float | None = None,
    max_memory: Any = MAX_MEMORY,
    random_state: Any = 0,
) -> AuditResult:
    r"""Search for the query at which a coreset is most wrong.

    Maximises :math:`|S(x)/F(x) - 1|`, the coreset's sum against the data's, from many starts. The result is a lower
    bound on the largest error: it is found, not guaranteed.

    Parameters
    ----------
    X : array-like, frame or sparse matrix of shape (n, d), or Rows
        The data the coreset was drawn from.
    core : Coreset
    sample_weight : array-like of shape (n,), optional
        The weights the coreset was fitted with; by default those of the ``Rows``.
    radius : float, optional
        Radius of the ball of queries, in units of the bandwidth; by default the coreset's own (1 if it has none).
    loss : {"gaussian", "laplacian"}, optional
        By default the coreset's own, else Gaussian.
    bandwidth : float, optional
        In the units of the data; by default the coreset's own, else the distance from the mean to the farthest row.
    n_starts, n_random, max_iter : int
        Local searches, random queries (which also give mean and quantiles), steps of a search.
    max_evaluations : float, optional
        Most kernel evaluations, queries times rows, to spend: bounds the time on large data.
    max_memory : number or str
        Bytes up to which ``Rows`` are loaded into memory; above, they are kept in a temporary file.
    random_state : None, int or Generator, default 0

    Returns
    -------
    AuditResult
        ``worst_error``, ``worst_query`` (in the units of the data), ``worst_ratio``, ``mean_error``, ``quantiles``.
    """
    check_instance(core, "core", Coreset)
    limits = {
        "n_starts": check_count(n_starts, "n_starts"),
        "n_random": check_count(n_random, "n_random"),
        "max_iter": check_count(max_iter, "max_iter", minimum=0),
    }
    if max_evaluations is not None:
        max_evaluations = check_positive(max_evaluations, "max_evaluations")
    rng = check_generator(random_state)
    with asked(X, core, sample_weight, radius, max_memory, loss, bandwidth) as question:
        ball = question.ball
        if ball.loss == "laplacian" and np.isfinite(ball.radius):
            raise InvalidInputError(
                f"radius = {radius!r} does not apply: the Laplacian is searched over all of space."
            )
        return worst_query(
            question.points,
            question.weights,
            core.indices,
            core.weights,
            ball.radius,
            ball.loss,
            rng,
            **limits,
            max_evaluations=max_evaluations,
        )
