"""Coresets as values: what is accepted, what take returns; files that are whole, equal, and refused when damaged."""

import copy
import io
import json
import pickle
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from coresift import (
    Certificate,
    Coreset,
    CoresiftError,
    Guarantee,
    InvalidInputError,
    InvalidTypeError,
    MissingExtraError,
    QueryBall,
)

SUFFIXES = [".npz", ".parquet"]


def example_coreset(**changes) -> Coreset:
    about = {
        "indices": [4, 0, 7],
        "weights": [1.25, 3.0, 0.0],
        "n_samples": 9,
        "method": "iid",
        "n_draws": 5,
        "seed": 2**70,
        "total_sensitivity": 1.7320508075688772,
        "bound": "cells",
        "guarantee": Guarantee("single", 0.1, 0.05, "Bernstein", 1.0, 5, 1.7),
        "ball": QueryBall("gaussian", [0.1, -2.0, 1e-150], 0.3, 1.0),
        "total_weight": 1e-3,
    }
    return Coreset(**(about | changes))


# Construction.


def test_unsorted_rows_are_sorted_with_their_weights():
    core = example_coreset()
    assert core.indices.tolist() == [0, 4, 7]
    assert core.weights.tolist() == [3.0, 1.25, 0.0]
    assert core.indices.dtype == np.int64
    assert core.weights.dtype == np.float64
    assert len(core) == core.size == 3


def test_results_are_frozen_and_inputs_are_not():
    indices, weights, center = np.array([1, 2]), np.array([1.0, 2.0]), np.zeros(2)
    core = Coreset(indices, weights, 5, ball=QueryBall("gaussian", center, 1, 1))
    indices[0], weights[0], center[0] = 0, 9, 9
    assert core.indices.tolist() == [1, 2]
    assert core.weights.tolist() == [1, 2]
    assert core.ball.center.tolist() == [0, 0]
    for again in (core, pickle.loads(pickle.dumps(core)), copy.deepcopy(core)):
        assert again == core
        for array in (again.indices, again.weights, again.ball.center):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            again.n_samples = 3


def test_numpy_scalars_become_plain_numbers():
    core = Coreset(
        np.array([3], dtype=np.uint8), np.array([2], dtype=np.int32), np.int64(5), n_draws=np.int32(1),
        seed=np.uint64(4), total_sensitivity=np.float32(0.5), total_weight=np.int64(7),
    )  # fmt: skip
    assert [type(v) for v in (core.n_samples, core.n_draws, core.seed)] == [int] * 3
    assert [type(v) for v in (core.total_sensitivity, core.total_weight)] == [float] * 2


def test_an_empty_coreset_is_one():
    core = Coreset([], [], 4)
    taken, weights = core.take([1, 2, 3, 4])
    assert (len(core), taken, weights.tolist()) == (0, [], [])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"indices": [0, 4, 9]}, InvalidInputError, "from 0 to 9; they must be from 0 to n_samples - 1 = 8"),
        ({"indices": [-1, 4, 5]}, InvalidInputError, "from -1 to 5"),
        ({"indices": [5, 4, 5]}, InvalidInputError, "row 5 more than once"),
        ({"indices": [[1, 2, 3]]}, InvalidInputError, "shape (1, 3); it must be one-dimensional"),
        ({"indices": [0.0, 1.0, 2.0]}, InvalidTypeError, "indices has type float64; it must hold integers"),
        ({"indices": [True, False, True]}, InvalidTypeError, "indices has type bool; it must hold integers"),
        ({"indices": [[1], [2, 3]]}, InvalidTypeError, "indices must be integers"),
        ({"weights": [1.0, 2.0]}, InvalidInputError, "indices has length 3, weights 2"),
        ({"weights": [1.0, -2.0, 1.0]}, InvalidInputError, "weights[1] = -2"),
        ({"weights": [1.0, 2.0, np.nan]}, InvalidInputError, "weights[2] = nan"),
        ({"weights": [1.0, 2.0, np.inf]}, InvalidInputError, "weights[2] = inf"),
        ({"weights": ["a", "b", "c"]}, InvalidTypeError, "weights has entries of type <U1; they must be numbers"),
        ({"weights": [1j, 1, 1]}, InvalidTypeError, "weights must be numbers: complex"),
        ({"weights": np.ones((3, 1))}, InvalidInputError, "weights has shape (3, 1); it must be one-dimensional"),
        ({"n_samples": 0}, InvalidInputError, "n_samples = 0 must be at least 1"),
        ({"n_samples": 9.0}, InvalidTypeError, "n_samples = 9.0 must be an integer"),
        ({"n_samples": None}, InvalidTypeError, "n_samples = None"),
        ({"n_samples": True}, InvalidTypeError, "n_samples = True"),
        ({"seed": "1"}, InvalidTypeError, "seed = '1' must be an integer"),
        ({"n_draws": 1.5}, InvalidTypeError, "n_draws = 1.5"),
        ({"total_weight": "heavy"}, InvalidTypeError, "total_weight = 'heavy' must be a number at least 0"),
        ({"total_sensitivity": np.nan}, InvalidInputError, "total_sensitivity = nan must be at least 0"),
        ({"method": None}, InvalidTypeError, "method = None must be of type str"),
        ({"bound": 3}, InvalidTypeError, "bound = 3 must be of type str or None"),
        ({"ball": "all"}, InvalidTypeError, "ball = 'all' must be of type QueryBall or None"),
        ({"guarantee": "all"}, InvalidTypeError, "guarantee = 'all' must be of type Guarantee or None"),
        ({"adjustments": "refined"}, InvalidTypeError, "adjustments = 'refined' must be a tuple"),
    ],
)
def test_what_cannot_be_a_coreset_is_refused(changes, error, message):
    with pytest.raises(error) as caught:
        example_coreset(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cosine", [0.0], 1.0, 1.0), "loss = 'cosine'"),
        (("gaussian", [np.inf], 1.0, 1.0), "center"),
        (("gaussian", 0.0, 1.0, 1.0), "one-dimensional"),
        (("gaussian", [0.0], 0.0, 1.0), "scale = 0.0"),
        (("gaussian", [0.0], np.inf, 1.0), "scale = inf"),
        (("gaussian", [0.0], 1.0, -1.0), "radius = -1.0"),
        (("gaussian", [0.0], 1.0, np.nan), "radius"),
    ],
)
def test_what_cannot_be_a_ball_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        QueryBall(*arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": [4, 1, 7]}, {"weights": [1.25, 3.0, 1e-300]}, {"n_samples": 10}, {"method": "keys"},
        {"n_draws": None}, {"seed": 0}, {"total_sensitivity": 1.7}, {"bound": None}, {"guarantee": None},
        {"ball": None}, {"total_weight": 1.0},
        {"guarantee": Guarantee("single", 0.1, 0.05, "Bernstein", 1.0, 5, 1.8)},
        {"ball": QueryBall("gaussian", [0.1, -2.0, 0.0], 0.3, 1.0)},
        {"ball": QueryBall("gaussian", [0.1, -2.0, 1e-150], 0.3, np.inf)},
    ],
)  # fmt: skip
def test_equality_looks_at_everything(changes):
    assert example_coreset() == example_coreset()
    assert example_coreset() != example_coreset(**changes)
    assert example_coreset() != "a coreset"


def test_repr_is_one_short_line():
    text = repr(Coreset(np.arange(1500), np.ones(1500), 2_000_000, method="keys", bound="exact", seed=3))
    assert text == "Coreset(1,500 of 2,000,000 points, method='keys', bound='exact', seed=3)"
    assert repr(example_coreset().ball) == "QueryBall('gaussian', 3 dimensions, scale=0.3, radius=1)"


def test_checks_cost_little_beside_a_draw():
    """64,000 rows: a tenth of a millisecond; a sort would be several. Best of some, for crowded machines."""
    indices, weights = np.arange(0, 1_280_000, 20), np.ones(64_000)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        Coreset(indices, weights, 1_280_000)
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3


# Guarantees.


@pytest.mark.parametrize(
    ("guarantee", "sentence"),
    [
        (
            Guarantee("single", 0.1234, 0.05, "Bernstein", 2.0, 200, 1.7321),
            "Relative error at most 0.123 for each single query within radius 2, with probability 0.95 "
            "(Bernstein, m = 200, t = 1.73).",
        ),
        (
            Guarantee("single", 0.5, 0.1, "Bernstein", np.inf, n_stages=3),
            "Relative error at most 0.5 for each single query of space, with probability 0.9 "
            "(Bernstein, added up over 3 draws).",
        ),
        (
            Guarantee("families", 0.5, 0.1, "Bernstein"),
            "Relative error at most 0.5 for each single query to each family of sums in the network's loss, "
            "with probability 0.9 (Bernstein).",
        ),
        (
            Guarantee.from_certificate(Certificate(0.25, 0.1, 0.4, "gaussian", 1.0, True, 1.0)),
            "Relative error at most 0.25 for all queries within radius 1 (exact certificate).",
        ),
        (
            Guarantee.from_certificate(Certificate(0.25, 0.1, 0.4, "gaussian", 1.0, False, 0.95, 100)),
            "Relative error at most 0.25 for all queries within radius 1, with probability 0.95 (sampled certificate).",
        ),
        (Guarantee("sums"), "Weighted sums are unbiased."),
    ],
)
def test_a_guarantee_renders_itself_and_survives_json(guarantee, sentence):
    assert str(guarantee) == sentence
    again = Guarantee.from_dict(json.loads(json.dumps(guarantee.as_dict(), allow_nan=False)))
    assert again == guarantee
    assert hash(again) == hash(guarantee)


def test_an_error_of_one_or_more_is_not_a_guarantee():
    assert Guarantee.from_certificate(Certificate(1.0, 0.1, 0.1, "gaussian", 1.0, True, 1.0)) is None


@pytest.mark.parametrize(
    "wrong", [{"queries": "some"}, {"eps": -0.1}, {"eps": "small"}, {"delta": np.nan}, {"n_stages": 0}]
)
def test_what_cannot_be_a_guarantee_is_refused(wrong):
    with pytest.raises(CoresiftError, match=f"{next(iter(wrong))} = "):
        Guarantee(**({"queries": "all", "eps": 0.1} | wrong))


# take.

X = np.arange(18.0).reshape(9, 2)
ROWS = [0, 4, 7]


def test_take_gives_rows_then_weights():
    core = example_coreset()
    Xs, ys, ws = core.take(X, np.arange(9))
    np.testing.assert_array_equal(Xs, X[ROWS])
    assert ys.tolist() == ROWS
    assert ws.tolist() == [3.0, 1.25, 0.0]
    (only,) = core.take()
    ws[0] = only[0] = -1  # copies
    assert core.weights[0] == 3.0
    assert core.indices.tolist() == ROWS


def test_take_scales_the_weights_to_a_mean_of_one():
    core = Coreset([1, 3, 5], [2.0, 4.0, 0.0], n_samples=6)
    assert core.take()[0].tolist() == core.take(weights="sum")[0].tolist() == [2.0, 4.0, 0.0]
    assert core.take(np.arange(6), weights="mean")[1].tolist() == [1.0, 2.0, 0.0]
    assert Coreset([0], [0.0], n_samples=1).take(weights="mean")[0].tolist() == [0.0]
    with pytest.raises(InvalidInputError, match="weights = 'none'"):
        core.take(weights="none")


def test_take_from_lists_and_frames():
    core = example_coreset()
    names = list("abcdefghi")
    frame = pd.DataFrame(X, columns=["u", "v"], index=names)
    polar = pl.DataFrame(X, schema=["u", "v"])
    assert core.take(names)[0] == ["a", "e", "h"]
    assert core.take(tuple(names))[0] == ["a", "e", "h"]
    pd.testing.assert_frame_equal(core.take(frame)[0], frame.loc[["a", "e", "h"]])
    pd.testing.assert_series_equal(core.take(frame["v"])[0], frame["v"].iloc[ROWS])
    # integer labels in another order: rows are taken by position
    assert core.take(pd.Series(np.arange(9), index=np.arange(9)[::-1]))[0].tolist() == ROWS
    assert core.take(polar)[0].rows() == [tuple(X[i]) for i in ROWS]
    assert core.take(polar["v"])[0].to_list() == X[ROWS, 1].tolist()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
def test_take_from_sparse_matrices(kind, make):
    taken, _ = example_coreset().take(make(X).asformat(kind))
    assert sp.issparse(taken)
    np.testing.assert_array_equal(taken.toarray(), X[ROWS])


def test_take_from_torch_tensors():
    torch = pytest.importorskip("torch")
    core = example_coreset()
    tensor = torch.arange(18.0).reshape(9, 2)
    taken, weights = core.take(tensor)
    assert isinstance(taken, torch.Tensor)
    assert torch.equal(taken, tensor[ROWS])
    assert torch.from_numpy(weights).sum() == 4.25


def test_take_from_anything_with_rows():
    class Rows:
        def __len__(self):
            return 9

        def __getitem__(self, rows):
            assert rows.flags.writeable  # torch warns otherwise
            return rows * 10

    assert example_coreset().take(Rows())[0].tolist() == [0, 40, 70]


@pytest.mark.parametrize("short", [X[:8], [1, 2], pd.DataFrame(X[:8]), pl.DataFrame(X[:8]), sp.coo_array(X[:8])])
def test_take_names_both_lengths(short):
    rows = 2 if isinstance(short, list) else 8
    with pytest.raises(InvalidInputError, match=f"array 1 of take.* has {rows} rows; .*n_samples = 9"):
        example_coreset().take(X, short)


@pytest.mark.parametrize(
    "thing", [3, None, np.float64(2), np.array(5), iter([1]), dict.fromkeys(range(9)), "abcdefghi"]
)
def test_take_refuses_what_has_no_rows(thing):
    with pytest.raises(InvalidTypeError):
        example_coreset().take(thing)


# Files.

numbers = st.floats(0, 1e300)
balls = st.builds(
    QueryBall,
    st.sampled_from(["gaussian", "laplacian"]),
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=4),
    st.floats(1e-300, 1e300),
    st.one_of(st.just(np.inf), st.floats(1e-300, 1e300)),
)


guarantees = st.builds(
    Guarantee,
    st.sampled_from(["single", "all", "families", "sums"]),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), st.floats(0, 1)),
    st.text(max_size=9),
    st.one_of(st.none(), st.just(np.inf), st.floats(1e-300, 1e300)),
    st.one_of(st.none(), st.integers(1, 2**63)),
    st.one_of(st.none(), numbers),
    st.integers(1, 99),
)


@st.composite
def coresets(draw):
    n = draw(st.integers(1, 2**60))
    rows = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=20))
    weights = draw(st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    text = st.one_of(st.none(), st.text(max_size=20))
    return Coreset(
        rows, weights, n, method=draw(st.text(max_size=9)), n_draws=draw(st.one_of(st.none(), st.integers(0, 2**62))),
        seed=draw(st.one_of(st.none(), st.integers(0, 2**128))), bound=draw(text),
        guarantee=draw(st.one_of(st.none(), guarantees)),
        total_sensitivity=draw(st.one_of(st.none(), st.just(np.inf), numbers)), ball=draw(st.one_of(st.none(), balls)),
        total_weight=draw(st.one_of(st.none(), numbers)),
    )  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(core=coresets())
def test_a_file_gives_back_what_was_saved(suffix, core):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"core{suffix}"
        core.save(path)
        loaded = Coreset.load(str(path))
        assert list(path.parent.iterdir()) == [path]
    assert loaded == core
    assert loaded.indices.dtype == np.int64
    assert not loaded.indices.flags.writeable


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_coresets_give_equal_files(tmp_path, suffix, monkeypatch):
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    example_coreset().save(paths[0])
    monkeypatch.setattr(time, "time", lambda: 2e9)  # members of a zip file carry a date
    example_coreset().save(str(paths[1]))
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
@settings(max_examples=300)
def test_a_damaged_file_is_refused_or_harmless(tmp_path_factory, suffix, data):
    """One byte changed, or a piece cut off or out: an error that names the file, or the very same coreset."""
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    core = example_coreset()
    core.save(path)
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["change", "cut off", "cut out"]))
    if kind == "change":
        bad = whole[:start] + bytes([whole[start] ^ data.draw(st.integers(1, 255))]) + whole[start + 1 :]
    elif kind == "cut off":
        bad = whole[:start]
    else:
        bad = whole[:start] + whole[start + data.draw(st.integers(1, 99)) :]
    path.write_bytes(bad)
    loaded, complaint = None, str(path)
    try:
        loaded = Coreset.load(path)
    except InvalidInputError as error:
        complaint = str(error)
    assert loaded in (None, core)
    assert str(path) in complaint


def rewritten(path, **changes):
    """The .npz at ``path`` with other members, by NumPy itself: a valid file of a wrong content."""
    with np.load(path) as members:
        content = dict(members) | changes
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    path.write_bytes(buffer.getvalue())


def test_a_valid_file_of_other_content_fails_the_checksum(tmp_path):
    path = tmp_path / "core.npz"
    for changes in ({"row": np.array([0, 4, 8])}, {"weight": np.array([3.0, 1.25, 1e-9])}):
        example_coreset().save(path)
        rewritten(path, **changes)
        with pytest.raises(InvalidInputError, match="checksum"):
            Coreset.load(path)
    example_coreset().save(path)
    with np.load(path) as members:
        header = json.loads(str(members["header"]))
    rewritten(path, header=np.array(json.dumps(header | {"n_samples": 11})))
    with pytest.raises(InvalidInputError, match="checksum"):
        Coreset.load(path)
    rewritten(path, header=np.array(json.dumps(header)))
    assert Coreset.load(path) == example_coreset()


def test_a_newer_format_is_refused_and_says_so(tmp_path):
    path = tmp_path / "core.npz"
    example_coreset().save(path)
    with np.load(path) as members:
        header = json.loads(str(members["header"]))
    rewritten(path, header=np.array(json.dumps(header | {"version": 3})))
    with pytest.raises(InvalidInputError, match=r"core.npz: format version 3.*reads version 2.*newer"):
        Coreset.load(path)
    rewritten(path, header=np.array(json.dumps(header | {"version": 1})))  # with the guarantee as a sentence
    with pytest.raises(InvalidInputError, match=r"core.npz: format version 1.*reads version 2.*save it again"):
        Coreset.load(path)


def test_foreign_files_are_refused_by_name(tmp_path):
    table = pa.table({"row": [1], "weight": [2.0]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    with pytest.raises(InvalidInputError, match=r"a\.parquet: not a coreset file"):
        Coreset.load(path)
    path = tmp_path / "a.npz"
    npy = io.BytesIO()
    np.save(npy, np.arange(3))
    for write in (
        lambda: np.savez(path, row=np.arange(3)),
        lambda: np.savez(path, header=np.array("{}"), row=np.arange(3), weight=np.ones(3)),
        lambda: np.savez(path, header=np.array("[1]"), row=np.arange(3), weight=np.ones(3)),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(b"PK\x03\x04 and then nothing"),
        lambda: path.write_bytes(pickle.dumps({"row": 1})),
        lambda: np.savez(path, row=np.array([{}], dtype=object), header=np.array("{}")),
        lambda: zipfile.ZipFile(path, "w").close(),
        lambda: path.write_bytes(npy.getvalue()),
    ):
        write()
        with pytest.raises(InvalidInputError, match=r"a\.npz"):
            Coreset.load(path)


def test_missing_files_and_unknown_names(tmp_path):
    with pytest.raises(FileNotFoundError):
        Coreset.load(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError):
        example_coreset().save(tmp_path / "no folder" / "a.npz")
    for path in (tmp_path / "core.csv", tmp_path / "core"):
        for task in (example_coreset().save, Coreset.load):
            with pytest.raises(InvalidInputError, match=r"unknown suffix.*use \.npz or \.parquet"):
                task(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, suffix, broken):
    path = tmp_path / f"core{suffix}"
    example_coreset().save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(f"os.{broken}", fail)
    with pytest.raises(OSError, match="disk full"):
        example_coreset(seed=1).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "core.parquet"
    example_coreset().save(path)
    before = path.read_bytes()
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for task in (example_coreset(seed=1).save, Coreset.load):
        with pytest.raises(MissingExtraError, match=r"install coresift\[io\] \(in a clone"):
            task(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_is_plain_for_other_readers(tmp_path):
    example_coreset().save(tmp_path / "core.parquet")
    frame = pd.read_parquet(tmp_path / "core.parquet")
    assert frame.to_dict("list") == {"row": [0, 4, 7], "weight": [3.0, 1.25, 0.0]}
