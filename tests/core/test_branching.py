"""Branch and bound in few dimensions: never below dense grids in extended precision, and closely above searches."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from coresift import RBFCoreset, audit
from coresift.core import branching
from coresift.core.certificate import certify_exact
from coresift.core.points import Points, Subset

GRID = {1: 401, 2: 41, 3: 13}


def grid(d, radius):
    """Of the ball, its edge included."""
    ticks = np.linspace(-radius, radius, GRID[d])
    inside = np.stack(np.meshgrid(*[ticks] * d), axis=-1).reshape(-1, d)
    lengths = np.linalg.norm(inside, axis=1)
    edge = inside[lengths > 0.9 * radius] * (radius * (1 - 1e-15) / lengths[lengths > 0.9 * radius])[:, None]
    return np.concatenate([inside[lengths <= radius], edge])


def largest_error(x, Z, w, subset, v):
    """In extended precision."""
    x, Z, w, v = (np.asarray(part, dtype=np.longdouble) for part in (x, Z, w, v))
    exponents = 2 * x @ Z.T - (Z**2).sum(axis=1)
    values = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    difference = -w
    difference[subset] += v
    return float(np.abs(values @ difference / (values @ w)).max())


@st.composite
def problems(draw):
    """Rows of any width, not centred, some twice or nearly so, weights over 12 orders; in 1 to 3 dimensions."""
    rng, d = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(1, 3))
    Z = draw(st.sampled_from([0.0, 1e-9, 0.3, 1.0, 3.0])) * rng.normal(size=(draw(st.integers(1, 12)), d))
    Z = Z + draw(st.sampled_from([0.0, 0.0, 2.0])) * rng.normal(size=d)
    Z = np.concatenate([Z, Z + draw(st.sampled_from([0.0, 1e-9, 0.1])) * rng.normal(size=Z.shape)])
    w = 10 ** rng.uniform(-draw(st.sampled_from([0, 2, 12])), 0, len(Z))
    w[1:] *= rng.random(len(w) - 1) > draw(st.sampled_from([0.0, 0.3]))
    subset = np.sort(rng.choice(len(Z), size=draw(st.integers(1, len(Z))), replace=False))
    w /= w.sum()
    v = draw(st.sampled_from([w[subset] * np.exp(0.3 * rng.normal(size=len(subset))), rng.random(len(subset))]))
    return Z, w, subset, v


@pytest.mark.slow
@given(problems(), st.sampled_from([1e-6, 0.3, 1.0, 3.0]), st.sampled_from(["dense", "float32", "sparse", "wide"]))
def test_never_below_a_dense_grid(problem, radius, storage):
    Z, w, subset, v = problem
    X, center = Z, np.zeros(Z.shape[1])
    if storage == "float32":
        X = Z.astype(np.float32)
        Z = X.astype(np.float64)
    elif storage == "sparse":
        center = np.full(Z.shape[1], 0.25)
        X = sp.csr_array(Z + center)
        Z = X.toarray().astype(np.longdouble) - center
    elif storage == "wide":  # in a space of six dimensions
        X = Z @ np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0][: Z.shape[1]]
        center = np.zeros(6)
    points = Points(X, center, 1.0, float(np.sqrt((Z**2).sum(axis=1).max())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branching, "_MOST_VALUES", 2e5)  # what is left is bounded as well
        found = certify_exact(Subset(points, w, subset, v, radius, "gaussian"))
    rounding = 1e-13 if storage == "wide" else 0.0  # of the rotation
    assert largest_error(grid(Z.shape[1], radius), Z, w, subset, v) <= found.eps + rounding


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("radius", "bandwidth"), [(1.0, None), (0.1, None), (2.0, None), (2.0, 1.5)])
@pytest.mark.parametrize("way", [{}, {"reweight": True}])
def test_within_five_per_cent_of_what_a_search_finds(d, radius, bandwidth, way):
    X = np.random.default_rng(d).normal(size=(600, d))
    est = RBFCoreset(radius, bandwidth=bandwidth, random_state=0).fit(X)
    core = est.sample(80 if way else 150, random_state=1, **way)
    found = audit(X, core, n_starts=16, n_random=400).worst_error
    certified = core.certify(X).eps
    assert found <= certified
    if found > 1e-7:  # below, rounding is a part of it
        assert certified <= 1.05 * found


def test_the_table_of_the_theory_page_is_what_the_program_says(monkeypatch):
    """Rows of the table are made here; to update it, paste what the assertion shows."""
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    cases = [(d, 1.0, None, "") for d in (1, 2, 3)] + [
        (3, 1.0, None, ", `reweight`"),
        (2, 3.0, 1.0, ""),
        (3, 3.0, 1.0, ""),
    ]
    for d, radius, bandwidth, way in cases:
        X = np.random.default_rng(0).normal(size=(2000, d))
        est = RBFCoreset(radius, bandwidth=bandwidth, bound="closed-form", random_state=0).fit(X)
        core = est.sample(200, random_state=1, reweight=bool(way))
        measured = [core.certify(X).eps, audit(X, core, n_starts=12, n_random=300).worst_error]
        with monkeypatch.context() as patch:
            patch.setattr("coresift.core.certificate.worst_in_ball", lambda *problem: problem[-1])
            measured.insert(0, core.certify(X).eps)
        line = next(line for line in page.splitlines() if line.startswith(f"| $d = {d}$, $R = {radius:.0f}${way} |"))
        shown = [float(cell) for cell in line.split("|")[2:5]]
        assert shown == pytest.approx(measured, rel=0.01), line
        assert measured[1] <= 1.02 * measured[2]


def test_rows_of_a_plane_in_a_wide_space():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 9)) + 3.0
    core = RBFCoreset(random_state=0).fit(X).sample(100)
    assert core.certify(X).eps <= 1.05 * audit(X, core).worst_error
    points, rows = Points(X, X.mean(axis=0), 10.0, 5.0), np.arange(500)
    coordinates = branching.span_coordinates(points, rows, 1.0)
    assert coordinates.shape == (500, 2)
    scaled = points.take(rows)
    np.testing.assert_allclose(coordinates @ coordinates.T, scaled @ scaled.T, atol=1e-12)
    bent = Points(X + 1e-6 * rng.normal(size=X.shape), X.mean(axis=0), 10.0, 5.0)
    assert branching.span_coordinates(bent, rows, 1.0) is None
    assert branching.span_coordinates(Points(np.ones((3, 2)), np.ones(2), 1.0, 0.0), np.arange(3), 1.0) is None


def test_an_exhausted_budget_leaves_a_valid_bound(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 3))
    est = RBFCoreset(2.0, bandwidth=1.0, random_state=0).fit(X)
    core = est.sample(60)
    found, bounds = audit(X, core).worst_error, []
    for values in (0, 1e4, 1e5, 4e7):
        monkeypatch.setattr(branching, "_MOST_VALUES", values)
        bounds.append(core.certify(X).eps)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 1.3 * bounds[-1] > bounds[-1] >= found


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from([0.1, 0.5, 2.0]))
def test_a_box_is_bounded_by_each_of_its_two_third_derivatives(seed, d, eta):
    """Errors at queries near a centre, inside the ball, are below the bound over that box; both forms alone as well."""
    rng = np.random.default_rng(seed)
    Z, w, nu = rng.normal(size=(20, d)), rng.random(20), rng.normal(size=20)
    w /= w.sum()
    radius, x = 1.5, rng.normal(size=d)
    x *= radius * min(1.0, rng.random() * 1.5) / np.linalg.norm(x)
    ratio = branching._Ratio(Z, (Z**2).sum(axis=1), w, nu, radius, 1e-12)
    y = rng.normal(size=(300, d))
    y = x + eta * y * rng.random((300, 1)) ** (1 / d) / np.linalg.norm(y, axis=1, keepdims=True)
    y = y[np.linalg.norm(y, axis=1) <= radius]
    values = np.exp(2 * y @ Z.T - (Z**2).sum(axis=1))
    worst = np.abs(values @ nu / (values @ w)).max(initial=0.0)
    # sums of absolute values bound the derivatives of N too
    sizes = np.abs(nu) * np.exp(-((Z**2).sum(axis=1)) + 2 * radius * np.linalg.norm(Z, axis=1))
    derivatives = np.log([sizes @ (2 * np.linalg.norm(Z, axis=1)) ** j for j in range(4)])
    for bounds in (np.full(4, np.inf), derivatives):
        found, upper, _ = ratio(x[None], eta, bounds)[:, 0]
        assert max(worst, found) <= upper
