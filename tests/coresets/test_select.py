"""What ``select`` promises: budgets, classes, errors, files that are whole or absent, and runs that can be repeated."""

import errno
import itertools
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyarrow import parquet

import coresift
from coresift import Coreset, InvalidInputError, RBFCoreset, open_rows
from coresift._validation import parse_budget, parse_bytes
from coresift.core.budgets import class_budgets
from coresift.coresets import SelectOptions, load_run, run
from coresift.coresets.options import plan
from coresift.rows.arrays import ArrayRows


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    n = 12_000
    y = np.array(["a", "b", "c"])[np.searchsorted([0.9, 0.999], rng.random(n))]
    X = rng.standard_normal((n, 3)) + 4.0 * (y == "b")[:, None]
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    columns = {f"x{i}": X[:, i] for i in range(3)}
    parquet.write_table(
        pa.table({**columns, "y": y, "row": np.arange(n), "weight": np.ones(n)}), path, row_group_size=2000
    )
    return path


FEATURES = ["x0", "x1", "x2"]
select = partial(coresift.select, preparation=None)  # numbers as they are, to be compared with arrays


def features(file: Path) -> np.ndarray:
    return np.column_stack([parquet.read_table(file)[name].to_numpy() for name in FEATURES])


def labels(file: Path) -> np.ndarray:
    return np.array(parquet.read_table(file)["y"].to_pylist())


@pytest.mark.parametrize(
    ("budget", "rows"),
    [("5%", 50), ("0.05", 50), (0.05, 50), (17, 17), ("17", 17), ("1_000", 1000), ("1,000", 1000), ("7%", 70)],
)
def test_budgets(budget: Any, rows: int) -> None:
    assert parse_budget(budget, 1000) == rows


@pytest.mark.parametrize(
    "budget",
    ["2,5%", "0,05", "1,5", "1,00", ",100", "0%", "101%", "x", "", "0", "-3", "1001", 0, True, "5 percent", "nan"],
)
def test_bad_budgets(budget: Any) -> None:
    with pytest.raises((InvalidInputError, TypeError), match="budget"):
        parse_budget(budget, 1000)


def test_sizes_of_memory() -> None:
    assert [parse_bytes(t, "m") for t in ("2GB", "500M", "1e", 1000)[:2]] == [2e9, 5e8]
    for wrong in ("x", "-1GB", "0", "1.2.3"):
        with pytest.raises(InvalidInputError, match="max_memory"):
            parse_bytes(wrong, "max_memory")


@given(
    counts=st.lists(st.integers(1, 1000), min_size=1, max_size=12), share=st.floats(0.01, 1), least=st.integers(0, 20)
)
def test_class_budgets_sum_to_the_budget_and_keep_the_least(counts: list[int], share: float, least: int) -> None:
    rows = np.array(counts)
    budget = max(1, int(share * rows.sum()))
    floors = np.minimum(rows, least)
    if floors.sum() > budget:
        with pytest.raises(InvalidInputError, match="min_per_class"):
            class_budgets(rows, budget, min_per_class=least)
        return
    sizes = class_budgets(rows, budget, min_per_class=least)
    assert sizes.sum() == budget
    assert (sizes >= floors).all()
    assert (sizes <= rows).all()
    free = sizes > floors
    quota = (budget - sizes[~free].sum()) * rows / max(rows[free].sum(), 1)
    assert np.abs(sizes - quota)[free].max(initial=0) < len(rows) + 1  # in proportion, up to rounding


@pytest.mark.parametrize("method", ["systematic", "keys"])
@pytest.mark.parametrize("bound", ["closed-form", "cells"])
def test_classes_keep_their_sums(file: Path, bound: str, method: str) -> None:
    classes = {"label": "y", "per_class": True, "min_per_class": 10}
    chosen = select(file, 4000, columns=FEATURES, **classes, bound=bound, bandwidth=3.0, random_state=2, method=method)
    assert chosen.coreset.method == method
    assert chosen.labels is not None
    y, core, X = labels(file), chosen.coreset, features(file)
    np.testing.assert_array_equal(y[core.indices], chosen.labels)
    sizes = {name: chosen.labels.count(name) for name in "abc"}
    assert sizes == chosen.report.class_sizes
    assert sum(sizes.values()) == 4000
    assert sizes["c"] == 10  # its share would be four or so
    ball = core.ball
    assert ball is not None
    for query in (ball.center, ball.center + 0.5 * ball.scale * np.array([1.0, 0, 0])):
        loss = np.exp(-((X - query) ** 2).sum(axis=1) / ball.scale**2)
        for name in "ab":
            whole = loss[y == name].sum()
            mine = y[core.indices] == name
            part = core.weights[mine] @ loss[core.indices[mine]]
            # five times the standard deviation, at most sqrt(t / m); the totals of all classes bound that of one
            tol = 5 * np.sqrt(chosen.report.total_sensitivity / sizes[name])
            assert abs(part / whole - 1) < tol
            if name == "b":
                assert abs(part / loss.sum() - 1) > tol  # power: it is the class's sum, not that of all


def test_classes_are_normalised_each_to_its_own_weight(file: Path) -> None:
    y = labels(file)
    for method in ("systematic", "keys"):
        core = select(file, 300, columns=FEATURES, label="y", per_class=True, normalize=True, method=method).coreset
        for name in "ab":
            assert core.weights[y[core.indices] == name].sum() == pytest.approx(np.sum(y == name))


@pytest.mark.parametrize("per_class", [False, True])
def test_the_default_method_depends_on_the_number_of_rows_alone(file: Path, per_class: bool) -> None:
    X, y = features(file), labels(file)
    for most, expected in ((12_000, "systematic"), (11_999, "keys")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coresift.core.draw._MOST_KEPT", most)
            stored = select(
                file, 100, columns=FEATURES, label="y", per_class=per_class, bound="closed-form", random_state=3
            )
            held = select(X, 100, labels=y, per_class=per_class, bound="closed-form", random_state=3)
            assert stored.coreset == held.coreset
            assert stored.labels == held.labels
            assert stored.coreset.method == stored.run["method"] == expected
            estimator = RBFCoreset(bound="closed-form", random_state=3).fit(X)
            assert estimator.sample(100, random_state=3).method == expected
            named = select(X, 100, labels=y, per_class=per_class, bound="closed-form", random_state=3, method=expected)
            assert named.coreset == held.coreset


def test_a_class_without_weight_gets_nothing() -> None:
    X, y = np.random.default_rng(0).standard_normal((6000, 2)), np.arange(6000) % 3
    source = ArrayRows(X, (y > 0).astype(float), y)
    for method in ("systematic", "keys"):
        chosen = select(source, 90, bound="closed-form", per_class=True, method=method)
        assert chosen.report.class_sizes == {"0": 0, "1": 45, "2": 45}
        assert chosen.coreset.size == 90


def test_labels_without_classes(file: Path) -> None:
    plain = select(file, 200, columns=FEATURES, bound="closed-form")
    named = select(file, 200, columns=FEATURES, label="y", bound="closed-form")
    assert plain.labels is None
    assert named.coreset == plain.coreset
    np.testing.assert_array_equal(named.labels, labels(file)[named.coreset.indices])
    drawn = select(file, 200, columns=FEATURES, label="y", bound="closed-form", method="systematic")
    np.testing.assert_array_equal(drawn.labels, labels(file)[drawn.coreset.indices])


def test_the_error_found_is_the_error(file: Path) -> None:
    X = features(file)
    chosen = select(X, 300, bound="cells", bandwidth=2.0, n_queries=8, random_state=4)
    from coresift.coresets.selecting import QuerySums

    caught: list[Any] = []

    class Caught(QuerySums):
        def errors(self) -> np.ndarray:
            caught.append(self)
            return super().errors()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coresift.coresets.selecting.QuerySums", Caught)
        again = select(X, 300, bound="cells", bandwidth=2.0, n_queries=8, random_state=4)
    (sums,) = caught
    ball = again.coreset.ball
    assert ball is not None
    queries = sums.queries * ball.scale + ball.center
    assert (np.linalg.norm(sums.queries, axis=1) <= ball.radius * (1 + 1e-12)).all()
    kernel = np.exp(-((X[:, None] - queries) ** 2).sum(axis=2) / ball.scale**2)
    errors = np.abs(again.coreset.weights @ kernel[again.coreset.indices] / kernel.sum(axis=0) - 1)
    np.testing.assert_allclose(sums.errors(), errors, rtol=1e-8)
    assert chosen.report.worst_error_found == pytest.approx(errors.max())
    assert chosen.report.mean_error_found == pytest.approx(errors.mean())
    assert chosen.report.seconds["check"] > 0


def test_the_error_of_the_laplacian_too(file: Path) -> None:
    X = features(file)
    chosen = select(X, 500, loss="laplacian", bound="cells", bandwidth=2.0)
    assert chosen.report.worst_error_found is not None
    assert 0 < chosen.report.worst_error_found < 0.3


def test_small_data_and_the_exact_bound_are_the_estimators(file: Path) -> None:
    X = features(file)[:900]
    chosen = select(X, 50, random_state=5)
    expected = RBFCoreset(random_state=5).fit(X).sample(50, random_state=5)
    assert chosen.coreset.bound == "exact"
    assert chosen.coreset == expected
    with pytest.raises(
        InvalidInputError, match=r"bound='exact' compares .* n_samples = 25000 exceeds max_exact = 20000"
    ):
        select(np.zeros((25_000, 2)), 5, bound="exact")


@pytest.mark.parametrize("method", ["systematic", "iid"])
def test_other_methods_are_the_estimators(file: Path, method: str) -> None:
    chosen = select(file, 200, columns=FEATURES, bound="closed-form", method=method, random_state=7)
    in_memory = RBFCoreset(bound="closed-form", random_state=7).fit(features(file))
    expected = in_memory.sample(200, method=method, random_state=7)
    np.testing.assert_array_equal(chosen.coreset.indices, expected.indices)
    assert (chosen.coreset.guarantee is None) == (method == "systematic")


def test_an_error_instead_of_a_budget(file: Path) -> None:
    chosen = select(file, eps=0.3, columns=FEATURES, bandwidth=20.0, bound="closed-form")
    core = chosen.coreset
    assert core.method == "iid"
    assert core.guarantee is not None
    assert "at most 0.3 for all queries" in str(core.guarantee)
    assert core.n_draws is not None
    in_memory = RBFCoreset(bandwidth=20.0, bound="closed-form").fit(features(file))
    assert core.n_draws >= in_memory.sample_size(0.3).size  # no sharper than what memory can prove
    with pytest.raises(InvalidInputError, match="no fewer than the 12,000 rows"):
        select(file, eps=0.001, columns=FEATURES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either (--budget |budget=)0.05"),
        ({"budget": 5, "eps": 0.1}, "give either (--budget |budget=)0.05"),
        ({"eps": 0.1, "method": "keys"}, "eps is guaranteed for method='iid'"),
        ({"eps": 0.1, "normalize": True}, "leave normalize out"),
        ({"budget": 5, "per_class": True}, "needs labels"),
        ({"budget": 5, "per_class": True, "label": "y", "method": "iid"}, "per_class goes with"),
        ({"budget": 5, "loss": "cauchy"}, "loss = 'cauchy'"),
        ({"budget": 5, "bound": "magic"}, "bound = 'magic'"),
        ({"budget": 5, "engine": "abacus"}, "engine = 'abacus'"),
        ({"budget": 5, "workers": 0}, "workers = 0"),
        ({"budget": 5, "radius": -1.0}, "radius"),
        ({"budget": 5, "bandwidth": "wide"}, "bandwidth"),
        ({"budget": 5, "max_memory": "10MB"}, r"max_memory = 10 MB is less than the \d+ MB"),
        ({"budget": 5, "random_state": -1}, "random_state"),
    ],
)
def test_what_does_not_go_together(file: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        select(file, columns=FEATURES, **options)


def test_the_plan_comes_first_and_is_kept(file: Path) -> None:
    source = open_rows(file, columns=FEATURES)
    made = plan(source, SelectOptions(budget="1%", bound="cells", bandwidth=1.0))
    assert made.as_dict() | {"memory_bytes": 0, "seconds": 0} == {
        "rows": 12_000,
        "columns": 3,
        "features": ["x0", "x1", "x2"],
        "left_out": dict.fromkeys(("row", "y", "weight"), "not named"),
        "files": 1,
        "budget": 120,
        "passes": ["survey", "cells", "sensitivities", "check"],
        "memory_bytes": 0,
        "seconds": 0,
    }
    passes: list[tuple[str, int]] = []

    def on_pass(label: str, rows: int) -> Any:
        passes.append((label, 0))

        def on_rows(done: int) -> None:
            passes[-1] = (label, passes[-1][1] + done)

        return on_rows

    run(made, on_pass=on_pass)
    assert passes == [(name, 12_000) for name in made.passes]


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("materialize", [False, True])
def test_files_can_be_loaded_and_repeat_the_run(file: Path, tmp_path: Path, suffix: str, materialize: bool) -> None:
    chosen = select(file, 150, columns=FEATURES, label="y", bound="closed-form", random_state=6, bandwidth=2.0)
    path = tmp_path / f"core{suffix}"
    chosen.save(path, materialize=materialize)
    assert os.listdir(tmp_path) == [path.name]
    assert Coreset.load(path) == chosen.coreset
    record = load_run(path)
    again = {name: record[name] for name in ("budget", "loss", "bandwidth", "radius", "bound", "n_cells", "method")}
    repeated = select(
        record["input"], columns=record["columns"], label=record["label"], random_state=record["seed"], **again
    )
    assert repeated.coreset == chosen.coreset
    if suffix == ".npz":
        return
    table = parquet.read_table(path)
    assert table.column_names[:4] == ["row", "file", "label", "weight"]
    assert set(table["file"].to_pylist()) == {str(file)}
    np.testing.assert_array_equal(table["label"].to_pylist(), labels(file)[chosen.coreset.indices])
    if materialize:
        rows = parquet.read_table(file).take(pa.array(chosen.coreset.indices))
        assert table.column_names[4:] == ["x0", "x1", "x2", "y", "input_row", "input_weight"]
        for name in (*FEATURES, "y"):
            assert table[name].to_pylist() == rows[name].to_pylist()


def test_rows_of_arrays_can_be_written_too(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((5000, 2)).astype(np.float32)
    np.save(tmp_path / "a.npy", X)
    chosen = select(tmp_path / "a.npy", 40, bound="closed-form")
    chosen.save(tmp_path / "core.npz", materialize=True)
    chosen.save(tmp_path / "core.parquet", materialize=True)
    with np.load(tmp_path / "core.npz") as members:
        np.testing.assert_array_equal(members["X"], X[chosen.coreset.indices])
    table = parquet.read_table(tmp_path / "core.parquet")
    np.testing.assert_array_equal(table["x1"].to_numpy(), X[chosen.coreset.indices, 1])


def test_a_disk_that_fills_up_leaves_no_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = select(file, 20, columns=FEATURES, bound="closed-form")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for materialize in (False, True):
        with pytest.raises(OSError, match="No space left"):
            chosen.save(tmp_path / "core.parquet", materialize=materialize)
    assert os.listdir(tmp_path) == []


def test_records_are_plain_json(file: Path) -> None:
    chosen = select(file, "1%", columns=FEATURES, bandwidth=np.float64(2.0), bound="closed-form")
    assert json.loads(json.dumps(chosen.as_dict(), allow_nan=False))["size"] == 120
    text = " ".join(chosen.lines())
    assert "120 of 12,000 rows" in text
    assert "Guaranteed: nothing is proved for this draw" in text
    assert chosen.as_dict()["guarantee"] is None
    assert chosen.run["columns"] == list(FEATURES)
    unnamed = select(file, "1%", label="y", weight="weight", bandwidth=2.0, bound="closed-form")
    assert unnamed.run["columns"] == list(unnamed.rows.names or ())
    assert "Plain sampling" in text


def test_bad_data_in_the_middle_names_the_row(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((5000, 2))
    X[4321, 1] = np.nan
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InvalidInputError, match=r"a\.npy contains NaN in column 1, row 4321;"):
        select(tmp_path / "a.npy", 10)


def test_equal_rows_are_no_trouble() -> None:
    chosen = select(np.full((6000, 3), 0.1), 60, bound="closed-form")
    assert chosen.coreset.size == 60
    assert chosen.report.total_sensitivity == pytest.approx(1.0, rel=1e-6)
    assert chosen.report.uniform_is_as_good


def test_an_error_is_guaranteed_by_the_totals_of_the_bounds(tmp_path: Path) -> None:
    """The scores of 'lemma' are kept in units of the largest: their sum is no total, and one draw is not enough."""
    X = 2.0 * np.array(list(itertools.product((-1.0, 1.0), repeat=10)))
    w = np.ones(len(X))
    w[0] = 1e6
    columns = {f"x{i}": X[:, i] for i in range(10)}
    parquet.write_table(pa.table({**columns, "w": w}), tmp_path / "corners.parquet")
    with pytest.raises(InvalidInputError, match="independent draws"):
        select(
            tmp_path / "corners.parquet",
            eps=0.9,
            n_queries=0,
            columns=list(columns),
            weight="w",
            radius=15.0,
            bandwidth=1.0,
            bound="lemma",
        )


def test_names_of_columns_that_are_taken(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    taken = {"row": rng.random(30), "input_row": rng.random(30), "weight": rng.random(30)}
    parquet.write_table(pa.table(taken), tmp_path / "rows.parquet")
    select(tmp_path / "rows.parquet", 5).save(tmp_path / "out.parquet", materialize=True)
    found = parquet.read_table(tmp_path / "out.parquet")
    assert len(set(found.column_names)) == len(found.column_names)
    core = found.column("row").to_numpy()
    np.testing.assert_array_equal(found.column("input_input_row").to_numpy(), taken["row"][core])
    np.testing.assert_array_equal(found.column("input_row").to_numpy(), taken["input_row"][core])


@pytest.mark.parametrize("bound", ["auto", "cells", "closed-form"])
def test_a_class_without_weight_gets_no_rows(bound: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.array(["common", "rare"])[(np.arange(300) % 10 == 0).astype(int)]
    w = np.where(y == "rare", 0.0, 1.0)
    parquet.write_table(pa.table({"a": rng.random(300), "b": rng.random(300), "y": y, "w": w}), tmp_path / "p.parquet")
    core = select(tmp_path / "p.parquet", 40, label="y", weight="w", per_class=True, bound=bound).coreset
    assert core.size == 40
    assert set(y[core.indices]) == {"common"}


@pytest.mark.parametrize("options", [{}, {"method": "systematic"}, {"label": "y", "per_class": True}])
def test_normalized_weights_sum_to_those_of_the_rows(file: Path, options: dict[str, Any]) -> None:
    given = {"columns": FEATURES, "bandwidth": 3.0, "bound": "closed-form", "random_state": 1, **options}
    plain, scaled = (select(file, 300, normalize=normalize, **given) for normalize in (False, True))
    np.testing.assert_array_equal(plain.coreset.indices, scaled.coreset.indices)
    y = labels(file)
    groups = [y == name for name in "abc"] if "label" in options else [np.ones(len(y), dtype=bool)]
    for group in groups:
        mine = group[scaled.coreset.indices]
        before, after = plain.coreset.weights[mine], scaled.coreset.weights[mine]
        assert after.sum() == pytest.approx(group.sum())
        np.testing.assert_allclose(after / after.sum(), before / before.sum())
    assert "normalized" in scaled.coreset.adjustments
    assert not any("--normalize" in line for line in scaled.lines())


def test_weights_that_miss_their_sum_are_told(file: Path) -> None:
    chosen = select(file, 60, columns=FEATURES, bandwidth=3.0, bound="closed-form")
    share = chosen.coreset.weights.sum() / 12_000
    assert abs(share - 1) > 0.02
    assert f"The weights sum to {share:.3g} times" in "\n".join(chosen.lines())


def test_a_check_that_cannot_be_made_is_told(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = select(file, 60, columns=FEATURES, bandwidth=1e-3, bound="closed-form")
    assert chosen.report.worst_error_found is None
    assert "no error is found or stated" in caplog.text
