"""The ascent behind certificates and exact sensitivities: how many steps it takes, and what may not change it."""

import numpy as np
import pytest
import scipy.sparse as sp

from coresift.core.gaussian import Atoms, ascend, into_ball
from coresift.core.points import Block, Points


def _problem(n, d, seed):
    """Normalised points, each an atom of equal mass."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    Z -= Z.mean(axis=0)
    Z /= np.linalg.norm(Z, axis=1).max()
    return Z, Atoms(Block(Z), -np.log(n) - (Z**2).sum(axis=1))


@pytest.mark.parametrize(
    "d, radius, most", [(3, 0.3, 3), (3, 1.0, 9), (3, 3.0, 19), (20, 0.3, 2), (20, 1.0, 5), (20, 3.0, 7)]
)
def test_ordinary_data_take_few_steps(d, radius, most):
    """Plain ascent with the bound on the curvature takes hundreds where the ball is large."""
    for seed in range(3):
        Z, atoms = _problem(200 if d == 3 else 300, d, seed)
        found = ascend(Z, atoms, radius, np.full(len(Z), np.inf), 4.0, 1e-6, 1000)
        assert np.all(found.upper - found.lower <= 1e-6)
        assert found.n_steps <= most


def test_neighbours_in_a_block_do_not_change_a_result():
    """At a loose tolerance a point that went on with the others would get another certificate."""
    Z, atoms = _problem(60, 3, 4)
    together = ascend(Z, atoms, 2.0, np.full(60, np.inf), 4.0, 1e-2, 1000)
    alone = [ascend(z[None], atoms, 2.0, np.array([np.inf]), 4.0, 1e-2, 1000) for z in Z]
    np.testing.assert_allclose(together.upper, [one.upper[0] for one in alone], rtol=1e-9)
    np.testing.assert_allclose(together.lower, [one.lower[0] for one in alone], rtol=1e-9)
    steps = {one.n_steps for one in alone}
    assert len(steps) > 2  # power: they do end at different times
    assert together.n_steps == max(steps)


def test_atoms_at_the_centre_leave_a_linear_function():
    """L is constant, so the maximum of 2 p.x - L is 2 R |p| - L, for points of any length."""
    p = np.array([[3.0, 4.0], [1e-6, 0.0], [0.0, 0.0], [-1e5, 0.0]])
    found = ascend(p, Atoms(Block(np.zeros((1, 2))), np.array([-0.5])), 2.0, np.full(4, np.inf), 0.0, 1e-9, 100)
    truth = 2 * 2.0 * np.linalg.norm(p, axis=1) + 0.5
    np.testing.assert_allclose(found.upper, truth, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.lower, truth, rtol=1e-12, atol=1e-9)
    assert found.n_steps <= 5


def test_sparse_atoms_and_points_answer_like_dense_ones():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(12, 5)) * (rng.random((12, 5)) < 0.5)
    shift, offsets, p = rng.normal(size=5), rng.normal(size=12), rng.normal(size=(7, 5))
    sparse = Points(sp.csr_array(rows), shift, 1.0, 9.0)
    upper = [
        ascend(p, Atoms(means, offsets), 1.0, np.full(7, np.inf), 100.0, 1e-3, 5).upper
        for means in (Block(rows - shift), sparse.gather(slice(0, 12)), sparse)
    ]
    np.testing.assert_allclose(upper[1], upper[0], atol=1e-12)
    np.testing.assert_allclose(upper[2], upper[0], atol=1e-12)


def test_the_first_query_is_nearly_the_best_where_the_ball_is_small():
    """Power: from the points themselves, no ascent is done after one step."""
    rng = np.random.default_rng(6)
    means, p = 0.3 * rng.normal(size=(20, 4)), rng.normal(size=(50, 4))
    atoms = Atoms(Block(means), -(means**2).sum(axis=1), means)
    best = ascend(p, atoms, 0.5, np.full(50, np.inf), 10.0, 1e-10, 1000).lower

    def value(x):
        return 2.0 * (p * x).sum(axis=1) - np.log(np.exp(2.0 * x @ means.T + atoms.offsets).sum(axis=1))

    near = best - value(atoms.first_queries(p, 0.5))
    assert near.max() < 0.02
    assert near.mean() < 0.1 * (best - value(into_ball(p, 0.5))).mean()


@pytest.mark.parametrize("spread", [1.0, 400.0])  # one peak for all exponents, or one for each query
def test_the_products_of_cells_are_log_sums_and_means(spread):
    rng = np.random.default_rng(7)
    means, y = rng.normal(size=(9, 3)), rng.normal(size=(5, 3))
    offsets, most = spread * rng.normal(size=9), float(2.0 * np.abs(y @ means.T).max())
    exponents = offsets + 2.0 * y @ means.T
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    truth = np.log(weights.sum(axis=1)) + exponents.max(axis=1), weights @ means / weights.sum(axis=1)[:, None]
    for atoms in (Atoms(Block(means), offsets), Atoms(Block(means), offsets, means)):
        for found, expected in zip(atoms.tilted(y, most), truth, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
