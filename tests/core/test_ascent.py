"""The ascent behind certificates and exact sensitivities: how many steps it takes, and what may not change it."""

import numpy as np
import pytest
import scipy.sparse as sp

from coresift.core.gaussian import CELLS_TOLERANCE, Atoms, ascend, into_ball
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


@pytest.mark.parametrize("spread", [1.0, 400.0])
def test_sums_of_atoms_are_log_sums_and_means(spread):
    means, offsets, y, _ = _cells(9, 3, 7)
    exponents = spread * offsets + 2.0 * y @ means.T
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    truth = np.log(weights.sum(axis=1)) + exponents.max(axis=1), weights @ means / weights.sum(axis=1)[:, None]
    for found, expected in zip(Atoms(Block(means), spread * offsets).tilted(y), truth, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def _cells(k, d, seed):
    """Means and offsets of cells, queries of the unit ball, and the most that ``2 mu_j.y`` can be."""
    rng = np.random.default_rng(seed)
    means, offsets = rng.normal(size=(k, d)) / np.sqrt(d), 2.0 * rng.normal(size=k)
    y = into_ball(rng.normal(size=(500, d)), 1.0)
    return means, offsets, y, 2.0 * float(np.linalg.norm(means, axis=1).max())


@pytest.mark.parametrize(("k", "d"), [(1, 1), (8, 2), (64, 16), (40, 60)])
def test_single_precision_errs_less_than_is_added_for_it(k, d):
    for seed in range(10):
        means, offsets, y, most = _cells(k, d, seed)
        atoms = Atoms(Block(means), offsets, means)
        slack = atoms.rounding(most)
        (value, m), (single, m_single) = atoms.tilted(y), atoms.tilted(y, is_single=True)
        assert 0 < slack <= 0.2 * CELLS_TOLERANCE
        # in the bound 2 R |p - m| + 2 y.m - L(y), for the p where a change of m counts most
        moved = 4.0 * np.linalg.norm(m_single - m, axis=1) + np.abs(single - value)
        assert 0 < moved.max() <= slack  # power: digits were lost


def test_bounds_in_single_precision_hold_for_any_point():
    """The maxima are known in double precision, and closely."""
    for seed in range(5):
        means, offsets, p, most = _cells(64, 8, seed)
        single, double = Atoms(Block(means), offsets, means), Atoms(Block(means), offsets)
        found = ascend(3.0 * p, single, 1.0, np.full(500, np.inf), most**2, 0.5 * CELLS_TOLERANCE, 1000)
        best = ascend(3.0 * p, double, 1.0, np.full(500, np.inf), most**2, 1e-9, 5000)
        assert np.all(found.upper >= best.lower)
        assert np.all(found.lower <= best.upper)
        assert np.all(found.upper - found.lower <= 0.5 * CELLS_TOLERANCE)


def test_what_rounding_can_do_is_added_on_both_sides(monkeypatch):
    """Planted so large that neither digits nor the tolerance can hide it."""
    means, offsets, p, most = _cells(20, 3, 1)
    best = ascend(p, Atoms(Block(means), offsets), 1.0, np.full(500, np.inf), most**2, 1e-9, 5000)
    monkeypatch.setattr(Atoms, "rounding", lambda *_: 0.01)
    found = ascend(p, Atoms(Block(means), offsets, means), 1.0, np.full(500, np.inf), most**2, 0.05, 1000)
    assert np.all(found.upper >= best.lower + 0.0099)
    assert np.all(found.lower <= best.upper - 0.0099)


def test_cells_with_long_exponents_keep_double_precision():
    means, offsets, _, most = _cells(30, 4, 0)
    assert Atoms(Block(means), offsets, means).rounding(most) > 0
    assert Atoms(Block(means), 100.0 * offsets, means).rounding(most) == 0.0
    assert Atoms(Block(means), offsets, means).rounding(50.0) == 0.0
    assert Atoms(Block(means), offsets).rounding(most) == 0.0  # rows, not cells
