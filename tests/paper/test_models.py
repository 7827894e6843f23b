"""The benchmark of fitted models: its draws, its reference, its page, and the committed results."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from coresift.core.linear import LossSums
from paper.__main__ import main
from paper.benchmarks.models import OUT, excess, report, sections, studies, tables
from paper.benchmarks.models.excess import METHODS, reference, stratified
from paper.benchmarks.models.tables import ALPHA, Task, bundled

NOWHERE = Path("nowhere")
CANCER = Task("breast cancer", "logistic", (200,))
DIABETES = Task("diabetes", "squared", (300,))


def test_strata_keep_their_weight() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [700, 290, 10])
    rows, weights = stratified(y, 100, rng)
    assert len(set(rows)) == len(rows) == 100
    np.testing.assert_allclose(np.bincount(y[rows], weights), [700, 290, 10])
    rows, weights = stratified(rng.normal(size=1000), 100, rng)
    np.testing.assert_allclose(weights, 10.0)


def test_the_reference_is_the_minimum_that_scikit_learn_finds() -> None:
    full = reference(CANCER, NOWHERE)
    X, y = bundled("breast_cancer")
    model = LogisticRegression(C=1 / (ALPHA * len(y)), tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(X, y)
    theirs = full.problem.from_data(model.coef_, model.intercept_)
    assert 0 <= full.excess(theirs) + 1e-14 < 1e-10
    full = reference(DIABETES, NOWHERE)
    X, y = bundled("diabetes", is_target=True)
    ridge = Ridge(ALPHA * len(y)).fit(X, y)  # sum of squares and alpha n: twice n times F
    assert abs(full.excess(full.problem.from_data(ridge.coef_[None], np.array([ridge.intercept_])))) < 1e-12


def test_the_minimum_is_flat() -> None:
    full = reference(CANCER, NOWHERE)
    theta = full.fitted(np.arange(len(full.y)), np.ones(len(full.y)))
    sums = LossSums(full.problem, theta, order=1)
    sums.add(full.X, full.y, np.ones(len(full.y)))
    np.testing.assert_allclose(sums.gradient / sums.weight + theta * full.problem.penalties, 0, atol=1e-8)


@pytest.mark.parametrize(("make", "share"), [(tables.imbalanced, 0.009), (tables.mixed, None)])
def test_generated_tables(make, share) -> None:
    X, y = make(n=5000)
    again = make(n=5000)
    np.testing.assert_array_equal(X, again[0])
    assert np.isfinite(X).all()
    assert set(y) == {0, 1}
    if share:
        assert y.mean() == pytest.approx(share, rel=0.05)


def test_every_task_has_a_table() -> None:
    assert {task.table for task in tables.TASKS} == set(tables.LOADERS)
    assert len({(task.table, task.loss) for task in tables.TASKS}) == len(tables.TASKS)


def test_runs_are_resumed_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excess, "TASKS", (DIABETES,))
    monkeypatch.setattr(excess, "SEEDS", range(2))
    command = ["benchmark", "models", "--out", str(tmp_path)]
    assert main([*command, "--only", "excess", "nowhere"]) == 0
    stored = (tmp_path / "excess.jsonl").read_text()
    records = [json.loads(line) for line in stored.splitlines()]
    assert [record["seed"] for record in records] == [0, 1]
    assert main([*command, "--only", "excess", "nowhere"]) == 0
    assert (tmp_path / "excess.jsonl").read_text() == stored
    for record in records:
        assert record["calibrated"] < record["uniform"]
        assert record["certificate"] >= record["model"] > -1e-13
        # fits end within 1e-12 of their minimum, which moves an excess e by at most 2 sqrt(1e-12 e), for either fit
        allowed = 4e-6 * np.sqrt(record["calibrated"]) + 1e-12
        assert record["model"] == pytest.approx(record["calibrated"], abs=allowed)
    assert main(command) == 0
    page = (tmp_path / "README.md").read_text()
    assert "diabetes, squared" in page
    assert (tmp_path / "excess.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", ["single", "grid", pytest.param("parquet", marks=pytest.mark.slow)])
def test_studies_of_time_compare_like_with_like(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ("GRID_SHAPE", "SINGLE_SHAPE", "PARQUET_SHAPE"):
        monkeypatch.setattr(studies, shape, (20_000, 4))
    monkeypatch.setattr(studies, "PENALTIES", np.logspace(-6, -2, 3))
    record = {"study": name, "seed": 0} | studies.run({"study": name, "seed": 0}, NOWHERE)
    if name == "single":
        assert 0 < record["certified"] < 1e-3
    elif name == "grid":
        ways = record["ways"]
        assert ways["all rows"]["regret"] == 0
        assert ways["a coreset of each fold"]["models"] < 0.1 * ways["a uniform sample of each fold"]["models"]
        assert ways["one coreset, cut into folds"]["regret"] < 0.1
    else:
        assert record["ours"]["fits"][-1]["relative"] < record["sgd"]["relative"]
    written = [rows for _, _, table in sections.SECTIONS if (rows := table([record]))]
    assert len(written) == 1


def line_of(**changed: object) -> report.Line:
    record = {"table": "covtype", "loss": "logistic", "size": 5000, "seed": 0, "n": 90_000, "p": 54, "classes": 1}
    record |= dict.fromkeys(METHODS, 1e-2) | {"calibrated": 1e-4, "model": 1e-4, "certificate": 1.1e-4, "rounds": 2}
    return report.Line([record | changed])


def test_misses_are_told() -> None:
    assert report.misses([line_of()]) == []
    for changed, words in (
        ({"calibrated": 4e-4}, "above 0.0003"),
        ({"calibrated": 2.5e-4}, "40 times below"),
        ({"calibrated": 2e-2, "p": 200}, "above uniform"),
        ({"certificate": 0.9e-4}, "below the true excess"),
        ({"certificate": 2.5e-4}, "2.5 times the true"),
    ):
        assert any(words in each for each in report.misses([line_of(**changed)])), words
    assert report.misses([line_of(p=200, calibrated=2e-4, table="other")]) == []  # few rows: no aim
    assert report.misses([line_of(certificate=5e-2, model=2e-2, calibrated=1e-4)]) == []  # not close: no aim


@pytest.mark.skipif(not (OUT / "excess.jsonl").exists(), reason="source archives carry no results")
class TestCommitted:
    def lines(self) -> list[report.Line]:
        return report.lines_of([json.loads(line) for line in (OUT / "excess.jsonl").read_text().splitlines()])

    def test_everything_was_measured(self) -> None:
        wanted = {(run["table"], run["loss"], run["size"]) for run in excess.runs()}
        assert {(line.table, line.loss, line.size) for line in self.lines()} == wanted
        assert all(sorted(line.column("seed")) == list(excess.SEEDS) for line in self.lines())

    def test_what_was_required_holds(self) -> None:
        assert report.misses(self.lines()) == []

    def test_the_page_is_that_of_the_records(self, tmp_path: Path) -> None:
        logs = [
            [json.loads(line) for line in (OUT / f"{name}.jsonl").read_text().splitlines()]
            for name in ("excess", "studies")
        ]
        report.write(*logs, tmp_path)
        assert (tmp_path / "README.md").read_text() == (OUT / "README.md").read_text()

    def test_k_means_costs_what_was_required(self) -> None:
        records = [json.loads(line) for line in (OUT / "studies.jsonl").read_text().splitlines()]
        costs = [record["cost"]["50"] for record in records if record["study"] == "clusters"]
        assert len(costs) == 5
        assert np.mean([each["coreset"] for each in costs]) <= 1.02
        assert len(sections.SECTIONS) == len(studies.STUDIES)
