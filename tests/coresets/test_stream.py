"""Streams: unbiased sums, an error that is accounted for, memory that grows with the logarithm, state that goes on."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coresift import InvalidInputError, InvalidTypeError, StreamingCoreset, audit


def rows(n: int = 20_000, d: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[: n // 50] = 2.0 * X[: n // 50] + 3.0
    return X[rng.permutation(n)]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["gaussian", "laplacian"])
def test_batches_do_not_matter_and_rows_are_those_of_the_stream(loss: str) -> None:
    X = rows()
    w = np.random.default_rng(2).random(len(X))
    whole = StreamingCoreset(150, loss=loss, bandwidth=3.0, random_state=4).partial_fit(X, sample_weight=w)
    pieces = StreamingCoreset(150, loss=loss, bandwidth=3.0, random_state=4)
    for start in range(0, len(X), 333):
        pieces.partial_fit(X[start : start + 333], sample_weight=w[start : start + 333])
    core = whole.coreset()
    assert pieces.coreset() == core
    assert core.total_weight == pytest.approx(w.sum(), rel=1e-14)
    assert whole.coreset() == core  # asking changes nothing
    np.testing.assert_array_equal(whole.points_, X[core.indices])
    assert core.size <= 150
    assert core.n_samples == len(X)
    assert core.method == "stream"


def test_few_rows_are_kept_as_they_are() -> None:
    X = rows(80)
    w = np.arange(80.0)
    stream = StreamingCoreset(100).partial_fit(X, sample_weight=w)
    core = stream.coreset()
    np.testing.assert_array_equal(core.indices, np.arange(1, 80))  # the row without weight is not there
    np.testing.assert_array_equal(core.weights, w[1:])
    assert stream.error_ == 0.0
    assert core.total_weight == w.sum()


def test_sums_are_unbiased_and_within_the_stated_error() -> None:
    X, w = rows(8000), np.random.default_rng(1).random(8000) + 0.5
    errors, stated, deviations = [], [], []
    center = X.mean(axis=0)
    query = center + np.array([1.0, 0.5, 0.0])
    loss = np.exp(-((X - query) ** 2).sum(axis=1) / 9.0)
    truth = w @ loss
    for seed in range(40):
        stream = StreamingCoreset(100, bandwidth=3.0, center=center, bound="closed-form", random_state=seed)
        for start in range(0, len(X), 3000):
            stream.partial_fit(X[start : start + 3000], sample_weight=w[start : start + 3000])
        core = stream.coreset()
        errors.append(core.weights @ loss[core.indices] / truth - 1)
        stated.append(stream.error_)
        deviations.append(stream.deviation_)
    spread = max(deviations)
    assert abs(np.mean(errors)) < 5 * spread / math.sqrt(len(errors))
    assert np.std(errors) < 1.5 * spread  # the bound on the variance, with room for 40 draws
    assert np.std(errors) > 0.05 * spread  # and it is no wild overestimate
    assert np.all(np.abs(errors) < stated)


def test_the_error_is_that_of_the_draws_added_up() -> None:
    stream = StreamingCoreset(50, bandwidth=3.0, bound="closed-form", delta=0.1).partial_fit(rows(50 * 8 * 4))
    assert sorted(stream._levels) == [2]  # four buffers: two carries
    assert stream._n_draws == 4 + 2 + 1
    (node,) = stream._levels.values()

    def bernstein(t: float, m: int, delta: float) -> float:
        a = 2 * t * math.log(2 / delta) / m
        return a / 6 + math.sqrt(a * a / 36 + a)

    core = stream.coreset()
    assert core.total_sensitivity is not None
    last = bernstein(core.total_sensitivity, 50, 0.05)
    assert stream.error_ == pytest.approx((1 + node.error) * (1 + last) - 1)
    # three draws on the way of every row, each with a total of at least 1
    least = [bernstein(1.0, 200, 3 * 0.1 / (math.pi * j) ** 2) for j in (1, 3, 7)]
    assert node.error > math.prod(1 + e for e in least) - 1
    assert sum(3 * 0.1 / (math.pi * j) ** 2 for j in range(1, 10_000)) <= 0.05


def test_memory_grows_with_the_logarithm() -> None:
    size = 20
    stream = StreamingCoreset(size, bandwidth=2.0, bound="closed-form")
    X = rows(4000, 2)
    kept = []
    for _ in range(16):
        stream.partial_fit(X)
        kept.append(stream.n_kept)
    leaves = stream.n_seen_ / (8 * size)
    assert max(kept) <= 8 * size + 4 * size * (math.log2(leaves) + 1)


@pytest.mark.slow
def test_a_coreset_of_a_stream_is_nearly_as_good_as_one_of_all_rows() -> None:
    X = rows()
    core = StreamingCoreset(500, bandwidth=3.0, random_state=0).partial_fit(X).coreset()
    assert audit(X, core).worst_error < 0.25
    shifted = StreamingCoreset(500, bandwidth=3.0, random_state=0).partial_fit(X + 1.0).coreset()
    wrong = core.__class__(shifted.indices[:250], shifted.weights[:250], len(X), ball=core.ball)
    assert audit(X, wrong).worst_error > 0.3  # power: half of the mass is missed


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 100, 7000, 20_000])
def test_state_is_saved_and_goes_on(tmp_path: Path, cut: int) -> None:
    X, w = rows().astype(np.float32), np.linspace(0, 1, 20_000)
    path = tmp_path / "stream.npz"
    one = StreamingCoreset(60, bandwidth="median", n_cells=8, random_state=9)
    one.partial_fit(X, sample_weight=w)
    two = StreamingCoreset(60, bandwidth="median", n_cells=8, random_state=9)
    if cut:
        two.partial_fit(X[:cut], sample_weight=w[:cut])
    two.save(path)
    two = StreamingCoreset.load(path)
    if cut < len(X):
        two.partial_fit(X[cut:], sample_weight=w[cut:])
    a, b = one.coreset(), two.coreset()
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-12)
    assert one.error_ == two.error_
    assert two.points_ is not None
    assert two.points_.dtype == np.float32
    assert os.listdir(tmp_path) == ["stream.npz"]


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"words")
    with pytest.raises(InvalidInputError, match=r"a\.npz: not a stream"):
        StreamingCoreset.load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", header=np.array("{}"))
    with pytest.raises(InvalidInputError, match="not a stream file"):
        StreamingCoreset.load(tmp_path / "b.npz")
    with pytest.raises(InvalidInputError, match=r"use \.npz"):
        StreamingCoreset(5).save(tmp_path / "c.pickle")


def test_bad_input() -> None:
    stream = StreamingCoreset(10)
    with pytest.raises(InvalidInputError, match="no rows of positive weight"):
        stream.coreset()
    stream.partial_fit(np.ones((3, 2)), sample_weight=np.zeros(3))
    with pytest.raises(InvalidInputError, match="no rows of positive weight"):
        stream.coreset()
    stream.partial_fit(np.zeros((3, 2)))
    with pytest.raises(InvalidInputError, match="X has 3 columns, but the stream has 2"):
        stream.partial_fit(np.zeros((3, 3)))
    with pytest.raises(InvalidInputError, match="NaN"):
        stream.partial_fit(np.full((1, 2), np.nan))
    with pytest.raises(InvalidTypeError, match="dense"):
        stream.partial_fit(sp.csr_array(np.eye(2)))
    assert stream.n_seen_ == 6  # what was refused was not counted
    for wrong in ({"size": 0}, {"loss": "x"}, {"radius": 0.0}, {"delta": 2.0}, {"bound": "exact"}):
        with pytest.raises((InvalidInputError, InvalidTypeError)):
            StreamingCoreset(**{"size": 5, **wrong})  # type: ignore[arg-type]


def test_a_batch_that_is_refused_leaves_the_stream_as_it_was():
    rng = np.random.default_rng(0)
    first, last = rng.standard_normal((30, 2)), rng.standard_normal((5, 2))
    plain, tried = (StreamingCoreset(5, bandwidth=1.0, random_state=0) for _ in range(2))
    for stream in (plain, tried):
        stream.partial_fit(first)
    with pytest.raises(InvalidInputError):
        tried.partial_fit(np.full((20, 2), 1e80))
    for stream in (plain, tried):
        stream.partial_fit(last)
    assert tried.coreset() == plain.coreset()
    assert tried.coreset().n_samples == 35


def test_frames_of_another_order_are_refused() -> None:
    import pandas as pd

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "b"])
    stream = StreamingCoreset(10).partial_fit(frame)
    with pytest.raises(InvalidInputError, match=r"columns \['b', 'a'\], but the stream \['a', 'b'\]"):
        stream.partial_fit(frame[["b", "a"]])
    assert stream.partial_fit(frame).partial_fit(frame.to_numpy()).n_seen_ == 60


def test_labels_and_ids_go_with_the_rows_through_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((900, 3)), np.array(["a", "bcd"])[rng.integers(0, 2, 900)]
    ids = 10 * np.arange(900) + 7
    stream = StreamingCoreset(20, random_state=1)
    for part in np.array_split(np.arange(900), 11):
        stream.partial_fit(X[part], labels[part].astype(object), ids=ids[part])
        stream.save(tmp_path / "s.npz")
        stream = StreamingCoreset.load(tmp_path / "s.npz")
    core = stream.coreset()
    np.testing.assert_array_equal(stream.labels_, labels[core.indices])
    np.testing.assert_array_equal(stream.ids_, ids[core.indices])
    np.testing.assert_array_equal(stream.points_, X[core.indices])
    with pytest.raises(InvalidInputError, match="y and ids are of the kinds"):
        stream.partial_fit(X[:5])
    with pytest.raises(InvalidInputError, match=r"ids has shape \(4,\)"):
        stream.partial_fit(X[:5], labels[:5], ids=ids[:4])
    plain = StreamingCoreset(20, random_state=1).partial_fit(X)
    assert plain.coreset() == core
    assert plain.labels_ is None


def test_the_names_of_columns_outlive_a_file(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((50, 2)), columns=["a", "b"])
    StreamingCoreset(5).partial_fit(frame).save(tmp_path / "s.npz")
    with pytest.raises(InvalidInputError, match=r"columns \['b', 'a'\], but the stream \['a', 'b'\]"):
        StreamingCoreset.load(tmp_path / "s.npz").partial_fit(frame[["b", "a"]])


def test_a_stream_of_tables_goes_through_a_preparation(tmp_path: Path) -> None:
    import pandas as pd

    from coresift import Preparation

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300) * 1e6, "b": rng.choice(["x", "y"], 300)})
    made = Preparation().fit(frame[:100])
    stream = StreamingCoreset(15, preparation=made)
    for part in np.array_split(np.arange(300), 4):
        stream.partial_fit(frame.iloc[part])
        stream.save(tmp_path / "s.npz")
        stream = StreamingCoreset.load(tmp_path / "s.npz")
    assert stream.preparation == made
    assert stream.coreset() == StreamingCoreset(15).partial_fit(made.transform(frame)).coreset()
