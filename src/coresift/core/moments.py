r"""How far two Gaussian sums can be apart over a ball, from the tensors of their moments.

With :math:`\nu` the weights of the subset minus those of the data, :math:`S(x)/F(x) - 1 = N(x)/D(x)`, where

.. math:: N(x) = \sum_p \nu_p e^{-|p|^2} e^{2 p \cdot x} = \sum_k \frac{2^k}{k!} \langle T_k, x^{\otimes k} \rangle,
    \qquad T_k = \sum_p \nu_p e^{-|p|^2} p^{\otimes k}, \qquad D(x) = \sum_p w_p e^{-|p|^2} e^{2 p \cdot x}.

For :math:`|x| \le R` the k-th term is at most :math:`(2R)^k \sigma_k / k!`, with :math:`\sigma_k` the spectral norm of
any matrix that :math:`T_k` can be folded into, or its Frobenius norm, a quadratic form in powers of the Gram matrix:
one sweep gives all k. The tail is closed. docs/theory.md ("By moments") has the proofs.

Rounding: with unit roundoff u and :math:`A_k = \sum_p |\nu_p| e^{-|p|^2} |p|^k`, a quadratic form and the folded
matrices are off by at most :math:`2 (n + k(d+2) + 10) u A_k^2`; the terms of k = 0, 1, 2 err in proportion to u itself.
"""

from math import factorial
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh, norm
from scipy.special import gammainc, hyp1f1

from .discrepancy import Progress, paired_squares, potential, quadratic_form, rounding_of_form, silent, tile_slices
from .points import Block, Points

_STRETCH, _LEAST_STRETCH, _MOST_STRETCH = 0.75, 1e-4, 2.0  # best or nearly so on digits, tables and normal data
_UNIT = float(np.finfo(np.float64).eps) / 2.0
_MOST_TERMS = 64  # more are needed only for points so far away that the bound says nothing
_NEGLIGIBLE = 1e-6  # of the bound: a tail that is not worth another term
WIDEST_MATRIX = 2048  # columns up to which tensors of order 2, 3 and 4 are folded into d x d matrices
_CACHED = 32  # rows of a tile that stay in the cache
_WIDEST_SQUARE = 16  # columns up to which a tensor of order 4 is folded into a d^2 x d^2 matrix
LARGEST_EXPONENT = 50.0  # of kernels of higher moments, whose digits cancel beyond
_MANY = 1 << 14  # rows from which a part of the pairs is summed
_SCATTER, _WORTH = 0.3, 0.01  # what groups of rows may add, to the trace of the folded matrix and to the bound


def chosen_stretch(radius: float, loss: str) -> float:
    """The factor s of inner products with which Cauchy and Schwarz lose little: a small ball sees low moments only."""
    return min(max(_STRETCH * radius, _LEAST_STRETCH), _MOST_STRETCH) if loss == "gaussian" else 1.0


class HighOrders:
    r"""The kernel :math:`e^{-|p|^2-|q|^2} \sum_{k \ge j} (2s)^k (p \cdot q)^k / k!` of the moments from order j on.

    Their terms sum to at most :math:`\|\mu_\nu\| (\sum_{k \ge j} (2R^2/s)^k/k!)^{1/2}` in its norm. All orders make a
    Gaussian kernel with tilted coefficients, :math:`e^{-s|p-q|^2} e^{(s-1)|p|^2} e^{(s-1)|q|^2}`; what the low moments
    add to sums over it is subtracted.
    """

    def __init__(self, points: Points, used: np.ndarray, first: int, radius: float, stretch: float) -> None:
        self.points, self.first, self.stretch = points, first, stretch
        self.factor = float(np.sqrt(rest(2.0 * radius**2 / stretch, first)))
        self.squares = np.where(used, points.squares, 0.0)  # the others' kernel values may overflow, and count nothing
        self.narrow, self.tilts = points.rescaled(float(np.sqrt(stretch))), np.exp((stretch - 1.0) * self.squares)

    def lengths(self) -> np.ndarray:
        """(n,) the norms of the rows in the Hilbert space of this kernel."""
        return np.asarray(np.exp(-self.squares) * np.sqrt(rest(2.0 * self.stretch * self.squares, self.first)))

    def form(self, c: np.ndarray) -> float:
        if not c.any():
            return 0.0
        low = _low_sums(self.points, c, self.first).low_form(self.stretch)
        return quadratic_form(self.narrow, c * self.tilts, "gaussian") - low

    def potential(self, c: np.ndarray, at: np.ndarray, progress: Progress = silent) -> np.ndarray:
        """(m,) sums over the rows with coefficients (n,), at the rows ``at``."""
        if not c.any():
            return np.zeros(len(at))
        out = self.tilts[at] * potential(self.narrow, at, c * self.tilts, "gaussian", progress)
        sums = _low_sums(self.points, c, self.first)
        for part in tile_slices(self.points, len(at)):
            out[part] -= sums.low_potential(self.points.gather(at[part]), self.stretch)
        return out

    def products(self, quadruples: np.ndarray) -> np.ndarray:
        """(2k,) cosines of pairs of the rows (4, k): their mean square is that of the second moments, over traces."""
        pairs = quadruples.reshape(2, -1)
        squares = self.squares[pairs]
        t = self.stretch * (squares.sum(axis=0) - paired_squares(self.points, *pairs))
        cosines = t**self.first / factorial(self.first) * hyp1f1(1.0, self.first + 1.0, t)  # as rest, also below zero
        own, others = np.sqrt(rest(2.0 * self.stretch * squares, self.first))
        return np.clip(cosines / own / others, -1.0, 1.0)

    def rounding(self, c: np.ndarray) -> float:
        """How far rounding may move the form: tilted coefficients may be far above 1, and low moments are up to 1."""
        return 2.0 * rounding_of_form(self.points, c * np.maximum(self.tilts, 1.0), "gaussian")


def rest(t: Any, first: int) -> Any:
    r""":math:`\sum_{k \ge j} t^k / k!` for t >= 0, to all digits: those of small t are not what a difference leaves."""
    return np.exp(t) * gammainc(first, t)


def log_low_orders(points: Points, coefficients: np.ndarray, radius: float, first: int) -> float:
    """The logarithm of a bound on the terms below order ``first``, at most 3, of the series of N: one pass."""
    if not coefficients.any():
        return -np.inf
    sums = _low_sums(points, coefficients, first)
    return float(np.log(sums.series(radius))) + sums.top


def _low_sums(points: Points, coefficients: np.ndarray, first: int) -> "_PairSums":
    sums = _PairSums(points, coefficients)
    sums.start(first)
    for left in tile_slices(points, len(sums.rows)):
        sums.add_rows(points.gather(sums.rows[left]), sums.c[left])
    return sums


def pair_sums(
    points: Points, nu: np.ndarray, radius: float, log_least: float, progress: Progress = silent, order: int = 0
) -> tuple[float, np.ndarray]:
    r"""The quadratic form of the Gaussian kernel, and logarithms of bounds on N and its derivatives over the ball.

    The j-th derivatives, j up to ``order``, are at most :math:`\sum_{k \ge j} 2^k R^{k-j} \sigma_k / (k-j)!`; infinite
    if the series would be too long. ``log_least`` is the logarithm of a lower bound on D.
    """
    if not nu.any():
        return 0.0, np.full(order + 1, -np.inf)
    sums = _PairSums(points, nu)
    n_terms, least = 0, 2.0 * radius * float(sums.norms.max())
    if least < _MOST_TERMS - 1:
        tails = range(max(3, int(least) + 1), _MOST_TERMS)
        negligible = np.log(_NEGLIGIBLE) + log_least
        enough = (n for n in tails if _log_tail(sums.log_mass, sums.norms, radius, n) <= negligible)
        n_terms = next(enough, _MOST_TERMS) + order
    sums.start(n_terms)
    is_grouped = order == 0 and n_terms > 3 and len(sums.rows) >= _MANY and sums.reach**2 <= LARGEST_EXPONENT / 2.0
    is_grouped &= _WIDEST_SQUARE < points.d <= WIDEST_MATRIX
    high = sums.run_groups(radius, progress) if is_grouped else sums.run(progress)
    if n_terms == 0:
        return sums.form, np.full(order + 1, np.inf)
    bounds = []
    for j in range(order + 1):  # sum |nu| e^{-|p|^2} (2|p|)^j z^i / i! over the terms i = k - j that are left out
        tail = np.exp(_log_tail(sums.log_mass, sums.norms, radius, n_terms - j) - sums.top)
        bounds.append((sums.series(radius, j) + high + tail) * (2.0 * sums.reach) ** j)
    with np.errstate(divide="ignore"):
        return sums.form, np.log(np.array(bounds) * (1.0 + 1e-12)) + sums.top


def _log_tail(log_mass: np.ndarray, norms: np.ndarray, radius: float, n_terms: int) -> float:
    r"""The logarithm of :math:`\sum_p |\nu_p| e^{-|p|^2} z_p^K / K! / (1 - z_p/(K+1))`, z = 2R|p| < K, the tail."""
    z = 2.0 * radius * norms
    with np.errstate(divide="ignore"):
        logs = log_mass + n_terms * np.log(z) - np.log1p(-z / (n_terms + 1.0))
    return float(np.logaddexp.reduce(logs)) - float(np.log(np.arange(1, n_terms + 1)).sum())


class _PairSums:
    """Sums over pairs of rows: the kernel's quadratic form, and the tensors of moments in units of ``reach``."""

    def __init__(self, points: Points, coefficients: np.ndarray) -> None:
        self.points, self.rows = points, np.flatnonzero(coefficients)
        self.coefficients = coefficients[self.rows]
        self.norms = np.sqrt(points.squares[self.rows])
        self.log_mass = np.log(np.abs(self.coefficients)) - self.norms**2
        self.top = float(self.log_mass.max())  # so that nothing underflows, everything is relative to the largest
        self.c = np.sign(self.coefficients) * np.exp(self.log_mass - self.top)
        # relative errors of the exponentials; and of inner products, which for sparse rows lose digits to the shift
        self.error = 4.0 * (points.d + 4) * _UNIT * points.rounding_norm**2
        self.reach = max(float(self.norms.max()), float(np.sqrt(self.error)) if points.is_sparse else 0.0, 1e-100)
        self.blur = self.error / self.reach**2 if points.is_sparse else 0.0
        self.form, self.scales = 0.0, np.zeros(0)

    def start(self, n_terms: int) -> None:
        """Begin sums up to order ``n_terms - 1``."""
        d = self.points.d
        self.n_terms = self.n_summed = n_terms  # the orders, and those that :meth:`series` sums one by one
        self.total, self.mean = 0.0, np.zeros(d)
        self.squares, self.magnitudes = np.zeros(n_terms), np.zeros(n_terms)  # |T_k|^2; A_k, with norms that cover blur
        self.is_folded = d <= WIDEST_MATRIX and n_terms > 2
        self.folded = {k: np.zeros((d, d)) for k in (2, 3, 4) if self.is_folded and k < n_terms}
        self.quartic = np.zeros((d**2, d**2)) if d <= _WIDEST_SQUARE and n_terms > 4 else None

    def run(self, progress: Progress) -> float:
        """Sum over all pairs; nothing is left to add to :meth:`series`."""
        self._sweep([(-1, part) for part in tile_slices(self.points, len(self.rows))], 0, progress)
        return 0.0

    def run_groups(self, radius: float, progress: Progress) -> float:
        r"""Sum over a part of the pairs; returns a bound on the terms from order 3 on and leaves the rest to `series`.

        :math:`S = \sum_k s_k M_k M_k^\top`, :math:`M_k` the folded tensors, is for all these orders and convex in the
        measure: rows that matter little are in groups, each stands for all of them in turn, and the mean is at least S.
        Groups are joined where that costs too much. docs/theory.md ("Many rows") has the proofs.
        """
        weights = np.cumprod(2.0 * radius * self.reach / np.arange(1, self.n_terms))[2:]
        own = (self.c[:, None] * (self.norms / self.reach)[:, None] ** np.arange(3, self.n_terms)) ** 2
        self.scales = (weights + 1e-300) / np.sqrt(own.sum(axis=0) + 1e-200)
        own = own @ self.scales  # what each row adds to the trace of S
        groups = _grouped(own)
        b, light = len(groups) - 1, float(own.sum() - own[groups[0]].sum())
        parts = [(g, at[part]) for g, at in enumerate(groups, -1) for part in tile_slices(self.points, len(at))]
        self.n_summed, self.forms = 3, np.zeros(2)
        self.folded = {k: np.zeros_like(self.folded[2]) for k in (0, 1, 2)}  # S with common rows, in groups; order 2
        for level in range(b.bit_length()):
            self._sweep(parts, level, progress)
            times = b / 2.0**level
            S = self.folded[0] + times * self.folded[1]
            slack = times * float(self.scales @ [self._slacks(k)[1] for k in range(3, self.n_terms)])
            high = float(np.sqrt((weights**2 / self.scales).sum() * (_largest(S) + slack)))
            added = (times - 1.0) * light / (float(np.trace(S)) + 1e-200)  # by random groups, on average
            if high * added / 2.0 <= _WORTH * (high + self.series(radius)):
                break
            progress(-len(self.rows))
        self.form = self.low_form(1.0, [self._slacks(k)[0] for k in range(3)])
        self.form += float(self.forms @ [1.0, times] * np.exp(2.0 * self.top))
        return high

    def _sweep(self, parts: list[Any], level: int, progress: Progress) -> None:
        """Add the pairs of parts that meet at this level: common rows (group -1) at once, groups when joined."""
        met = [
            [at for h, at in parts[i:] if (g >= 0 and (g ^ h).bit_length()) == level] for i, (g, _) in enumerate(parts)
        ]
        n_tiles = np.cumsum([0, *map(len, met)])
        shares = np.diff(n_tiles * len(self.rows) // max(n_tiles[-1], 1))
        for (g, left), rights, done in zip(parts, met, shares, strict=True):
            mine, own = self.points.gather(self.rows[left]), self.c[left]
            if level == 0:
                self.add_rows(mine, own)
            tile, keys = (self._joint_tile, [int(g >= 0)]) if len(self.scales) else (self._tile, list(self.folded)[1:])
            sums = {k: np.zeros((len(own), self.points.d)) for k in keys}
            for right in rights:
                theirs, half = (mine, 0.5) if right is left else (self.points.gather(self.rows[right]), 1.0)
                tile(mine, theirs, left, right, half, sums)
            for k, total in sums.items():
                product = (mine.dense() / self.reach * own[:, None]).T @ total
                self.folded[k] += product + product.T
            progress(int(done))

    def add_rows(self, mine: Block, c: np.ndarray) -> None:
        """Add what is summed over rows, not pairs."""
        lengths = np.hypot(np.sqrt(mine.sq_norms) / self.reach, np.sqrt(self.blur))
        self.magnitudes += np.abs(c) @ lengths[:, None] ** np.arange(self.n_terms)
        self.total += float(c.sum())
        self.mean += mine.weighted_sum(c[:, None])[0] / self.reach
        if self.is_folded:
            scaled = mine.dense() / self.reach
            self.folded[2] += scaled.T @ (scaled * c[:, None])
        if self.quartic is not None:
            products = (scaled[:, :, None] * scaled[:, None, :]).reshape(len(scaled), -1)
            self.quartic += products.T @ (products * c[:, None])

    def low_form(self, stretch: float, slacks: Any = 0.0) -> float:
        r"""What the orders below 3 add to the form of :math:`e^{-|p|^2-|q|^2} e^{2s p \cdot q}`."""
        lengths = np.array([abs(self.total), norm(self.mean), norm(self.folded.get(2, np.zeros(1)))]) + slacks
        step = 2.0 * stretch * self.reach**2
        return float(lengths**2 @ [1.0, step, step**2 / 2.0] * np.exp(2.0 * self.top))

    def low_potential(self, mine: Block, stretch: float) -> np.ndarray:
        """The same of its sums at the rows of a block."""
        step = 2.0 * stretch * self.reach
        low = self.total + step * mine.dot(self.mean[None])[:, 0]
        if 2 in self.folded:
            rows = mine.dense()
            low += step**2 / 2.0 * np.einsum("ij,ij->i", rows @ self.folded[2], rows)
        return np.asarray(np.exp(self.top - mine.sq_norms) * low)

    def _tile(self, mine: Block, theirs: Block, left: Any, right: Any, half: float, sums: dict[int, Any]) -> None:
        gram = mine.gram(theirs)
        kernel = 2.0 * gram
        kernel -= mine.sq_norms[:, None]
        kernel -= theirs.sq_norms
        np.exp(np.minimum(kernel, 0.0, out=kernel), out=kernel)
        self.form += 2.0 * half * float(self.coefficients[left] @ (kernel @ self.coefficients[right]))
        if self.n_terms == 0:
            return
        gram /= self.reach**2
        own, c = self.c[left], self.c[right]
        moving = theirs.dense() * (c / self.reach)[:, None] if sums else np.zeros((0, 0))
        power = kernel  # its memory
        power[:] = gram
        for k in range(2, self.n_terms):
            if k in sums:
                sums[k] += half * (power @ moving)
            power *= gram
            if k > 2 or not self.is_folded:
                self.squares[k] += 2.0 * half * float(own @ (power @ c))

    def _joint_tile(self, mine: Block, theirs: Block, left: Any, right: Any, half: float, sums: dict[int, Any]) -> None:
        gram, c = mine.gram(theirs), self.c[right]
        fold = np.empty_like(gram)
        for start in range(0, len(gram), _CACHED):
            part, out = gram[start : start + _CACHED], fold[start : start + _CACHED]
            part /= self.reach**2
            out[:] = np.polyval(self.scales[::-1], part)
            out *= part
            out *= part
            part *= 2.0 * self.reach**2
            low = 0.5 * part
            low += 1.0
            low *= part
            low += 1.0
            np.subtract(np.exp(part, out=part), low, out=part)  # e^t without the orders below 3
        for kind in sums:
            self.forms[kind] += 2.0 * half * float(self.c[left] @ (gram @ c))
            sums[kind] += fold @ (theirs.dense() * (half * c / self.reach)[:, None])

    def series(self, radius: float, derivative: int = 0) -> float:
        """The sum of the terms of N or of a derivative, over ``(2 reach)^derivative``."""
        steps = 2.0 * radius * self.reach / np.arange(1, self.n_summed - derivative)
        return float(np.cumprod([1.0, *steps]) @ [self.sigma(k) for k in range(derivative, self.n_summed)])

    def _slacks(self, k: int) -> tuple[float, float]:
        """How far rounding may move the tensor of order ``k``, and the square of its norm."""
        magnitude, before = float(self.magnitudes[k]), float(self.magnitudes[max(k - 1, 0)])
        relative = (len(self.rows) + k * (self.points.d + 2) + 10) * _UNIT + self.error + k * self.blur
        below = k * self.blur * before
        return relative * magnitude + below, 2.0 * relative * magnitude**2 + below * before

    def sigma(self, k: int) -> float:
        """An upper bound on the spectral norm of the tensor of order ``k``."""
        slack, of_square = self._slacks(k)
        if k == 0:
            return abs(self.total) + slack
        if k == 1:
            return float(norm(self.mean)) + slack
        if k == 2 and self.is_folded:
            return _largest(self.folded[2]) + slack
        square = max(float(self.squares[k]), 0.0)
        if k in self.folded:
            square = min(square, _largest(self.folded[k]))
        best = float(np.sqrt(square + of_square))
        if k == 4 and self.quartic is not None:
            best = min(best, _largest(self.quartic) + slack)
        return best


def _grouped(own: np.ndarray) -> list[np.ndarray]:
    """Rows in common, and groups of the others: few pairs, and little added to the trace, the sum of ``own``."""
    n, ranked, first, b = len(own), np.argsort(-own, kind="stable"), np.arange(len(own)), 2 ** np.arange(4)[:, None]
    added = (b - 1) * np.cumsum(own[ranked[::-1]])[::-1] / (own.sum() + 1e-200)
    costs = np.where(added > _SCATTER, np.inf, (first * n + (n - first) ** 2 / (2 * b)) * (1.0 + added) ** 2)
    doublings, n_common = (int(i) for i in np.unravel_index(costs.argmin(), costs.shape))
    light, groups = ranked[n_common:], 2**doublings  # at random among neighbours in this order: groups are alike
    light = light[np.argsort(np.arange(len(light)) // groups + np.random.default_rng(0).random(len(light)))]
    return [ranked[:n_common], *(np.sort(light[j::groups]) for j in range(groups))]


def _largest(matrix: np.ndarray) -> float:
    """The spectral norm of a symmetric matrix, rounded up."""
    return float(np.abs(eigvalsh(matrix)).max()) * (1.0 + 4.0 * len(matrix) * _UNIT)
