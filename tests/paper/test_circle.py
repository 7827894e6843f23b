"""The circle on which no small coreset exists."""

import numpy as np
import pytest

from paper.circle import lower_bound_circle


def squared_distances(points):
    return np.sum((points[:, None] - points[None]) ** 2, axis=2)


def shares_at_own_point(points):
    """``f(p, p) / F(p)``, a lower bound on every sensitivity over a ball that holds the points."""
    return 1.0 / np.exp(-squared_distances(points)).sum(axis=1)


SIZES = [2, 3, 4, 5, 7, 10, 33, 100, 400]


@pytest.mark.parametrize("n", SIZES)
def test_nearest_neighbours_are_sqrt_log_n_apart(n):
    points = lower_bound_circle(n)
    squares = squared_distances(points)
    np.fill_diagonal(squares, np.inf)
    assert points.shape == (n, 2)
    np.testing.assert_allclose(squares.min(axis=1), np.log(n), rtol=1e-10)


@pytest.mark.parametrize("n", SIZES)
def test_points_lie_on_one_circle_around_the_origin(n):
    points = lower_bound_circle(n)
    norms = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(norms, np.sqrt(np.log(n)) / (2 * np.sin(np.pi / n)), rtol=1e-12)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12 * norms[0])


@pytest.mark.parametrize("n", SIZES)
def test_every_sensitivity_is_at_least_one_half(n):
    assert shares_at_own_point(lower_bound_circle(n)).min() >= 0.5


def test_the_spacing_is_not_larger_than_it_needs_to_be():
    # With n - 1 others at distance exactly sqrt(ln n) the share would be n / (2n - 1): at n = 2 and 3 it is that.
    for n in (2, 3):
        np.testing.assert_allclose(shares_at_own_point(lower_bound_circle(n)), n / (2 * n - 1), rtol=1e-12)


@pytest.mark.parametrize("n", [7, 10, 33, 100, 400])
def test_the_printed_radius_gives_neither_the_spacing_nor_the_sensitivities(n):
    radius = np.sqrt(np.log(n) / (2 * np.cos(np.pi / n)))
    ours = lower_bound_circle(n)
    printed = ours * (radius / np.linalg.norm(ours[0]))
    squares = squared_distances(printed)
    np.fill_diagonal(squares, np.inf)
    assert squares.min() < np.log(n)
    assert shares_at_own_point(printed).max() < 0.5
