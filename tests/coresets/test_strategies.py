"""Strategies for tables: what each promises, the same from files and arrays, and ``auto`` that follows the evidence."""

import itertools
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from coresift import InvalidInputError, LinearCoreset, open_rows, select
from coresift.coresets.covering import cover_centers, cover_rows, nearest_centers
from coresift.coresets.judging import Examples, estimates
from coresift.coresets.options import SelectOptions, plan

N = 3000
STRATEGIES = ["uniform", "stratified", "cover", "fixed", "linear"]


def table(seed=0, n=N):
    """Three classes, of which one has one per cent: a ball that a linear model cannot tell."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    far = np.linalg.norm(X - [1.2, 1.2, 0.0], axis=1)
    rare = far < np.quantile(far, 0.01)
    return X, np.where(rare, "rare", np.where(X[:, 0] > 0.8, "right", "left"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    X, y = table()
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, t=X[:, 0] ** 2, w=np.r_[0.0, np.ones(N - 1)])
    frame.to_parquet(path, row_group_size=700)
    return path


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_distinct_as_many_as_asked_and_stand_for_all(strategy):
    X, y = table()
    found = select(X, "5%", labels=y, strategy=strategy, random_state=3)
    core = found.coreset
    assert core.size == 150
    assert (core.n_samples, core.seed, found.report.strategy) == (N, 3, strategy)
    assert core.weights.sum() == pytest.approx(N, rel=0.05 if strategy == "linear" else 1e-9)
    assert found.labels == y[core.indices].tolist()
    assert sum(found.report.class_sizes.values()) == 150
    assert select(X, "5%", labels=y, strategy=strategy, random_state=3).coreset == core
    assert select(X, "5%", labels=y, strategy=strategy, random_state=4).coreset != core
    assert f"strategy {strategy}" in found.lines()[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_files_and_frames_give_the_same_rows(file, strategy):
    given = {"columns": ["a", "b", "c"], "strategy": strategy, "random_state": 1}
    stored = select(file, 60, label="y", weight="w", **given).coreset
    held = select(pd.read_parquet(file), 60, label="y", weight="w", **given).coreset
    assert stored.indices.tolist() == held.indices.tolist()
    np.testing.assert_allclose(stored.weights, held.weights, rtol=1e-6)
    assert 0 not in stored.indices  # it has no weight


@pytest.mark.parametrize("strategy", ["cover", "fixed"])
def test_units_do_not_matter(strategy):
    X, y = table(n=600)
    options = {"labels": y, "strategy": strategy, "preparation": None, "random_state": 1}
    found = [select(X * unit, 40, **options).coreset.indices for unit in (1.0, 2.0**70, 2.0**-70)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_shares_follow_the_power_of_the_class_sizes():
    y = np.repeat([0, 1, 2], [2500, 400, 100])
    X = np.random.default_rng(0).normal(size=(N, 2))
    sizes = {
        power: list(select(X, 75, labels=y, strategy="stratified", power=power).report.class_sizes.values())
        for power in (1.0, 0.5)
    }
    assert sizes == {1.0: [62, 10, 3], 0.5: [47, 19, 9]}
    core = select(X, 75, labels=y, strategy="stratified", power=0.5).coreset
    for label in range(3):
        assert core.weights[y[core.indices] == label].sum() == pytest.approx((y == label).sum())


def test_auto_takes_what_held_out_rows_favour_and_says_why():
    X, y = table()
    plain = select(X, "5%", labels=(X[:, 0] > 0.8).astype(int), model="boosting")
    assert (plain.report.strategy, "no class is rare" in plain.report.reason) == ("stratified", True)
    rare = select(X, "5%", labels=y, strategy="auto", model="kernel", random_state=0)
    assert rare.report.strategy in ("fixed", "cover")
    assert "average precision of the rare classes" in rare.lines()[0]
    assert rare.coreset == select(X, "5%", labels=y, strategy=rare.report.strategy, random_state=0).coreset
    noise = np.random.default_rng(1).integers(2, size=N)
    lost = select(X, "5%", labels=noise, model="neighbours")
    assert lost.report.strategy == "stratified"
    assert "cover was not better" in lost.report.reason
    few = select(X[:500], "5%", labels=y[:500], model="kernel")
    assert "too few rows" in few.report.reason


def test_auto_falls_back_on_more_rows_of_rare_classes():
    X, _ = table()
    y = (np.arange(800) % 100 == 0).astype(int)  # eight rows
    found = select(X[:800], "5%", labels=y, model="boosting")
    assert (found.report.strategy, found.report.class_sizes) == ("stratified", {"0": 36, "1": 4})
    assert "to the power of 0.5, so that rare ones get more" in found.report.reason
    assert found.coreset.weights[y[found.coreset.indices] == 1].sum() == pytest.approx(8)
    asked = select(X[:800], "5%", labels=y, model="boosting", power=1.0)
    assert asked.report.class_sizes == select(X[:800], "5%", labels=y, strategy="stratified").report.class_sizes


def test_auto_in_a_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, size=(N, 6))
    found = select(X, "2%", targets=X @ np.arange(6.0) + rng.normal(size=N), model="linear")
    assert found.report.strategy == "linear"
    assert select(X, "2%", targets=X[:, 0]).report.strategy == "uniform"


def test_the_loss_of_a_linear_model_means_a_draw_for_it():
    X, y = table()
    found = select(X, 200, labels=y, model="logistic", alpha=1e-2, random_state=3)
    assert (found.report.strategy, found.report.reason) == ("linear", "logistic loss")
    own = LinearCoreset("logistic", alpha=1e-2).fit(X, y).sample(200, random_state=3)
    np.testing.assert_array_equal(found.coreset.indices, own.indices)
    np.testing.assert_allclose(found.coreset.weights, own.weights, rtol=1e-9)
    assert sum(found.report.class_sizes.values()) == len(found.labels) == 200
    plain = select(X, 200, labels=y, strategy="linear", calibrate=False)
    assert (plain.coreset.method, plain.coreset.adjustments) == ("two-step", ())
    with pytest.raises(InvalidInputError, match=r"alpha = 0.1 goes with the loss of a linear model"):
        select(X, 200, labels=y, model="boosting", alpha=0.1)
    with pytest.raises(InvalidInputError, match="needs one"):
        select(X, 200, targets=X[:, 0], model="huber")


def test_options_of_sensitivities_imply_rbf_and_go_with_nothing_else():
    X, y = table()
    assert select(X, 20, labels=y, bound="closed-form").report.strategy == "rbf"
    assert select(X, 20, labels=y, per_class=True).coreset.method == "systematic"
    assert select(X, 20).report.strategy == select(X, 20, strategy="auto").report.strategy == "rbf"
    assert select(X, 20, model="kernel").report.strategy == "cover"  # nothing to predict: the rows alone
    with pytest.raises(InvalidInputError, match=r"bound = 'cells' goes with strategy='rbf'"):
        select(X, 20, labels=y, strategy="cover", bound="cells")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "best"}, "strategy = 'best'"),
        ({"model": "tree"}, "model = 'tree'"),
        ({"strategy": "cover", "power": 2.0}, "power = 2"),
        ({"strategy": "stratified"}, "needs labels"),
        ({"strategy": "fixed"}, "needs a label"),
        ({"strategy": "cover", "max_memory": "1MB"}, "max_memory"),
    ],
)
def test_what_cannot_be_done_is_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        select(np.random.default_rng(0).normal(size=(200, 2)), 20, **given)


@pytest.mark.parametrize("seed", range(3))
def test_centres_from_coarse_to_fine_are_nearly_as_good_as_k_means(seed):
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6000, 4)) * np.repeat([0.1, 1.0, 5.0], 2000)[:, None]
    X -= X.mean(axis=0)
    mine = nearest_centers(X, cover_centers(X.astype(np.float32), 300, rng))[1].sum()
    best = KMeans(300, n_init=1, max_iter=20, random_state=0).fit(X).inertia_
    random = nearest_centers(X, X[rng.choice(6000, 300, replace=False)])[1].sum()
    assert mine < 1.1 * best
    assert random > 1.3 * best  # power


def test_a_rare_cluster_is_covered_among_many_cells():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    X[:8] += 50.0
    rows, weights = cover_rows(X - X.mean(axis=0), 400, rng)
    assert len(set(rows)) == 400
    assert weights[rows < 8].sum() == pytest.approx(8)
    assert weights.sum() == pytest.approx(5000)


def test_an_estimate_tells_a_better_subset_from_a_worse_one():
    X, y = table(n=4000)
    is_rare = (y == "rare").astype(int)

    def informed(pool, size, rng):
        rare = pool[is_rare[pool] == 1]
        others = rng.choice(pool[is_rare[pool] == 0], size - len(rare), replace=False)
        return np.concatenate((rare, others)), np.ones(size)

    def blind(pool, size, rng):
        return pool[np.argsort(X[pool, 0])[:size]], np.ones(size)

    rng = np.random.default_rng(0)
    found = estimates({"informed": informed, "blind": blind}, Examples(X, is_rare, 2), 100, "neighbours", rng)
    assert found["informed"].is_better
    assert not found["blind"].is_better
    assert found["blind"].mine < found["blind"].stratified
    assert estimates({"blind": blind}, Examples(X[:900], is_rare[:900], 2), 50, "linear", rng) == {}


@pytest.mark.parametrize("strategy", ["auto", "stratified", "fixed"])
def test_numbers_are_not_classes(strategy, tmp_path):
    X, _ = table(n=1500)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=X[:, 0], z=np.arange(1500))
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    for data, label in ((frame, "y"), (frame, "z"), (path, "y"), (path, "z")):  # a label of a CSV file may be text
        with pytest.raises(InvalidInputError, match="name it as the target"):
            select(data, "5%", label=label, model="boosting", strategy=strategy)


def test_a_class_without_a_name_is_told():
    X, y = table()
    lines = select(X, 60, labels=np.where(y == "left", "", y), strategy="stratified").lines()
    assert lines[1].startswith("Classes: (empty) 4")


def test_the_plan_counts_the_comparison():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30_000, 10)), rng.integers(0, 2, 30_000)

    def planned(model, size=3000, **given):
        return plan(open_rows(X, **(given or {"labels": y})), SelectOptions(budget=size, model=model, strategy="auto"))

    assert "comparison" not in planned("boosting").passes  # unless a class is rare, which is not known yet
    assert re.search(r"If a class is rare, more is compared, which takes about \d s more\.", planned("boosting").aim)
    assert "rare" not in planned("boosting", targets=X[:, 0]).aim
    compared = planned("kernel")
    assert compared.passes[-1] == "comparison"
    assert compared.seconds > 5  # eight fits of 3000 rows are some 10 s
    assert "comparison" not in planned("kernel", 20_000).passes  # too few are left to hold some out
    assert "comparison" not in planned("kernel", targets=X[:, 0]).passes  # nothing was found to help
    found = select(X[:2000], 50, targets=X[:2000, 0], model="kernel", strategy="auto")
    assert (found.report.strategy, "nothing else was found to help kernel" in found.report.reason) == ("uniform", True)


def test_the_seconds_of_passes_of_one_name_are_summed(monkeypatch):
    X, y = table()
    clock = itertools.count()  # so that each pass takes one second
    monkeypatch.setattr("coresift.coresets.fitting.time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    names = Counter()
    found = select(X, 200, labels=y, strategy="linear", on_pass=lambda name, _: names.update([name]))
    assert names["calibration"] > 1
    assert found.report.seconds == names
