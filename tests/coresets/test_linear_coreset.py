"""Coresets of linear models: unbiased without calibration, close to the full fit with it, robust to awkward tables."""

import copy
import logging
import pickle

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from coresift import CoresiftError, InvalidInputError, LinearCoreset, certify_model, open_rows
from coresift.core.linear import Leverage, LossSums, newton
from coresift.coresets import linear_coreset, linear_draw
from coresift.coresets.fitting import Runner
from coresift.coresets.linear_draw import DrawPass, draw_two_steps
from coresift.coresets.linear_rows import linear_rows
from coresift.coresets.model_certificate import certify_linear
from coresift.coresets.options import CLASSIFIERS
from coresift.rows import rows as blocks
from coresift.rows.engines import open_engine

LOSSES = ["logistic", "multinomial", "squared", "squared_hinge", "poisson", "huber"]


def table(kind, n=6000, d=8, seed=0):
    """Columns of different units, one of them nearly collinear, one one-hot and rare; a response of each kind."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(4, size=(n, d)) * 10.0 ** np.arange(-2, d - 2) + 5.0
    X[:, 1] = (rng.random(n) < 0.02).astype(float)
    X[:, 2] = X[:, 3] * 0.1 + rng.normal(size=n)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=d) * 0.5 - 1.0
    if kind == "multinomial":
        return X, np.digitize(z + rng.logistic(size=n), [-2.0, 0.0])
    if kind in CLASSIFIERS:
        return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
    return X, rng.poisson(np.exp(np.clip(z, -5, 3))).astype(float) if kind == "poisson" else z + rng.normal(size=n)


def made(kind, **options):
    threshold = 1.0 if kind == "huber" else None
    return LinearCoreset("logistic" if kind == "multinomial" else kind, threshold=threshold, random_state=0, **options)


def full_problem(kind, X, y, sample_weight=None, alpha=1e-4, **options):
    rows = linear_rows(X, y, sample_weight, is_classifier=kind in (*CLASSIFIERS, "multinomial"))
    loss = rows.loss("logistic" if kind == "multinomial" else kind, 1.0)
    return rows, rows.problem(loss, alpha, **options)


def best(rows, problem):
    def sums_at(theta, order):
        return rows.run("loss", LossSums(problem, theta, order))[0]

    return newton(sums_at, np.zeros(problem.shape))


def minimum(rows, problem):
    return best(rows, problem).objective


def objective(rows, problem, model):
    return rows.run("loss", LossSums(problem, problem.from_data(*model), 0))[0].objective


def standard_errors(kind, draws, size=14, n=40):
    """By how many standard errors the mean weights are off, and the mean total."""
    X, y = table(kind, n=n, d=4, seed=3)
    w = np.random.default_rng(1).uniform(0.2, 3.0, n)
    w[7] = 0.0
    rows, problem = full_problem(kind, X, y, w, 0.3)
    leverage = Leverage(rows.least_squares(problem).hessian[0, :, 0])
    weights = np.zeros((draws, n))
    for seed in range(draws):
        drawn, totals, _ = draw_two_steps(rows, problem, leverage, size, seed)
        assert totals is not None
        assert len(drawn.indices) == size
        np.add.at(weights[seed], drawn.indices, drawn.weights)
    assert weights[:, 7].max() == 0.0
    weights, w = np.column_stack([weights, weights.sum(axis=1)]), np.append(w, w.sum())
    error = weights.std(axis=0) / np.sqrt(draws)
    return np.abs(weights.mean(axis=0) - w)[error > 0] / error[error > 0]


DRAWS = [("squared", 500), ("logistic", 250)]
MANY_DRAWS = [
    ("squared", 3000),
    ("logistic", 800),
    ("multinomial", 400),
]  # a fit a draw: as many as a quarter of a minute allows


@pytest.mark.parametrize(
    ("kind", "draws"), DRAWS + [pytest.param(*case, marks=pytest.mark.slow) for case in MANY_DRAWS]
)
def test_the_draw_is_unbiased(kind, draws):
    """41 means within 4.5 standard errors: fails by chance once in 3,500 times."""
    assert standard_errors(kind, draws).max() < 4.5


def test_the_statistic_sees_a_row_that_is_counted_in_both_steps(monkeypatch):
    plain = DrawPass.update

    def update(self, block):
        self.taken = self.taken[:0]
        plain(self, block)

    monkeypatch.setattr(DrawPass, "update", update)
    assert standard_errors("squared", 500).max() > 4.5


@pytest.mark.parametrize("kind", LOSSES)
def test_calibration_beats_uniform_fifty_times_from_fifty_rows_a_parameter_on(kind):
    X, y = table(kind)
    size = 50 * 9 * (3 if kind == "multinomial" else 1)
    rows, problem = full_problem(kind, X, y)
    least = minimum(rows, problem)
    est = made(kind).fit(X, y)
    gains = []
    for seed in range(3):
        core = est.sample(size, random_state=seed)
        assert est.objective_ == pytest.approx(objective(rows, problem, est.model_), rel=1e-10)
        assert core.adjustments == ("calibrated",)
        assert est.n_rounds_ > 0
        chosen = np.random.default_rng(seed).choice(len(X), size, replace=False)
        rival, _ = full_problem(kind, X[chosen], y[chosen])
        own = rival.problem(problem.loss, problem.alpha)
        theta = best(rival, own).theta
        gains.append((objective(rows, problem, own.to_data(theta)) - least) / (est.objective_ - least))
    assert np.exp(np.mean(np.log(gains))) > 50
    assert min(gains) > 1


def test_any_estimator_can_fit_the_subset():
    X, y = table("logistic")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    core = LinearCoreset(random_state=0).fit(X, y).sample(0.1)
    assert core.size == 600
    Xs, ys, ws = core.take(X, y)
    full, small = (
        LogisticRegression(C=1 / (1e-4 * v.sum()), tol=1e-10, max_iter=10_000).fit(A, b, v)
        for A, b, v in ((X, y, np.ones(len(X))), (Xs, ys, ws))
    )
    assert core.weights.sum() == pytest.approx(len(X), rel=1e-3)
    np.testing.assert_allclose(small.coef_, full.coef_, atol=0.02)


def test_a_round_that_does_not_lower_the_loss_is_dropped(monkeypatch):
    X, y = table("logistic")
    est = made("logistic").fit(X, y)
    plain = est.sample(300, calibrate=False, random_state=0)

    def useless(self, totals, *, ridge, bounds):
        return np.random.default_rng(0).uniform(*bounds, len(self.weights))

    monkeypatch.setattr(linear_draw.Calibration, "ratios", useless)
    core = est.sample(300, random_state=0)
    assert est.n_rounds_ == 0
    assert core.adjustments == ()
    np.testing.assert_array_equal(core.weights, plain.weights)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_never_rises_and_ratios_stay_within_bounds(seed, monkeypatch):
    X, y = table("poisson")
    est = made("poisson").fit(X, y)
    losses = []
    for rounds in range(1, 5):
        monkeypatch.setattr(linear_draw, "_MOST_ROUNDS", rounds)
        core = est.sample(200, random_state=seed)
        losses.append(est.objective_)
    assert losses == sorted(losses, reverse=True)
    ratios = core.weights / est.sample(200, calibrate=False, random_state=seed).weights
    assert 0.1 <= ratios.min() < 0.99
    assert 1.01 < ratios.max() <= 10.0


def test_a_category_absent_from_the_draw_does_not_spoil_calibration():
    """One-hot and standardised one-hot columns: the same excess within a factor of 2."""
    rng = np.random.default_rng(0)
    group = np.append(rng.integers(0, 6, 8000), 6)  # one row of the last category
    H = np.eye(7)[group]
    y = (rng.random(8001) < 0.2 + 0.1 * group).astype(int)
    excess = []
    for columns in (H, (H - H.mean(axis=0)) / H.std(axis=0)):
        rows, problem = full_problem("logistic", columns, y, alpha=1e-3)
        least = minimum(rows, problem)
        est = made("logistic", alpha=1e-3).fit(columns, y)
        est.sample(400, random_state=1)
        assert est.n_rounds_ > 0
        excess.append(est.objective_ / least - 1)
    assert max(excess) < 1e-5


@pytest.mark.parametrize("share", [0.002, 0.01])
def test_every_class_is_present_also_rare_ones(share):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    y = np.where(rng.random(10_000) < share, 2, rng.integers(0, 2, 10_000))
    y[17] = 3  # a single row
    est = LinearCoreset(random_state=0).fit(X, y)
    for seed in range(10):
        core = est.sample(200, calibrate=False, random_state=seed)
        assert set(y[core.indices]) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse", "frame", "fortran"])
def test_containers_give_the_same_coreset(kind):
    X, y = table("logistic")
    X = np.where(np.abs(X - 5) > 5, np.round(X, 2), 0.0).astype(np.float32).astype(float)
    expected = made("logistic", fit_intercept=False).fit(X, y)
    core = expected.sample(400, random_state=0)
    if kind == "frame":
        pd = pytest.importorskip("pandas")
        given = pd.DataFrame(X, columns=[f"c{i}" for i in range(8)])
    else:
        given = {"dense": X, "float32": X.astype("f4"), "sparse": sp.csr_matrix(X), "fortran": np.asfortranarray(X)}[
            kind
        ]
    est = made("logistic", fit_intercept=False).fit(given, y)
    found = est.sample(400, random_state=0)
    np.testing.assert_array_equal(found.indices, core.indices)
    np.testing.assert_allclose(found.weights, core.weights, rtol=1e-4)
    assert est.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_all_rows_are_kept_where_the_size_allows():
    X, y = table("logistic", n=300)
    w = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    est = made("logistic").fit(X, y, w)
    for size in (300, 1.0, int(np.count_nonzero(w))):
        core = est.sample(size)
        np.testing.assert_array_equal(core.indices, np.flatnonzero(w))
        np.testing.assert_array_equal(core.weights, w[w > 0])
        rows, problem = full_problem("logistic", X, y, w)
        assert est.objective_ == pytest.approx(minimum(rows, problem), rel=1e-9)
        assert core.adjustments == ()


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_size_below_the_number_of_columns_is_not_calibrated_and_says_so(size, caplog):
    X, y = table("logistic")
    with caplog.at_level(logging.WARNING, logger="coresift"):
        core = made("logistic").fit(X, y).sample(size)
    assert core.size == size
    assert core.adjustments == ()
    assert f"size = {size}" in caplog.text
    assert "9 columns" in caplog.text


AWKWARD = {
    "constant column": lambda X, y: (np.hstack([X, np.full((len(X), 1), 7.0)]), y),
    "equal columns": lambda X, y: (np.hstack([X, X[:, :2]]), y),
    "separable": lambda X, y: (np.hstack([X, y[:, None] * 2.0]), y),
    "huge units": lambda X, y: (X * 1e100, y),
    "tiny units": lambda X, y: (X * 1e-100, y),
    "far from zero": lambda X, y: (X[:, 3:5] * 1e-3 + 1e6, y),
    "one extreme row": lambda X, y: (np.vstack([X[:-1], X[-1:] * 1e6]), y),
    "duplicates": lambda X, y: (np.repeat(X[:50], 120, axis=0), y),
    "one column": lambda X, y: (X[:, :1], y),
}


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@pytest.mark.parametrize("kind", ["logistic", "squared", "poisson"])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_tables(name, kind, alpha):
    X, y = table(kind)
    X, y = AWKWARD[name](X, y)
    est = made(kind, alpha=alpha).fit(X, y)
    core = est.sample(200, random_state=0)
    assert core.size == 200
    assert np.isfinite(core.weights).all()
    assert np.isfinite(est.objective_)
    assert all(np.isfinite(part).all() for part in est.model_)
    calibrated = est.objective_
    est.sample(200, calibrate=False, random_state=0)
    rows, problem = full_problem(kind, X, y, alpha=alpha)
    assert calibrated <= objective(rows, problem, est.model_) * (1 + 1e-9)


def test_fewer_rows_than_columns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 50)), np.arange(30) % 2
    est = made("logistic").fit(X, y)
    assert est.sample(20).size == 20
    assert est.sample(30).size == 30


def refused(match, X, y, kind="logistic", sample_weight=None, **options):
    est = made(kind).set_params(**options)
    before = dict(vars(est))
    with pytest.raises(CoresiftError, match=match):
        est.fit(X, y, sample_weight)
    assert vars(est) == before


def test_bad_input_is_refused_by_name():
    X, y = table("logistic", n=50)
    bad = X.copy()
    bad[3, 1] = np.nan
    refused("NaN in column 1.*row 3|row 3.*column 1", bad, y)
    refused("y contains NaN.*row 2", X, np.where(np.arange(50) == 2, np.nan, 0.0))
    refused("label is always 1", X, np.ones(50, dtype=int))
    refused("continuous", X, X[:, 0])
    refused("squared_hinge.* 3", X, np.arange(50) % 3, "squared_hinge")
    refused("smallest target is -2", X, np.arange(50.0) - 2, "poisson")
    refused("NaN|finite", X, np.where(np.arange(50) == 2, np.nan, 0.0), "squared")
    refused("y has shape", X, y[:-1])
    refused("requires y", X, None)
    refused("sample_weight.*negative", X, y, sample_weight=-np.ones(50))
    refused("zero", X, y, sample_weight=np.zeros(50))
    refused("alpha = -1", X, y, alpha=-1)
    refused("threshold = None", X, X[:, 0], "huber", threshold=None)
    refused("loss = 'hinge'", X, y, loss="hinge")
    refused("10,001.*10,000", sp.csr_matrix((50, 10_000)), y)
    with pytest.raises(InvalidInputError, match=r"size = 51.*50"):
        made("logistic").fit(X, y).sample(51)
    with pytest.raises(NotFittedError):
        made("logistic").sample(5)


def test_too_many_classes_are_refused():
    with pytest.raises(InvalidInputError, match=r"1,200 different values.*1,000"):
        LinearCoreset().fit(np.random.default_rng(0).normal(size=(2400, 2)), np.arange(2400) % 1200)


def test_seeds_repeat_draws_and_none_draws_afresh():
    X, y = table("logistic")
    est = made("logistic").fit(X, y)
    first = est.sample(100)
    assert est.sample(100) != first
    assert est.sample(100, random_state=first.seed) == first
    assert made("logistic").fit(X, y).sample(100) == first
    assert first.method == "two-step"
    assert first.total_weight == len(X)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda est: pickle.loads(pickle.dumps(est))])
def test_copies_carry_the_model_but_not_the_data(copier):
    X, y = table("logistic", n=500)
    est = made("logistic").fit(X, y)
    est.sample(100)
    twin = copier(est)
    np.testing.assert_array_equal(twin.model_[0], est.model_[0])
    with pytest.raises(InvalidInputError, match="fit again"):
        twin.sample(100)


def test_a_new_fit_forgets_the_old_model():
    X, y = table("logistic", n=500)
    est = made("logistic").fit(X, y)
    est.sample(100)
    est.set_params(loss="squared").fit(X, X[:, 0])
    assert not hasattr(est, "model_")
    assert not hasattr(est, "classes_")


def written(tmp_path, X, y, group):
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({**columns, "y": y}), path, row_group_size=group)
    return path, list(columns)


@pytest.mark.parametrize("kind", ["multinomial", "squared"])
def test_memory_and_files_give_the_same_coreset(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(blocks, "_LARGEST_BLOCK", 64)
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)
    X, y = table(kind, n=1500, d=5)
    path, names = written(tmp_path, X, y, 77)
    response = {"label": "y"} if kind == "multinomial" else {"target": "y"}
    expected, stored = made(kind).fit(X, y), made(kind).fit(open_rows(path, columns=names, **response))
    assert stored.sample(300) == expected.sample(300)
    np.testing.assert_array_equal(stored.model_[0], expected.model_[0])
    assert stored.objective_ == expected.objective_
    if kind == "multinomial":
        assert stored.classes_.tolist() == expected.classes_.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "ray"])
def test_workers_give_the_coreset_and_the_certificate_of_memory(tmp_path, monkeypatch, name):
    if name == "ray":
        pytest.importorskip("ray")
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)
    X, _ = table("logistic", n=20_000, d=4)
    X = np.hstack([X] + [np.random.default_rng(1).normal(size=(20_000, 60)) for _ in range(4)])  # wide: many groups
    y = (X[:, -1] > 0.3).astype(int)
    path, names = written(tmp_path, X, y, 3001)
    here = made("logistic", alpha=0.1).fit(X, y)
    expected = here.sample(1500)
    proved = certify_model(here.model_, X, y, loss="logistic", alpha=0.1)
    rows = open_rows(path, columns=names, label="y")
    with open_engine(name, rows, 2) as engine:
        runner = Runner(rows, engine)
        est = made("logistic", alpha=0.1)
        est.fit_rows(runner=runner)
        assert est.sample(1500) == expected
        surveyed = linear_rows(rows, None, is_classifier=True, runner=runner)
        problem = surveyed.problem(surveyed.loss("logistic"), 0.1)
        found = certify_linear(surveyed, problem, problem.from_data(*est.model_))
    assert found.excess == proved.excess


def test_a_coreset_of_a_linear_model_has_no_gaussian_certificate() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    core = LinearCoreset(random_state=0).fit(X, X[:, 0] + rng.normal(size=300) > 0).sample(60)
    with pytest.raises(InvalidInputError, match="certify_model"):
        core.certify(X)


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_small_samples_are_never_above_an_even_draw_of_the_same_size(loss, monkeypatch):
    X, y = table(loss)
    est = made(loss).fit(X, y)
    n_even = 0
    for seed in range(12):
        size = (2, 4, 8, 30)[seed % 4]
        core = est.sample(size, random_state=seed)
        best = est.objective_
        monkeypatch.setattr(linear_coreset, "_FEW_ROWS", 0)
        est.sample(size, random_state=seed)
        plain = est.objective_
        monkeypatch.undo()
        if core.method != "two-step":
            n_even += 1
            assert core.weights.sum() == pytest.approx(len(X))
        assert plain is None or best <= plain * (1 + 1e-12)
    assert n_even > 0  # both outcomes occur


def test_the_comparison_spares_unbiased_and_large_draws(monkeypatch):
    def compare(*_, **__):
        raise AssertionError("compared")

    X, y = table("logistic")
    est = made("logistic").fit(X, y)
    monkeypatch.setattr(linear_coreset, "LossSums", compare)
    assert est.sample(4, calibrate=False, random_state=0).method == "two-step"
    assert est.sample(500, random_state=0).method == "two-step"
    with pytest.raises(AssertionError, match="compared"):
        est.sample(4, random_state=0)


def test_a_looser_tolerance_takes_fewer_rounds():
    X, y = table("logistic")
    est = made("logistic").fit(X, y)
    losses = []
    for tolerance in (1.0, 1e-12):
        est.sample(200, random_state=0, tolerance=tolerance)
        losses.append((est.objective_, est.n_rounds_))
    assert losses[1][0] < losses[0][0]
    assert losses[1][1] > losses[0][1]
