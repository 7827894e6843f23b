"""The preparation of tables: against pandas and scikit-learn, merged against whole, from every kind of input."""

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from pyarrow import feather, parquet
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from coresift import InvalidInputError, Preparation, fit_model, open_rows, select
from coresift.data import load_dataset
from coresift.rows import summary, tables
from coresift.rows.columns import as_table, check_names, family
from coresift.rows.rows import Block
from coresift.rows.summary import TableSummary
from coresift.rows.table_files import ParquetRows

N = 400


def messy(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Numbers in all units, gaps, categories, text, dates, ids, copies, a constant, an empty column, and a label."""
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(size=n) * 1e4
    frame = pd.DataFrame(
        {
            "key": np.arange(n) + 1000,
            "amount": amount,
            "count": rng.integers(0, 50, n),
            "holed": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 9, n).astype(float)),
            "colour": rng.choice(["red", "green", "blue"], n),
            "town": rng.choice([f"town {i}" for i in range(60)], n),
            "member": rng.random(n) < 0.3,
            "when": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 5000, n), unit="h"),
            "note": [f"text number {i}" for i in range(n)],
            "always": 7,
            "amount again": amount,
            "y": rng.choice(["no", "yes"], n),
            "price": amount / 1e3 + rng.normal(size=n),
        }
    )
    frame.loc[::17, "colour"] = None
    frame["nothing"] = pd.Series([None] * n, dtype=object)
    return frame


KINDS = {
    "key": "left out", "amount": "number", "count": "number", "holed": "number", "colour": "one-hot", "town": "hashed",
    "member": "boolean", "when": "date", "note": "left out", "always": "left out", "amount again": "left out",
    "nothing": "left out",
}  # fmt: skip


def write(frame: pd.DataFrame, folder: Path, kind: str) -> Any:
    path = folder / f"rows.{kind}"
    if kind in ("csv", "csv.gz", "tsv"):
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=150)
    elif kind == "feather":
        feather.write_feather(frame, str(path), chunksize=130)
    elif kind == "arrow strings":
        return frame.convert_dtypes(dtype_backend="pyarrow")
    elif kind == "hive":
        for name, part in frame.groupby("colour", dropna=False, sort=False):
            text = "__HIVE_DEFAULT_PARTITION__" if pd.isna(name) else name
            (path / f"colour={text}").mkdir(parents=True)
            part.drop(columns="colour").to_parquet(path / f"colour={text}" / "part.parquet", index=False)
    else:
        return pl.from_pandas(frame) if kind == "polars" else pa.table(frame) if kind == "arrow" else frame
    return path


EVERY = ["csv", "csv.gz", "tsv", "parquet", "feather", "pandas", "polars", "arrow", "arrow strings"]


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    frame = messy()
    chosen = select(frame, 40, label="y", preparation=Preparation(drop=["price"]), bandwidth="median")
    return {
        "select": chosen,
        "classes": fit_model(frame, 100, label="y", preparation=Preparation(drop=["price"])),
        "train": load_dataset(frame, label="price", preparation=Preparation(drop=["y"])),
    }


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_of_table_gives_the_same_columns_and_rows(kind: str, tmp_path: Path, expected: Any) -> None:
    data = write(messy(), tmp_path, kind)
    made = select(data, 40, label="y", preparation=Preparation(drop=["price"]), bandwidth="median")
    want = expected["select"]
    assert {c.name: c.kind for c in made.rows.preparation.columns_} == {**KINDS, "price": "left out"}
    assert made.rows.preparation == want.rows.preparation
    np.testing.assert_array_equal(made.coreset.indices, want.coreset.indices)
    np.testing.assert_allclose(made.coreset.weights, want.coreset.weights, rtol=1e-12)
    assert made.labels == want.labels
    model = fit_model(data, 100, label="y", preparation=Preparation(drop=["price"]))
    assert model.preparation == made.rows.preparation
    np.testing.assert_allclose(model.coef, expected["classes"].coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict(data), expected["classes"].predict(messy()))
    splits = load_dataset(data, label="price", preparation=Preparation(drop=["y"]))
    assert splits.task == "regression"
    np.testing.assert_array_equal(splits.train.x, expected["train"].train.x)
    np.testing.assert_array_equal(splits.test.y, expected["train"].test.y)
    assert [c.kind for c in splits.table.columns_ if c.name in KINDS] == list(KINDS.values())


def test_folders_of_a_partition_are_a_column(tmp_path: Path) -> None:
    frame = messy().drop(columns=["key", "y", "price"])  # rows come in another order: by folder
    rows = open_rows(write(frame, tmp_path, "hive"), preparation="auto")
    same = Preparation().fit(frame)
    assert {c.name: (c.kind, c.categories) for c in rows.preparation.columns_} == {
        c.name: (c.kind, c.categories) for c in same.columns_
    }
    with rows.load() as everything:
        found = everything.X
    names = list(same.get_feature_names_out())
    order = [rows.names.index(name) for name in names]
    whole = same.transform(frame)
    np.testing.assert_allclose(np.sort(found[:, order], axis=0), np.sort(whole, axis=0), atol=1e-9)
    labelled = select(tmp_path / "rows.hive", 30, label="member", columns=["colour", "count"], n_queries=0)
    assert labelled.labels is not None
    assert set(labelled.labels) == {False, True}
    with pytest.raises(InvalidInputError, match="'colour' is the label, so it cannot be a feature"):
        select(frame, 30, label="colour", columns=["colour", "count"])


def test_numbers_are_scikit_learns_and_categories_are_one_hot() -> None:
    frame = messy()
    made = Preparation(columns=["amount", "count", "colour"]).fit(frame)
    X = made.transform(frame)
    assert made.get_feature_names_out().tolist() == [
        "amount", "count", "colour=blue", "colour=green", "colour=red", "colour missing"
    ]  # fmt: skip
    np.testing.assert_allclose(X[:, :2], StandardScaler().fit_transform(frame[["amount", "count"]]), rtol=1e-9)
    encoder = OneHotEncoder(categories=[["blue", "green", "red", "?"]], sparse_output=False)
    np.testing.assert_array_equal(X[:, 2:], encoder.fit_transform(frame[["colour"]].fillna("?")))


def test_complete_floats_stay_what_they_are_and_files_are_read_once(tmp_path: Path, monkeypatch: Any) -> None:
    """What was read to learn stays in memory until it is prepared, and then the features do."""
    values = np.random.default_rng(0).normal(5.0, [0.1, 10.0, 1e4], size=(3000, 3)).astype(np.float32)
    table = pa.table(dict(zip("abc", np.ascontiguousarray(values.T), strict=True)))
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=1000)
    read, once = [], parquet.ParquetFile.iter_batches
    with monkeypatch.context() as patched:
        patched.setattr(
            parquet.ParquetFile, "iter_batches", lambda *a, **k: read.append(k["row_groups"]) or once(*a, **k)
        )
        found = select(tmp_path / "t.parquet", 100, strategy="rbf", random_state=0)
        assert sorted(read) == [[0], [1], [2]]
        assert isinstance(found.rows.raw, ParquetRows)
        assert not found.rows.raw.kept  # one copy is enough
        patched.setattr(tables, "KEPT_BYTES", 1000)
        again = select(tmp_path / "t.parquet", 100, strategy="rbf", random_state=0)
        assert len(read) > 2 * 3
        assert np.array_equal(again.coreset.indices, found.coreset.indices)
    rows = open_rows(tmp_path / "t.parquet", preparation="auto")
    (block,) = rows.blocks()
    assert block.X.dtype == rows.dtype == rows.preparation.transform(table).dtype == np.float32
    np.testing.assert_allclose(block.X, StandardScaler().fit_transform(values.astype(np.float64)), atol=1e-5)
    assert np.array_equal(found.coreset.indices, select(table, 100, strategy="rbf", random_state=0).coreset.indices)
    mixed = table.set_column(0, "a", table["a"].cast(pa.float64()))
    assert rows.preparation.transform(mixed).dtype == np.float64
    gone = table.set_column(0, "a", pa.array([None, *table["a"].to_pylist()[1:]], pa.float32()))
    new = rows.preparation.transform(gone)
    assert abs(new[0, 0]) < 0.1
    assert np.isfinite(new).all()
    np.testing.assert_allclose(new[1:], block.X[1:], atol=1e-5)


def test_columns_that_differ_in_two_rows_are_no_copies() -> None:
    """The sums that tell copies apart see every bit of a number: 0 and 1 differ in the highest ones only."""
    base = (np.arange(4000) % 7 == 0).astype(np.float64)
    frames = {"a": base, "copy": base.copy()}
    for i in range(40):
        frames[f"x{i}"] = base.copy()
        frames[f"x{i}"][[7 * i, 7 * i + 1]] = base[[7 * i + 1, 7 * i]]
    left_out = [column.name for column in Preparation().fit(pa.table(frames)).columns_ if column.kind == "left out"]
    assert left_out == ["copy"]


def test_missing_numbers_are_the_median_and_say_so() -> None:
    frame = messy()[["holed"]]
    X = Preparation().fit(frame).transform(frame)
    filled = frame["holed"].fillna(frame["holed"].median())
    np.testing.assert_allclose(X[:, 0], (filled - filled.mean()) / filled.std(ddof=0), atol=1e-9)
    np.testing.assert_array_equal(X[:, 1], frame["holed"].isna())


def test_dates_are_seconds_and_cycles() -> None:
    for when in (messy()["when"], messy()["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")):
        made = Preparation().fit(when.to_frame())
        text = Preparation().fit(when.astype(str).to_frame())
        X = made.transform(when.to_frame())
        np.testing.assert_array_equal(text.transform(when.astype(str).to_frame()), X)
        seconds = (when.dt.tz_convert(None) if when.dt.tz is not None else when).astype("int64")
        seconds = seconds / {"ns": 1e9, "us": 1e6, "s": 1.0}[when.dt.unit]
        z = (seconds - seconds.mean()) / seconds.std(ddof=0)
        np.testing.assert_allclose(X[:, 0], z / np.sqrt(3), atol=1e-8)
        names = made.get_feature_names_out().tolist()
        assert names[1:] == [f"when {part} of the {c}" for c in ("day", "week") for part in ("sine", "cosine")]
        np.testing.assert_allclose(X[:, 2], np.cos(2 * np.pi * seconds / 86_400) / np.sqrt(3), atol=1e-8)


def test_no_column_dominates_the_distance() -> None:
    """The total variance of the features of one column is that of a standardised number, and of a 0 or 1, at most."""
    made = Preparation().fit(messy())
    X = made.transform(messy())
    names = made.get_feature_names_out()
    shares = [X[:, [str(n).startswith(c.name) for n in names]].var(axis=0).sum() for c in made.used_]
    assert min(shares) > 0
    assert max(shares) <= 1.25 + 1e-9


def parts_of(table: pa.Table, cuts: list[int], kinds: dict[str, Any]) -> TableSummary:
    found: TableSummary | None = None
    for start, stop in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        part = TableSummary(kinds, 32)
        if stop > start:
            part.update(Block(start, table.slice(start, stop - start), np.ones(stop - start)))
            if found is None:
                found = part
            else:
                found.merge(part)
    assert found is not None
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, N), max_size=4).map(sorted), st.integers(0, 5))
def test_merged_summaries_are_those_of_all_rows(cuts: list[int], seed: int) -> None:
    table = as_table(messy(seed=seed))
    kinds = {field.name: family(field.type) for field in table.schema}
    whole, merged = parts_of(table, [], kinds), parts_of(table, cuts, kinds)
    for one, other in zip(whole.decide(), merged.decide(), strict=True):
        assert (one.name, one.kind, one.why, one.fill, one.categories, one.cycles) == (
            other.name, other.kind, other.why, other.fill, other.categories, other.cycles
        )  # fmt: skip
        assert other.shift == pytest.approx(one.shift, rel=1e-12, abs=1e-12)
        assert other.scale == pytest.approx(one.scale, rel=1e-12)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_learn_what_one_process_learns(workers: int, tmp_path: Path) -> None:
    frame = messy(150_000)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=20_000)
    rows = open_rows(tmp_path / "rows.parquet", preparation="auto", workers=workers)
    assert rows.preparation == open_rows(frame, preparation="auto").preparation
    # the median is that of a sample: its rank is within four deviations of the middle
    column = next(c for c in rows.preparation.columns_ if c.name == "amount")
    assert column.fill != 0.0
    rank = (frame["amount"] < column.fill).mean()
    assert abs(rank - 0.5) <= 4 * 0.5 / np.sqrt(summary.SAMPLE)


def test_numbers_of_distinct_values_are_estimated() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 900, 100_000):
        found = summary.Distinct()
        for part in np.array_split(rng.permutation(np.repeat(np.arange(n, dtype=np.uint64), 3)), 7):
            found.add(summary._mixed(part))
        assert found.count() == pytest.approx(n, rel=0 if n < 1024 else 4 / np.sqrt(1024))


def test_a_hundred_thousand_names_are_hashed_quickly_and_evenly() -> None:
    names = np.char.add("user ", np.repeat(np.arange(100_000), 2).astype(str))
    made = Preparation().fit(pd.DataFrame({"name": names}))
    X = made.transform(pd.DataFrame({"name": names}))
    assert X.shape == (200_000, 32)
    assert (X.sum(axis=1) == 1).all()
    assert X.sum(axis=0).max() < 1.2 * 200_000 / 32
    np.testing.assert_array_equal(X[::2], X[1::2])


def test_wide_categories_are_sparse_and_equal() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice([f"a{i}" for i in range(200)], 3000), "b": rng.normal(size=3000)})
    frame["c"] = rng.choice([f"c{i}" for i in range(200)], 3000)
    wide = Preparation(max_categories=500).fit(frame)
    X = wide.transform(frame)
    assert sp.issparse(X)
    dense = OneHotEncoder(sparse_output=False).fit_transform(frame[["a", "c"]])
    np.testing.assert_array_equal(np.delete(X.toarray(), 200, axis=1), dense)
    chosen = select(frame, 60, preparation=wide)
    same = select(X, 60)
    np.testing.assert_array_equal(chosen.coreset.indices, same.coreset.indices)
    assert sp.issparse(chosen.rows.take(np.array([5, 3])).X)
    np.testing.assert_array_equal(chosen.rows.take(np.array([5, 3])).X.toarray(), X[[5, 3]].toarray())


def test_json_holds_everything() -> None:
    frame = messy()
    made = Preparation(categorical=["count"], id=["town"]).fit(frame)
    again = Preparation.from_json(made.to_json())
    assert again == made
    np.testing.assert_array_equal(again.transform(frame), made.transform(frame))
    assert again.get_params() == {**made.get_params(), "drop": []}
    for text in ('{"version": 9, "columns_": []}', "{}", '{"version": 1, "columns_": [{"name": 3}]}'):
        with pytest.raises(InvalidInputError, match="preparation: "):
            Preparation.from_json(text)
    assert "pickle" not in json.dumps(made.to_dict())


def test_words_of_the_user_decide() -> None:
    frame = messy()
    made = Preparation(categorical=["count"], drop=["town"], id=["amount"]).fit(frame)
    found = {c.name: (c.kind, c.why) for c in made.columns_}
    assert found["count"][0] == "hashed"
    assert found["town"] == ("left out", "as asked")
    assert found["amount"] == ("left out", "an id, as asked")
    assert found["amount again"][0] == "number"  # what it is a copy of is not used
    named = Preparation(columns=["key", "always", "note"]).fit(frame)
    assert [c.kind for c in named.used_] == ["number", "hashed", "number"]
    with pytest.raises(InvalidInputError, match=r"no column 'color' \(did you mean 'colour'\?\), 'zzz'; there are"):
        Preparation(columns=["color", "zzz"]).fit(frame)


AWKWARD: dict[str, tuple[Any, str]] = {
    "booleans with gaps": ([True, None, False] * 20, "boolean"),
    "beyond 2**53": ([2**60 + 10**6 * i for i in range(30)] * 2, "number"),
    "codes with zeros": (["01", "02", "03"] * 20, "one-hot"),
    "numbers as text": (["1.5", "2", " 3 "] * 20, "number"),
    "several types": ([1, "a", 2.5] * 20, "one-hot"),
    "infinite": ([1.0, np.inf, 3.0] * 20, "number"),
    "times": ([dt.time(12, 30), dt.time(13), None] * 20, "date"),
    "spans": (pd.to_timedelta(range(60), unit="s"), "date"),
    "constant with gaps": ([5.0, None] * 30, "missing"),
    "lists": ([[1, 2], [3], [4]] * 20, "left out"),
    "huge": ([1e200, 1.0, 2.0] * 20, "number"),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_columns(case: str) -> None:
    values, kind = AWKWARD[case]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=None), "other": np.linspace(0, 1, 60) ** 2})
    made = Preparation().fit(frame)
    assert made.columns_[0].kind == kind, made.columns_[0]
    assert np.isfinite(made.transform(frame)).all()


def test_decimals_dictionaries_and_old_text_types() -> None:
    import decimal

    table = pa.table(
        {
            "d": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.50")] * 10),
            "c": pa.array(["x", None] * 10).dictionary_encode(),
            "l": pa.array(["p", "q"] * 10, pa.large_string()),
            "i": pa.array([1, 2] * 10).dictionary_encode(),
        }
    )
    made = Preparation().fit(table)
    assert [c.kind for c in made.columns_] == ["number", "one-hot", "one-hot", "number"]
    np.testing.assert_array_equal(made.transform(table)[0], [-1, 1, 0, 1, 0, -1])


def test_new_rows_with_other_contents() -> None:
    made = Preparation(columns=["amount", "colour", "holed"]).fit(messy())
    new = pd.DataFrame({"colour": ["violet", None], "holed": [None, 3.0], "amount": [np.nan, 1.0], "more": [1, 2]})
    X = made.transform(new)
    names = made.get_feature_names_out().tolist()
    assert X[0, [names.index(n) for n in names if n.startswith("colour")]].tolist() == [0, 0, 0, 0]
    assert X[1, names.index("colour missing")] == 1
    assert np.isfinite(X).all()
    with pytest.raises(InvalidInputError, match="no column 'amount', 'colour'"):
        made.transform(pd.DataFrame({"holed": [1.0]}))
    wrong = pd.DataFrame({"amount": ["12", "many"], "colour": ["red", "red"], "holed": ["x", "y"]})
    with pytest.raises(InvalidInputError, match=r"'amount' is read as number, and .*many.*; 'holed' is read as number"):
        made.transform(wrong)


def test_features_have_distinct_names() -> None:
    frame = pd.DataFrame({"a": ["x", "y"] * 5, "a=x": np.arange(10.0) ** 2})
    names = Preparation().fit(frame).get_feature_names_out().tolist()
    assert names == ["a=x", "a=y", "a=x'"]


def test_tables_that_cannot_be_used() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for data, complaint in (
        (twice, "the column 'a' is there more than once"),
        (pd.DataFrame({"a": []}), "no rows"),
        (pd.DataFrame({"a": [1.0]}), r"no column is left as a feature: 'a' \(constant: 1\)"),
        (pd.DataFrame({"a": [None, None]}), r"'a' \(empty\)"),
    ):
        with pytest.raises(InvalidInputError, match=complaint):
            Preparation().fit(data)
    one = pd.DataFrame({"a": [1.0], "b": ["x"]})
    assert Preparation(columns=["a", "b"]).fit(one).transform(one).tolist() == [[0.0, 1.0]]


def test_a_column_that_ceases_to_be_numbers_is_read_as_names(tmp_path: Path) -> None:
    n = 70_000
    frame = pd.DataFrame({"a": [str(i % 9) for i in range(n)], "b": np.sqrt(np.arange(n))})
    frame.loc[n - 1, "a"] = "?"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    made = open_rows(tmp_path / "rows.csv", preparation="auto").preparation
    assert made.columns_[0].categories == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "?")
    assert made == Preparation().fit(frame)


def test_arrays_are_prepared_only_when_asked() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3)) * [1, 1000, 1]
    X[5, 1] = np.nan
    with pytest.raises(InvalidInputError, match="NaN in column 1"):
        select(X, 20)
    made = select(X, 20, preparation=Preparation()).rows
    assert made.names == ["x0", "x1", "x1 missing", "x2"]
    np.testing.assert_allclose(made.take(np.arange(300)).X[:, [0, 1, 3]].std(axis=0), 1)
    raw = select(pd.DataFrame(X[10:]), 20, preparation=None)
    np.testing.assert_array_equal(raw.coreset.indices, select(X[10:], 20).coreset.indices)


def test_a_coreset_file_keeps_the_preparation(tmp_path: Path) -> None:
    from coresift import Coreset
    from coresift.coresets import load_run

    chosen = select(messy(), 40, label="y")
    for name in ("core.parquet", "core.npz"):
        chosen.save(tmp_path / name)
        kept = Preparation.from_dict(load_run(tmp_path / name)["preparation"])
        assert kept == chosen.rows.preparation
        core = Coreset.load(tmp_path / name)
        proved = core.certify(kept.transform(messy()))
        assert proved.eps == pytest.approx(core.certify(chosen.rows).eps)


def test_parquet_rows_are_written_as_they_were(tmp_path: Path) -> None:
    messy().to_parquet(tmp_path / "rows.parquet")
    chosen = select(tmp_path / "rows.parquet", 40)
    chosen.save(tmp_path / "core.parquet", materialize=True)
    back = parquet.read_table(tmp_path / "core.parquet").to_pandas()
    pd.testing.assert_series_equal(
        back["note"], messy()["note"].iloc[chosen.coreset.indices].reset_index(drop=True), check_dtype=False
    )


@pytest.mark.parametrize("kind", ["csv", "feather", "frame"])
def test_prepared_rows_are_written_with_the_columns_that_are_left_out(tmp_path: Path, kind: str) -> None:
    n = 60
    names = [f"name {i}" for i in range(n)]
    table = pd.DataFrame({"who": names, "city": ["Oslo", "Rome", "Lima"] * 20, "x": np.arange(n) ** 2 / 7})
    table["price"] = np.arange(n) + 0.5
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_feather(tmp_path / "rows.feather")
    data = table if kind == "frame" else tmp_path / f"rows.{kind}"
    chosen = select(data, 20, target="price", strategy="uniform", random_state=0)
    assert "who" in chosen.rows.left_out
    chosen.save(tmp_path / "core.parquet", materialize=True)
    back = parquet.read_table(tmp_path / "core.parquet").to_pandas()
    expected = table.iloc[chosen.coreset.indices].reset_index(drop=True)
    pd.testing.assert_frame_equal(back[table.columns.tolist()], expected, check_dtype=False)


def test_only_close_names_are_suggested() -> None:
    for wrong, meant in (("lable", "label"), ("AGE", "age"), ("incom", "income")):
        with pytest.raises(InvalidInputError, match=rf"did you mean '{meant}'\?"):
            check_names([wrong], ["age", "income", "label"])
    for wrong in ("target", "y", "rest"):
        with pytest.raises(InvalidInputError, match=rf"no column '{wrong}'; there are"):
            check_names([wrong], ["age", "income", "label", "height"])


def test_names_of_many_columns_are_found_at_once() -> None:
    names = [f"column {i}" for i in range(30_000)]
    began = time.process_time()
    check_names(names, names)
    assert time.process_time() - began < 1.0  # a search for each took 10 s


def test_wide_tables_are_read_by_the_thousand_rows(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(5000)]
    X = np.random.default_rng(0).normal(size=(1300, len(names))).astype(np.float32)
    parquet.write_table(pa.table(list(X.T.copy()), names=names), tmp_path / "t.parquet", row_group_size=1100)
    raw = open_rows(tmp_path / "t.parquet", preparation=Preparation()).raw.raw
    assert raw.read_rows == 1024
    assert [block.n for block in raw.blocks()] == [1024, 276]
    from_file, from_frame = (open_rows(data, preparation="auto") for data in (tmp_path, pd.DataFrame(X, columns=names)))
    assert from_file.preparation.to_json() == from_frame.preparation.to_json()
    kept = TableSummary(dict.fromkeys(names, "number"), 10).sample.sizes
    assert 500 < kept[0] < summary.SAMPLE  # the sample of a wide table is smaller, so that memory is bounded


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_chosen_rows_keep_the_names_of_label_weight_and_target(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=50), "y": rng.choice(["no", "yes"], 50), "w": rng.random(50) + 0.5})
    data: Any = frame
    if kind != "frame":
        data = tmp_path / f"t.{kind}"
        frame.to_csv(data, index=False) if kind == "csv" else frame.to_parquet(data)
    chosen = select(data, 10, label="y", weight="w", strategy="stratified", random_state=0)
    chosen.save(tmp_path / "chosen.parquet", materialize=True)
    found = pd.read_parquet(tmp_path / "chosen.parquet")
    expected = frame.iloc[found["row"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(found[["a", "y", "w"]], expected, check_dtype=False)


def test_a_slip_in_the_name_of_a_strategy_is_noticed() -> None:
    from coresift.selection import strategy_named

    with pytest.raises(InvalidInputError, match="'gradmatchp' is unknown; did you mean GRADMATCHPB"):
        strategy_named("gradmatchp")
