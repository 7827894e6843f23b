r"""Gaussian sensitivities by dual ascent: certified at every step, exact in the limit.

For weights that sum to 1 and atoms ``(M_j, mu_j, V_j)`` (mass, mean, variance of the cells of any partition of the
points), Jensen's inequality inside each cell gives ``F(x) >= sum_j M_j exp(-|x - mu_j|^2 - V_j)``, so for ``|x| <= R``

    log( w_p f(p,x) / F(x) )  <=  log w_p - |p|^2 + 2 p.x - L(x),    L(x) = logsumexp_j( b_j + 2 mu_j.x ),
                                                                     b_j = log M_j - |mu_j|^2 - V_j.

The right-hand side is concave in ``x``. ``L`` is convex with gradient ``2 m(x)``, ``m(x) = sum_j lam_j mu_j`` and
``lam = softmax(b + 2 mu.x)``, so ``L(x') >= L(x) + 2 m.(x' - x)`` for every ``x'``, and over the whole ball

    log s(p)  <=  log w_p - |p|^2 + 2 m.x - L(x) + 2 R |p - m|                      (Cauchy-Schwarz).

This is a certificate at *any* ``x``. Its distance from the value reached at ``x`` is ``2 R |p - m| - 2 x.(p - m)``,
the duality gap, zero exactly at the maximiser. With the points themselves as atoms the value reached is a ratio that
occurs, and the certificate minus the gap brackets the sensitivity.

The ascent is Nesterov's, for a block of points at once (two matrix products a step), with curvature estimates and
restarts per point; only the certificate decides when to stop, so none of this needs to be trusted.
"""

from dataclasses import dataclass

import numpy as np

from .points import Block, Points

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Atoms:
    """Where the mass is: the means as rows, and the offsets b_j."""

    rows: Block | Points  # k rows; points are read block by block, without a copy of the data
    offsets: np.ndarray  # (k,)


@dataclass(frozen=True)
class Ascent:
    """Bounds on ``max_x 2 p.x - L(x)`` for a block of points."""

    upper: np.ndarray
    lower: np.ndarray
    n_steps: int


def ascend(
    p: np.ndarray, atoms: Atoms, radius: float, upper: np.ndarray, max_curvature: float, tol: float, max_steps: int
) -> Ascent:
    """Maximise ``2 p.x - L(x)`` over ``|x| <= radius`` for each row of ``p``, to a duality gap of ``tol``.

    ``upper`` holds known bounds on the maximum (``inf`` if none); a point stops when its best certificate is within
    ``tol`` of its best value. ``max_curvature`` bounds the Hessian of ``L``, ``4 Cov_lam(mu) <= 4 max |mu|^2``.
    """
    upper = upper.copy()
    lower = np.full(len(p), -np.inf)
    active = np.arange(len(p))
    open_ = np.ones(len(p), dtype=bool)
    state = _Momentum(p, _into_ball(p, radius), max_curvature)
    n_steps = 0
    while n_steps < max_steps:
        n_steps += 1
        log_mass, m = _log_mass_and_mean(atoms, state.y)
        ascent_direction = state.p - m  # half the gradient
        towards = np.einsum("ij,ij->i", state.y, ascent_direction)
        at_y = 2.0 * np.einsum("ij,ij->i", state.y, state.p) - log_mass
        gap = 2.0 * (radius * np.linalg.norm(ascent_direction, axis=1) - towards)
        # a point that is done keeps its certificate, whatever points share its block: blocks do not change results
        going = active[open_]
        lower[going] = np.maximum(lower[going], at_y[open_])
        upper[going] = np.minimum(upper[going], (at_y + np.maximum(gap, 0.0))[open_])
        open_ = upper[active] - lower[active] > tol
        if not open_.any():
            break
        state.advance(2.0 * ascent_direction, radius)
        if open_.mean() < 0.8:
            active = active[open_]
            state.keep(open_)
            open_ = np.ones(len(active), dtype=bool)
    return Ascent(upper, lower, n_steps)


def _log_mass_and_mean(atoms: Atoms, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``L(x)`` and ``m(x)``, with one exponential per entry and no second (k, b) array."""
    weights = atoms.rows.dot(x)  # (k, b)
    weights *= 2.0
    weights += atoms.offsets[:, None]
    peak = weights.max(axis=0)
    weights -= peak
    np.exp(weights, out=weights)
    mass = weights.sum(axis=0)
    mean = atoms.rows.weighted_sum(weights)
    mean /= mass[:, None]
    return np.log(mass) + peak, mean


def _into_ball(x: np.ndarray, radius: float) -> np.ndarray:
    length = np.linalg.norm(x, axis=1)
    return x * (radius / np.maximum(length, radius))[:, None]


class _Momentum:
    """Nesterov's iterates of a block: extrapolated points ``y``, with curvature and restarts per point."""

    def __init__(self, p: np.ndarray, x: np.ndarray, max_curvature: float) -> None:
        self.p, self.x, self.y = p, x, x
        self.max_curvature = max(max_curvature, _TINY)
        self.curvature, self.age = np.zeros(len(p)), np.ones(len(p))
        self.previous: tuple[np.ndarray, np.ndarray] | None = None  # (y, gradient)

    def advance(self, gradient: np.ndarray, radius: float) -> None:
        if self.previous is None:
            self.curvature[:] = self.max_curvature / 16.0  # a guess; corrected by the first pair of gradients
        else:
            old_y, old_gradient = self.previous
            moved = np.linalg.norm(self.y - old_y, axis=1)
            bent = np.linalg.norm(gradient - old_gradient, axis=1)
            secant = np.divide(bent, moved, out=np.zeros_like(bent), where=moved > 0)
            # the secant underestimates the curvature ahead; the old estimate fades slowly
            self.curvature = np.minimum(np.maximum(1.2 * secant, 0.95 * self.curvature), self.max_curvature)
        self.previous = (self.y, gradient)
        step = 1.0 / np.maximum(self.curvature, max(1e-12 * self.max_curvature, 1e-300))
        # atoms at the centre have no curvature: no step needs to be longer than many times through the ball
        length = np.linalg.norm(gradient, axis=1)
        through = np.divide(1e3 * radius, length, out=np.full_like(length, np.inf), where=length > 1e-200)
        step = np.minimum(step, through)
        new_x = _into_ball(self.y + step[:, None] * gradient, radius)
        uphill = np.einsum("ij,ij->i", gradient, new_x - self.x) >= 0
        self.age = np.where(uphill, self.age, 1.0)
        next_age = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self.age**2))
        momentum = np.where(uphill, (self.age - 1.0) / next_age, 0.0)
        # outside the ball the certificate would still hold, but the value reached would not count
        y = _into_ball(new_x + momentum[:, None] * (new_x - self.x), radius)
        self.x, self.y, self.age = new_x, y, next_age

    def keep(self, rows: np.ndarray) -> None:
        self.p, self.x, self.y = self.p[rows], self.x[rows], self.y[rows]
        self.curvature, self.age = self.curvature[rows], self.age[rows]
        if self.previous is not None:
            self.previous = (self.previous[0][rows], self.previous[1][rows])
