"""Best weights against other solvers and the conditions of optimality; greedy choices against trying every row."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import nnls
from scipy.spatial.distance import cdist

from coresift.core import quadrature
from coresift.core.discrepancy import rounding_of_form
from coresift.core.points import Points
from coresift.core.quadrature import Quadrature, descended_weights, pivoted_weights

LOSSES = ("gaussian", "laplacian")
LARGEST_RIDGE = 1e-4


def best_weights(points, rows, shares, start, loss, wanted=None):
    return Quadrature(points, shares, loss).fitted(rows, start, wanted).weights


def kernel(a, b, loss):
    return np.exp(-cdist(a, b, "sqeuclidean" if loss == "gaussian" else "euclidean"))


def make_points(Z):
    return Points(Z, np.zeros(Z.shape[1]), 1.0, float(np.linalg.norm(Z, axis=1).max()))


def problem(seed, n=60, m=15, d=3, width=1.0, loss="gaussian"):
    rng = np.random.default_rng(seed)
    Z = width * rng.normal(size=(n, d))
    w = rng.random(n)
    w /= w.sum()
    rows = np.sort(rng.choice(n, size=m, replace=False))
    K = kernel(Z[rows], Z[rows], loss)
    return make_points(Z), rows, w, K, kernel(Z[rows], Z, loss) @ w


def value(K, b, v):
    return v @ K @ v - 2 * b @ v


def assert_optimal(K, b, v, tolerance):
    """v >= 0, slope >= 0, and one of both zero: for a convex problem these prove the minimum."""
    slope = K @ v - b
    assert (v >= 0).all()
    assert (slope >= -tolerance).all()
    assert np.abs(slope[v > 0]).max(initial=0.0) <= tolerance


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(10))
def test_pivoting_solves_the_problem(seed, loss):
    width = [0.1, 0.3, 1.0, 3.0][seed % 4]
    _, _, _, K, b = problem(seed, m=25, d=1 + seed % 3, width=width, loss=loss)
    v = pivoted_weights(K, b)
    # the ridge moves the slope by at most itself times the weights, which sum to about 1
    assert_optimal(K, b, v, tolerance=LARGEST_RIDGE * v.max() + 1e-9)
    # nnls on the factor: |A v - y|^2 with A^T A = K and A^T y = b
    spectrum, vectors = np.linalg.eigh(K)
    kept = spectrum > 1e-9
    A = np.sqrt(spectrum[kept])[:, None] * vectors[:, kept].T
    y = (vectors[:, kept].T @ b) / np.sqrt(spectrum[kept])
    reference = nnls(A, y)[0]
    assert value(K, b, v) == pytest.approx(value(K, b, reference), abs=1e-6)
    if spectrum[0] > 1e-3:  # then the weights are unique as well
        assert v == pytest.approx(reference, abs=1e-5)


def test_some_weights_are_zero_at_the_optimum():
    # else the solver might as well ignore the sign
    _, _, _, K, b = problem(3, m=25, d=1, width=0.3)
    assert (np.linalg.solve(K + 1e-8 * np.eye(25), b) < -1e-3).any()
    v = pivoted_weights(K, b)
    assert (v == 0).any()
    clipped = np.maximum(np.linalg.solve(K + 1e-8 * np.eye(25), b), 0.0)
    assert value(K, b, v) < value(K, b, clipped) - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_descent_agrees_with_pivoting(seed, loss, monkeypatch):
    points, rows, w, K, b = problem(seed, m=30, width=1.0, loss=loss)
    start = np.full(30, 1 / 30)
    pivoted = best_weights(points, rows, w, start, loss)
    monkeypatch.setattr(quadrature, "DENSE_LIMIT", 10)
    monkeypatch.setattr("coresift.core.discrepancy._SIDE", 8)  # several tiles
    descended = best_weights(points, rows, w, start, loss)
    assert descended is not pivoted
    gained = value(K, b, start) - value(K, b, pivoted)
    assert value(K, b, descended) <= value(K, b, pivoted) + 1e-3 * gained
    assert (descended >= 0).all()


def test_matrix_free_products_never_hold_the_matrix(monkeypatch):
    points, rows, w, _, _ = problem(0, n=100, m=50)
    monkeypatch.setattr(quadrature, "DENSE_LIMIT", 49)
    monkeypatch.setattr(quadrature, "kernel_matrix", None)
    assert np.isfinite(best_weights(points, rows, w, np.full(50, 0.02), "gaussian")).all()


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 50),
    d=st.integers(1, 2),
    shape=st.sampled_from(["smooth", "duplicates", "equal", "isolated"]),
    orders=st.sampled_from([0, 12]),
    loss=st.sampled_from(LOSSES),
    dense=st.booleans(),
)
def test_weights_are_never_worse_than_the_start(seed, n, d, shape, orders, loss, dense):
    rng = np.random.default_rng(seed)
    width = {"smooth": 0.3, "duplicates": 1.0, "equal": 0.0, "isolated": 1e4}[shape]
    Z = width * rng.normal(size=(n, d))
    if shape == "duplicates":
        Z = Z[rng.integers(n, size=n)]
    w = 10 ** rng.uniform(-orders, 0, n)
    w /= w.sum()
    rows = np.sort(rng.choice(n, size=rng.integers(1, n + 1), replace=False))
    start = rng.random(len(rows)) / len(rows)
    with pytest.MonkeyPatch.context() as patch:
        if not dense:
            patch.setattr(quadrature, "DENSE_LIMIT", 0)
        found = best_weights(make_points(Z), rows, w, start, loss)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    K, b = kernel(Z[rows], Z[rows], loss), kernel(Z[rows], Z, loss) @ w
    rounding = 1e-13 if loss == "gaussian" else 1e-7  # of kernel values, as in the certificate
    assert value(K, b, found) <= value(K, b, start) + rounding
    if len(rows) == n and dense and loss == "gaussian":  # the data themselves: nothing is left but the ridge
        assert value(K, b, found) <= value(K, b, w) + LARGEST_RIDGE


def test_a_start_that_is_best_stays():
    points, rows, w, K, b = problem(1)
    best = best_weights(points, rows, w, np.zeros(15), "gaussian")
    assert value(K, b, best_weights(points, rows, w, best, "gaussian")) <= value(K, b, best)


def test_a_solver_that_fails_changes_nothing(monkeypatch):
    points, rows, w, _, _ = problem(1)
    start = np.full(15, 1 / 15)
    monkeypatch.setattr(quadrature, "pivoted_weights", lambda K, b: np.full(15, 7.0))
    assert best_weights(points, rows, w, start, "gaussian") is start


def test_descent_when_pivoting_gives_up(monkeypatch):
    points, rows, w, K, b = problem(2)
    wanted = value(K, b, pivoted_weights(K, b))
    monkeypatch.setattr(quadrature, "pivoted_weights", lambda K, b: None)
    found = best_weights(points, rows, w, np.full(15, 1 / 15), "gaussian")
    assert value(K, b, found) == pytest.approx(wanted, abs=1e-6)


def test_no_matrix_is_singular_beyond_the_ridges():
    K = np.ones((30, 30))  # all rows equal
    v = pivoted_weights(K, np.full(30, 0.7))
    assert v.sum() == pytest.approx(0.7, abs=1e-5)


def test_descent_returns_its_start_if_nothing_is_better():
    K = np.eye(3)
    b = np.array([0.2, 0.3, 0.5])
    assert descended_weights(lambda v: K @ v, b, b, 20) == pytest.approx(b)
    assert descended_weights(lambda v: K @ v, -b, np.ones(3), 200) == pytest.approx(np.zeros(3))


def test_descent_with_steps_too_long_returns_the_best_it_saw():
    # a curvature of 50 across the vector of ones, which the power method starts from and never leaves
    u = np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2)
    K = np.eye(4) + 49.0 * np.outer(u, u)
    b, start = K @ np.full(4, 0.5), np.array([0.5, 0.5 + 1e-6, 0.0, 0.0])
    values = [value(K, b, descended_weights(lambda v: K @ v, b, start, steps)) for steps in range(1, 30)]
    assert values[0] < value(K, b, start)
    assert (np.diff(values) <= 0).all()
    step = np.maximum(start - (K @ start - b) / 1.05, 0.0)
    for _ in range(10):
        step = np.maximum(step - (K @ step - b) / 1.05, 0.0)
    assert value(K, b, step) > value(K, b, start)  # power: such steps do lead away


def by_trying_every_row(K, wanted, size):
    """Greedy with the projection solved afresh for every candidate; also the residuals on the way."""
    chosen, squares = [], []
    for _ in range(size):
        best = None
        for s in range(len(K)):
            if s not in chosen:
                rows = [*chosen, s]
                left = -wanted[rows] @ np.linalg.solve(K[np.ix_(rows, rows)], wanted[rows])
                if best is None or left < best[0]:
                    best = (left, s)
        squares.append(best[0])
        chosen.append(best[1])
    return np.sort(chosen), squares


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(6))
def test_greedy_takes_the_row_that_lowers_the_discrepancy_most(seed, loss):
    points, pool, w, K, b = problem(seed, n=40, m=16, d=2, width=1.0, loss=loss)
    for size in (1, 2, 3, 5, 7):
        kept = Quadrature(points, w, loss).greedy(pool, size, b)
        assert (np.diff(kept) > 0).all()
        assert (kept == by_trying_every_row(K, b, size)[0]).all()


@pytest.mark.parametrize("seed", range(4))
def test_herding_follows_its_rule(seed):
    points, pool, w, K, b = problem(seed, n=40, m=16, d=2)
    chosen = []
    for step in range(6):
        score = b - K[:, chosen].sum(axis=1) / (step + 1)
        score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
    assert (Quadrature(points, w, "gaussian").herded(pool, 6, b) == np.sort(chosen)).all()


@pytest.mark.parametrize("choose", [Quadrature.greedy, Quadrature.herded])
@pytest.mark.parametrize("Z", [np.zeros((12, 2)), np.repeat(np.eye(3), 4, axis=0), np.linspace(0, 1e-3, 12)[:, None]])
def test_choices_are_distinct_whatever_the_pool(choose, Z):
    pool = np.arange(1, 12)
    for size in (1, 5, 11):
        wanted = kernel(Z[pool], Z, "gaussian").mean(axis=1)
        kept = choose(Quadrature(make_points(Z), np.full(12, 1 / 12), "gaussian"), pool, size, wanted)
        assert len(np.unique(kept)) == size
        assert kept.min() >= 0
        assert kept.max() < 11


def test_duplicates_are_taken_last():
    Z = np.concatenate([np.eye(4), np.eye(4)]) * 2.0
    given = Quadrature(make_points(Z), np.full(8, 1 / 8), "gaussian")
    kept = given.greedy(np.arange(8), 4, kernel(Z, Z, "gaussian").mean(axis=1))
    assert len(np.unique(kept % 4)) == 4


def test_herding_takes_over_where_memory_ends(monkeypatch):
    points, pool, w, _, b = problem(5, n=60, m=40, d=2)
    given = Quadrature(points, w, "gaussian")
    greedy, herded = given.greedy(pool, 8, b), given.herded(pool, 8, b)
    assert not np.array_equal(greedy, herded)
    assert (given.chosen(pool, 8) == greedy).all()
    monkeypatch.setattr(quadrature, "_GREEDY_BYTES", 8 * (8 + 2) * 40)
    assert (given.chosen(pool, 8) == greedy).all()
    monkeypatch.setattr(quadrature, "_GREEDY_BYTES", 8 * (8 + 2) * 40 - 1)
    assert (given.chosen(pool, 8) == herded).all()
    assert (given.chosen(pool, 8, b) == herded).all()


def test_known_potentials_are_used():
    points, rows, w, K, b = problem(3)
    start = np.full(15, 1 / 15)
    given = Quadrature(points, w, "gaussian")
    found = given.fitted(rows, start, 2 * b).weights
    assert found == pytest.approx(pivoted_weights(K, 2 * b), rel=1e-6, abs=1e-9)
    assert (given.chosen(rows, 3, K[7]) != given.chosen(rows, 3)).any()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_interpolation_removes_most_of_the_noise_of_a_sample(seed, loss):
    """Its error lies outside the span of the known rows: the squared norm left is the mean of the squared distances
    from that span over N, as stated; a tenth of the plain sample's where the kernel is smooth."""
    rng = np.random.default_rng(seed)
    n, m, n_sampled = 400, 60, 2000
    Z = 0.5 * rng.normal(size=(n, 2))
    w = rng.random(n) * (rng.random(n) < 0.8)
    w /= w.sum()
    points, everyone = make_points(Z), np.arange(n)
    K = kernel(Z, Z, loss)
    exact = K @ w
    rows = np.sort(rng.choice(n, m, replace=False))
    K_S = K[np.ix_(rows, rows)] + 1e-8 * np.eye(m)
    outside = 1.0 - np.einsum("ij,ij->j", K[rows], np.linalg.solve(K_S, K[rows]))  # squared distances from the span
    squares, plain = [], []
    for repeat in range(20):
        rng = np.random.default_rng((seed, repeat))
        found = Quadrature(points, w, loss).interpolated(everyone, rows, n_sampled, rng)
        assert found[rows] == pytest.approx(exact[rows], abs=1e-6)
        squares.append(np.mean((found - exact) ** 2))
        drawn = np.random.default_rng((seed, repeat)).choice(n, n_sampled, p=w)
        plain.append(np.mean((K[:, drawn].mean(axis=1) - exact) ** 2))
    # pointwise: the error at x is at most dist(k_x, span) times the norm of what is left
    bound = float(w @ outside) / n_sampled * float(outside.mean())
    assert np.mean(squares) <= 3 * bound + 1e-12  # a mean of 20 squares is within a factor of 3 of its expectation
    assert np.mean(squares) < 0.1 * np.mean(plain)


@pytest.mark.parametrize("loss", LOSSES)
def test_interpolated_potentials_are_exact_where_they_are_known_and_follow_the_formula(loss):
    points, rows, w, K, _ = problem(3, n=80, m=12, d=2, width=3.0, loss=loss)
    w[-4:] = 0.0  # never sampled
    w /= w.sum()
    Z = points.X
    exact = kernel(Z[rows], Z, loss) @ w
    everywhere = np.arange(80)
    found = Quadrature(points, w, loss).interpolated(everywhere, rows, 50, np.random.default_rng(0))
    # the error is that of 1e-8 on the diagonal of a matrix whose least eigenvalue is not small
    assert np.linalg.eigvalsh(K)[0] > 1e-2
    # and, of a Gaussian, of single precision: sums of at most 1, from some dozens of terms
    np.testing.assert_allclose(found[rows], exact, atol=1e-6 if loss == "gaussian" else 1e-7)
    drawn = np.searchsorted(np.cumsum(w), np.random.default_rng(0).random(50) * np.cumsum(w)[-1], side="right")
    mean = kernel(Z, Z[drawn], loss).mean(axis=1)
    spread = np.linalg.solve(K, exact - mean[rows])
    np.testing.assert_allclose(found, mean + kernel(Z, Z[rows], loss) @ spread, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("limit", [0, 100])
def test_a_fit_says_what_it_achieves(loss, limit, monkeypatch):
    """``v.K v - 2 b.v``, the squared discrepancy up to a constant, and its rounding: dense and tile by tile."""
    monkeypatch.setattr(quadrature, "DENSE_LIMIT", limit)
    rng = np.random.default_rng(3)
    Z, w = rng.normal(size=(60, 3)), np.full(60, 1 / 60)
    rows = np.arange(15)
    K, b = kernel(Z[rows], Z[rows], loss), kernel(Z[rows], Z, loss) @ w
    points = make_points(Z)
    fit = Quadrature(points, w, loss).fitted(rows, np.full(15, 1 / 15))
    difference = -w
    difference[rows] += fit.weights
    wanted = value(K, b, fit.weights) + rounding_of_form(points, difference, loss)
    assert fit.value == pytest.approx(wanted, rel=1e-6)


def test_potentials_in_single_precision_are_for_kernel_matrices_far_from_singular():
    """Weights hardly notice where they are used; double where rows nearly coincide, or the root would lose digits."""
    rng, loss = np.random.default_rng(0), "gaussian"
    Z, w, rows = 0.8 * rng.normal(size=(3000, 12)), np.full(3000, 1 / 3000), np.arange(40)
    given = Quadrature(make_points(Z), w, loss)
    K, exact = kernel(Z[rows], Z[rows], loss), kernel(Z[rows], Z, loss) @ w
    single = given.potential(rows, K)
    assert 0 < np.abs(single - exact).max() < 1e-6
    assert given.potential(rows) == pytest.approx(exact, rel=1e-12)
    fit = given.fitted(rows, np.full(40, 1 / 40))
    best = given.fitted(rows, np.full(40, 1 / 40), exact)
    assert fit.weights == pytest.approx(best.weights, abs=1e-4)
    laplacian = Quadrature(make_points(Z), w, "laplacian")
    assert laplacian.potential(rows, K) == pytest.approx(kernel(Z[rows], Z, "laplacian") @ w, rel=1e-6)
    nearly = Z.copy()
    nearly[1] = nearly[0] + 1e-6
    given = Quadrature(make_points(nearly), w, loss)
    K, exact = kernel(nearly[rows], nearly[rows], loss), kernel(nearly[rows], nearly, loss) @ w
    assert given.potential(rows, K) == pytest.approx(exact, rel=1e-12)
