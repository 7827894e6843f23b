"""CIFAR-10 at equal time: baselines are interpolated as stated, and the page shows what the records say."""

import math
from pathlib import Path

import pytest

from paper.__main__ import main
from paper.bench.store import RESULTS
from paper.bench.summary import FULL
from paper.equal_time import FEWER_EPOCHS, UNIFORM, EqualTime, Point, draw, equal_time

ROOT = Path(__file__).parents[2]


def point(epochs: float, mean: float) -> Point:
    return Point("RBF", 0.05, epochs, mean, None)


def test_a_baseline_is_interpolated_in_the_logarithm_of_the_time() -> None:
    line = [point(3.0, 60.0), point(12.0, 80.0), point(48.0, 84.0)]
    assert EqualTime.above(point(6.0, 75.0), line) == pytest.approx(5.0)  # half way between 60 and 80
    assert EqualTime.above(point(24.0, 75.0), line) == pytest.approx(-7.0)
    assert EqualTime.above(point(3.0, 61.0), line) == pytest.approx(1.0)


def test_time_is_that_of_the_samples_raised_by_selection() -> None:
    found = equal_time(RESULTS)
    assert [each.epochs for each in found.full] == pytest.approx([*FEWER_EPOCHS.values(), 60], rel=1e-3)
    assert found.uniform[-1] == found.full[-1]
    assert {each.method for each in found.uniform[:-1]} == {UNIFORM}
    assert FULL not in {each.method for each in found.methods}
    for each in found.methods:
        assert each.epochs >= 60 * each.budget  # selection is counted
        if each.method in ("CCS", "MODERATE"):  # five epochs of all the data, forward and backward, and passes
            assert each.epochs > 60 * each.budget + 3
        if each.method.startswith(("RANDOM", "ADAPTIVE-RANDOM", "STRATIFIED", "RS2")):
            assert each.epochs == pytest.approx(60 * each.budget, rel=0.01)


def test_the_figure_has_every_point_and_the_page_shows_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = equal_time(RESULTS)
    (ax,) = draw(found).axes
    drawn = {(round(x, 9), round(y, 9)) for line in ax.containers for x, y in line[0].get_xydata()}
    assert drawn == {(round(each.epochs, 9), round(each.mean, 9)) for each in (*found.methods, *found.full)}
    assert all(math.isfinite(value) for each in drawn for value in each)
    out = tmp_path / "cifar10.svg"
    assert main(["figure", "equal-time", "--out", str(out)]) == 0
    committed = ROOT / "docs" / "figures" / "cifar10.svg"
    assert 0.5 < out.stat().st_size / committed.stat().st_size < 2.0  # the bytes depend on the version of Matplotlib
    assert "](figures/cifar10.svg)" in (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
