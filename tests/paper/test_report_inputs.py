"""The part of a report about the data: sensitivities, images, certificates, or why there are none."""

import re
from pathlib import Path

import numpy as np
import pytest

from coresift import RBFCoreset
from coresift.data.datasets import load_dataset
from coresift.data.splits import ArrayDataset, DatasetSplits, LazyDataset
from paper.report.figures import NARROW, WIDE, histogram
from paper.report.inputs import Inputs, Missing, look_at, matrix, prove, thumbnail
from paper.report.page import _environment
from paper.report.svg import Sheet

N, SIDE = 300, 5


def made_up(x: np.ndarray, names: tuple[str, ...] | None = None) -> DatasetSplits:
    train = ArrayDataset(x, np.arange(len(x)) % 3)
    return DatasetSplits("made up", train, train, 3, "classification", x.shape[1:], class_names=names)


def section_of(inputs: Inputs) -> str:
    """What the page says about the data."""
    sheet = Sheet()
    histograms = [histogram(sheet, inputs, size, "wide") for size in (WIDE, NARROW)]
    parts = _environment().get_template("parts.html").module
    return str(parts.inputs_section(inputs, histograms))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Grey noise, and two images far from all others."""
    x = np.random.default_rng(0).integers(100, 140, (N, 1, SIDE, SIDE), dtype=np.uint8)
    x[[17, 42]] = 255
    return x


@pytest.fixture(scope="module")
def found(images: np.ndarray) -> Inputs:
    names = ("<b>zero</b>", "one", "two")
    inputs = look_at("any", [0.1, 0.2, 0.5, 1.0], Path(), load=lambda *_: made_up(images, names))
    assert isinstance(inputs, Inputs)
    return inputs


def test_planted_outliers_are_the_most_sensitive(found: Inputs) -> None:
    assert {one.row for one in found.most[:2]} == {17, 42}
    assert {17, 42}.isdisjoint(one.row for one in found.least)
    assert found.sensitivities.mean() == pytest.approx(1.0)
    assert found.most[0].share == found.sensitivities.max()
    assert found.least[0].share == found.sensitivities.min()


def test_certificates_are_those_of_the_coreset_itself(found: Inputs, images: np.ndarray) -> None:
    assert [proof.budget for proof in found.proofs] == [0.1, 0.5]  # the smallest and the largest below all
    X = images.reshape(N, -1) / np.float32(255.0)
    core = RBFCoreset(random_state=0).fit(X).sample(0.1, method="keys", random_state=0, normalize=True)
    proof = found.proofs[0]
    assert proof.size == core.size == 30
    assert proof.is_exact
    assert proof.confidence == 1.0
    assert proof.eps == pytest.approx(core.certify(X, method="exact").eps, rel=1e-6)
    assert found.proofs[1].eps < proof.eps  # five times as many rows
    assert found.proofs[1].uniform_eps < proof.uniform_eps


def test_large_data_are_certified_from_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.report.inputs._LEAST_SAMPLED", 50)
    monkeypatch.setattr("paper.report.inputs._WORK", 1.0)
    X = np.random.default_rng(1).normal(size=(400, 3))
    (proof,) = prove(RBFCoreset(random_state=0).fit(X), X, [0.25])
    assert (proof.n_sampled, proof.is_exact, proof.confidence) == (50, False, 0.95)


def test_the_section_shows_histogram_images_and_bounds(found: Inputs) -> None:
    text = section_of(found)
    assert text.count("<img ") == len(found.most) + len(found.least)
    assert "class &lt;b&gt;zero&lt;/b&gt;" in text
    assert f"{100 * found.proofs[0].eps:.1f} %" in text
    counts = [int(count.replace(",", "")) for count in re.findall(r"<title>([\d,]+) samples between", text)]
    assert sum(counts) == 2 * N  # every sample once, in the wide and in the narrow figure


def test_equal_rows_and_rows_of_a_table_have_a_section_too() -> None:
    equal = look_at("any", [0.5], Path(), load=lambda *_: made_up(np.full((20, 3, 4, 4), 7, np.uint8)))
    table = look_at("any", [], Path(), load=lambda *_: made_up(np.eye(20, dtype=np.float32)))
    assert isinstance(equal, Inputs)
    assert isinstance(table, Inputs)
    assert section_of(equal).count("<img ") > 0
    text = section_of(table)
    assert "<img " not in text
    assert "nothing to prove" in text


def test_bytes_become_shares_of_255_and_floats_stay() -> None:
    bytes_ = np.array([[[[0, 255]]]], np.uint8)
    np.testing.assert_array_equal(matrix(ArrayDataset(bytes_, np.zeros(1, int))), [[0.0, 1.0]])
    floats = np.ones((2, 3), np.float32)
    assert matrix(ArrayDataset(floats, np.zeros(2, int))) is floats or np.shares_memory(
        matrix(ArrayDataset(floats, np.zeros(2, int))), floats
    )


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    without = look_at("mnist", [0.1], None)
    assert isinstance(without, Missing)
    assert "--data-dir" in without.reason
    empty = look_at("mnist", [0.1], tmp_path)
    assert isinstance(empty, Missing)
    assert "train-images" in empty.reason
    lazy = LazyDataset(["a.jpg"], np.zeros(1, np.int64), 8)
    splits = DatasetSplits("photos", lazy, lazy, 1, "classification", (3, 8, 8))
    found = look_at("photos", [0.1], tmp_path, load=lambda *_: splits)
    assert isinstance(found, Missing)
    assert "coresift select" in found.reason


@pytest.mark.slow
def test_a_data_set_by_name(tmp_path: Path) -> None:
    inputs = look_at("digits", [0.05], tmp_path)
    assert isinstance(inputs, Inputs)
    assert inputs.n_samples == len(load_dataset("digits").train)
    assert inputs.proofs[0].eps < 1.0


@pytest.mark.parametrize("x", [np.zeros((4, 1, 2, 2)), np.zeros((4, 2, 2, 2), np.uint8), np.zeros((4, 2, 2), np.uint8)])
def test_what_is_not_an_image_has_no_picture(x: np.ndarray) -> None:
    assert thumbnail(made_up(x), 0, 1.0).image is None
