"""The study of acceleration: rivals at equal samples, the test of non-inferiority, and data that are spoilt."""

import numpy as np
import pytest

from paper.acceleration import Record, Run, cells, no_worse, page, runs, samples_saved, spoilt


def record(method: str, epochs: int, seed: int, accuracy: float, samples: float) -> Record:
    return Record(Run("mnist", "clean", method, epochs, seed), accuracy, samples, samples, "")


def test_the_rival_has_as_many_samples() -> None:
    records = [record("FULL", epochs, seed, 90.0 + epochs + seed, epochs) for epochs in (1, 2, 4, 8) for seed in (0, 1)]
    records += [record("AUTO", 8, seed, 95.0 + seed, np.sqrt(8.0)) for seed in (0, 1)]  # halfway between 2 and 4
    (ours,) = (cell for cell in cells(records) if cell.method == "AUTO")
    assert ours.differences == pytest.approx((2.0, 2.0))
    assert all(cell.difference == 0 for cell in cells(records) if cell.method == "FULL")
    assert "| mnist, clean |  |  |  | +2.00 (2.8) |" in page(records)
    assert samples_saved(cells(records), ours) == pytest.approx(2.0 ** (2.0 / 4.0))  # FULL gains 4 from 4 to 8 epochs
    assert "| clean | 1.41 |  |" in page(records)


def test_no_worse_is_a_test() -> None:
    rng = np.random.default_rng(0)
    wrong = np.mean([no_worse(rng.normal(-0.3, 0.5, 8)) < 0.05 for _ in range(4000)])
    assert abs(wrong - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / 4000)  # at the margin it errs as often as it says
    assert np.mean([no_worse(rng.normal(0.3, 0.5, 8)) < 0.05 for _ in range(500)]) > 0.8  # power
    assert (no_worse([0.1]), no_worse([0.0, 0.0]), no_worse([-0.4, -0.4])) == (1.0, 0.0, 1.0)


def test_spoilt_data() -> None:
    X, y = np.arange(2000.0).reshape(-1, 2).astype(np.float32), np.arange(1000) % 4
    wrong = spoilt(X, y, "20 % wrong", 0)[1]
    assert (wrong != y).sum() == 200
    copies, labels = spoilt(X, y, "duplicates", 0)
    assert len(np.unique(np.rint(copies), axis=0)) == 300
    np.testing.assert_array_equal(labels, np.rint(copies[:, 0]) // 2 % 4)
    assert len(list(runs(3))) == len(set(runs(3))) == 3 * (9 * 12 + 12 * 6 + 12)
