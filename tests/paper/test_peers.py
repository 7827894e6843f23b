"""The benchmark against other packages, with those of its methods that need none of them."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from coresift import Coreset
from paper.benchmarks.peers import figure, quality, report, running
from paper.benchmarks.peers.data import Case, mixture
from paper.benchmarks.peers.methods import METHODS, Method, Subset, equal, represented, snapped
from paper.benchmarks.peers.quality import estimated_square, judged, labelled, reference

PLAIN = ["uniform", "k-means", "coresift sample", "coresift reweight", "coresift refine"]


@pytest.fixture(scope="module")
def data():
    return mixture(600, 5)


@pytest.fixture(scope="module")
def ref(data):
    return reference(data.X)


def test_the_error_is_that_of_the_certificate(data, ref):
    rng = np.random.default_rng(0)
    indices = np.sort(rng.choice(600, 40, replace=False))
    subset = Subset(weights=rng.uniform(5.0, 25.0, 40), indices=indices)
    certificate = Coreset(indices, subset.weights, 600, ball=ref.ball).certify(data.X, method="exact")
    found = judged(data, subset, ref)
    assert found["certified"] == pytest.approx(certificate.eps, rel=1e-5)
    assert found["mmd"] == pytest.approx(certificate.discrepancy, rel=1e-6)
    assert found["best_mmd"] < found["mmd"]
    assert found["found"] <= found["certified"]


def test_with_many_rows_the_high_orders_are_taken_together(data, ref, monkeypatch):
    """The bound stays above what is found and above the certificate, and is little larger than it."""
    subset = equal(np.arange(0, 600, 20), 600)
    exact = judged(data, subset, ref)
    monkeypatch.setattr(quality, "_EXACT_ROWS", 100)
    together = judged(data, subset, ref)["certified"]
    assert exact["certified"] <= together < 1.5 * exact["certified"]
    assert together < 0.9 * exact["mmd"] / ref.floor  # power: the discrepancy alone would not do


def test_points_that_are_rows_are_judged_like_rows(data, ref):
    rows = equal(np.arange(0, 600, 20), 600)
    points = Subset(weights=rows.weights, positions=data.X[rows.indices], groups=np.zeros(600, dtype=np.int64))
    by_row, by_point = judged(data, rows, ref), judged(data, points, ref)
    assert by_point["mmd"] == pytest.approx(by_row["mmd"], rel=1e-6)
    assert 0.5 * by_row["found"] < by_point["found"] <= by_point["certified"]


@pytest.mark.parametrize("seed", range(3))
def test_the_estimate_of_the_constant_is_unbiased(data, ref, seed):
    estimate, error = estimated_square(ref.points, seed)
    assert abs(estimate - ref.square) < 5 * error  # fails by chance less than once in a million
    assert error < 1e-4 * ref.square  # and would notice an error of a thousandth


def test_a_known_reference_is_not_computed_again(data, ref):
    known = {"square": 0.25, "square_error": 1e-3, "floor": 0.5, "certificate_processor": 7.0}
    again = reference(data.X, known)
    assert (again.square, again.floor, again.is_exact) == (0.25, 0.5, False)
    assert again.ball == ref.ball


@pytest.mark.parametrize("name", PLAIN)
def test_weights_stand_for_all_rows(name, data, ref):
    for subset in METHODS[name].choose(data.X, 30, ref.ball.scale, 0).values():
        assert len(subset.weights) <= 30
        assert (subset.weights >= 0).all()
        # a draw in proportion to sensitivities has weights of that sum in the mean only
        assert subset.weights.sum() == pytest.approx(600, rel=0.2 if "coresift" in name else 1e-9)
        if subset.indices is not None:
            assert (np.diff(subset.indices) > 0).all()


def test_refined_beats_uniform(data, ref):
    errors = {}
    for name in ("uniform", "coresift refine"):
        (subset,) = METHODS[name].choose(data.X, 30, ref.ball.scale, 0).values()
        errors[name] = judged(data, subset, ref)["certified"]
    assert errors["coresift refine"] < 0.5 * errors["uniform"]


def test_ways_to_weight():
    X = np.array([[0.0], [1.0], [10.0], [11.0], [12.0]])
    twice = equal(np.array([3, 0, 3]), 6)
    assert (twice.indices.tolist(), twice.weights.tolist()) == ([0, 3], [2.0, 4.0])
    counted = represented(X, np.array([3, 0]))
    assert (counted.indices.tolist(), counted.weights.tolist()) == ([0, 3], [2.0, 3.0])
    merged = snapped(X, np.array([[0.2], [0.3], [11.4]]), np.array([1.0, 2.0, 3.0]))
    assert (merged.indices.tolist(), merged.weights.tolist()) == ([0, 3], [3.0, 3.0])


def test_a_point_gets_the_label_of_most_of_its_rows(data):
    groups = np.where(data.y == 3, 0, 1)
    subset = Subset(weights=np.ones(3), positions=data.X[:3] + 0.0, groups=groups)
    labels = labelled(data, subset)[1]
    assert labels[0] == 3
    assert labels[1] == np.bincount(data.y[data.y != 3]).argmax()
    assert labels[2] == data.y[2]  # nobody is nearest to it: the label of its own nearest row


def test_what_was_or_would_be_too_slow_is_not_tried(tmp_path):
    log = running.Log(tmp_path / "runs.jsonl")
    linear = METHODS["uniform"]
    about = {"method": "uniform", "n": 100, "d": 2, "size": 10}
    log.add({"case": "a", "status": "too slow"} | about)
    assert "too slow already on a" in running._hopeless(linear, about, log, 60.0)
    assert running._hopeless(linear, about | {"n": 99}, log, 60.0) is None

    quadratic = replace(linear, is_quadratic=True)
    log = running.Log(tmp_path / "other.jsonl")
    log.add({"case": "a", "status": "ok", "processor": 3.0} | about)
    assert running._hopeless(quadratic, about | {"n": 600}, log, 60.0) is None  # 108 s
    assert "some 300 s" in running._hopeless(quadratic, about | {"n": 1000}, log, 60.0)


def test_a_run_can_be_taken_up_and_says_what_is_absent(tmp_path, monkeypatch):
    pytest.importorskip("resource")
    absent = Method(METHODS["uniform"].choose, "of a package", package="nowhere", modules=("nowhere_at_all",))
    huge = Method(METHODS["uniform"].choose, "", most_rows=10, beyond="needs {gb:,.0f} GB")
    monkeypatch.setitem(METHODS, "absent", absent)
    monkeypatch.setitem(METHODS, "huge", huge)
    case = Case("tiny", lambda _: mixture(400, 3), (20,))
    log = running.Log(tmp_path / "runs.jsonl")
    names = ["uniform", "absent", "huge"]
    running.run([case], log, data_dir=None, limit=60.0, methods=names)
    assert [record.get("status") for record in log.records] == [None, "ok", "absent", "not tried"]
    measured = log.records[1]
    assert len(measured["quality"]["uniform"]) == running.SEEDS
    assert len({found["mmd"] for found in measured["quality"]["uniform"]}) == running.SEEDS
    assert measured["peak_mb"] > 10

    again = running.Log(tmp_path / "runs.jsonl")
    assert again.records == log.records
    running.run([replace(case, load=None)], again, data_dir=None, limit=60.0, methods=names)  # loads nothing
    assert again.records == log.records
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4

    monkeypatch.setattr(figure, "draw", lambda records, out: None)
    report.write(log.records, tmp_path, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "## tiny, m = 20" in page
    assert "absent: nowhere is not installed" in page
    assert (tmp_path / re.search(r"discussed in .*\((.+)\)", page)[1]).resolve().is_file()
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[0])["n"] == 400


def test_absent_files_are_said(tmp_path):
    said = []
    log = running.Log(tmp_path / "runs.jsonl")
    running.run([Case("gone", lambda _: None, (20,))], log, data_dir=None, limit=1.0, say=said.append)
    assert said == ["gone: no files; name their folder with --data-dir"]
    assert log.records == []
