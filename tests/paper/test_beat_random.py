"""The page of aims says what the records say."""

from dataclasses import replace

import pytest

from paper.__main__ import main
from paper.bench.protocol import Run
from paper.bench.store import RESULTS, Store
from paper.benchmarks.beat_random import Records, Runs, above, family, not_below, page, time_ratio


def runs(*values, seconds=1.0):
    return Runs(dict(enumerate(values)), dict.fromkeys(range(len(values)), seconds))


def test_verdicts_need_the_points_and_the_evidence():
    clear, noisy, none = family(
        [
            ("clear", runs(98.0, 98.2, 98.1, 98.3), runs(96.9, 97.0, 97.0, 97.1)),
            ("noisy", runs(98.0, 95.0, 99.0, 97.0), runs(97.0, 96.0, 97.0, 96.5)),
            ("one seed", runs(98.0), runs(97.0)),
        ]
    )
    assert above(clear, 1.0) == "**yes**"
    assert above(clear, 1.3) == "no"
    assert above(noisy) == above(none) == "above, within noise"
    assert not_below(none) == "not run"
    assert (not_below(clear), not_below(noisy)) == ("**above**", "**not below**")
    (worse,) = family([("worse", runs(96.9, 97.0, 97.0, 97.1), runs(98.0, 98.2, 98.1, 98.3))])
    assert (above(worse), not_below(worse)) == ("no", "below")


def test_holm_counts_the_tests_of_a_family():
    pair = (runs(98.0, 98.2, 98.1), runs(97.5, 97.4, 97.7))
    (alone,) = family([("a", *pair)])
    first, _, _ = family([("a", *pair), ("b", *pair), ("not run", runs(), runs())])
    assert alone.found.p_holm == alone.found.p_value
    assert first.found.p_holm == pytest.approx(2 * alone.found.p_value)


def test_times_are_those_of_common_seeds():
    ours, theirs = Runs({}, {0: 3.0, 1: 5.0, 2: 100.0}), Runs({}, {0: 2.0, 1: 2.0, 7: 50.0})
    assert time_ratio(ours, theirs) == 2.0
    assert time_ratio(ours, runs()) is None
    slow, fast = dict.fromkeys(range(3), "slow"), {0: "slow", 1: "fast", 7: "slow"}
    assert time_ratio(replace(ours, processors=slow), replace(theirs, processors=fast)) == 1.5  # seed 1: two kinds
    speeds, others = dict.fromkeys(range(3), 100.0), {0: 90.0, 1: 300.0, 7: 100.0}  # of one name, but not alike
    assert time_ratio(replace(ours, speeds=speeds), replace(theirs, speeds=others)) == 1.5


def record(method, every, budget, seed, accuracy, seconds, scale="paper"):
    cell = Run("mnist", 1, scale, method, every, budget, seed)
    test = {"accuracy": accuracy, "macro_f1": accuracy, "loss": 0.1}
    spent = {"selection": seconds / 4, "training": 3 * seconds / 4, "evaluation": 9.0}
    about = {"config": {}, "clock": "cpu", "n_epochs": 200, "subset_size": 600, "n_train": 60_000, "curve": []}
    return {"id": cell.id, "cell": vars(cell), "test": test, "seconds": spent, **about}


def test_the_page_of_a_store(tmp_path):
    """Above the paper's best, but only a regime that keeps within twice the time of RANDOM counts."""
    store = Store(tmp_path, "mnist")
    for seed in range(3):
        for made in (
            record("RANDOM", 20, 0.01, seed, 0.93, 10.0),
            record("ADAPTIVE-CORESET", 1, 0.01, seed, 0.995, 25.0),
            record("ADAPTIVE-RANDOM", 1, 0.01, seed, 0.991 + 1e-4 * seed, 10.0),
            record("ADAPTIVE-RANDOM", 1, 0.01, seed, 0.5, 17.5, "equal-time"),
        ):
            store.append(made)
    text = page(Records(tmp_path))
    assert "| 1 % | 99.00 | 99.11 ± 0.01 (3) | ADAPTIVE-RANDOM, R = 1 | 1.00 | **yes** |" in text
    assert "| 3 % | 99.23 | fewer than 3 seeds | | | not run |" in text
    assert "+0.39" in text
    assert main(["benchmark", "beat-random", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "beat-random.md").read_text(encoding="utf-8") == text


def test_the_committed_page_is_what_the_records_give():
    kept = (RESULTS / "beat-random.md").read_text(encoding="utf-8")
    assert page(Records(RESULTS)) == kept, "run python -m paper benchmark beat-random"
