"""Records summed up: what is there, what is missing, what must not be mixed, and what is compared with what."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coresift import InvalidInputError
from paper.bench.formats import terminal_text
from paper.bench.protocol import Method, load_protocol
from paper.bench.statistics import holm
from paper.bench.summary import Summary, reference_of, summarise
from tests.paper.bench.records import record, records, small_protocol

PROTOCOL = small_protocol()
ALL = records(PROTOCOL)


def at(summary: Summary, label: str, budget: float = 0.01):
    return next(summary.at(method, budget) for method in summary.methods if str(method) == label)


def changed(one: dict[str, Any], *path: str, to: Any) -> dict[str, Any]:
    found = copy.deepcopy(one)
    inner = found
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return found


@settings(max_examples=50)
@given(st.sets(st.integers(0, len(ALL) - 1), min_size=1), st.randoms())
def test_any_records_in_any_order(chosen: set[int], random: Any) -> None:
    some = [ALL[i] for i in sorted(chosen)]
    summary = summarise(some, PROTOCOL)
    assert (summary.n_finished, summary.n_expected, summary.n_beyond) == (len(some), len(ALL), 0)
    assert sum(entry.n_seeds for entry in summary.entries.values()) == len(some)
    for (method, budget), entry in summary.entries.items():
        mine = [
            each
            for each in some
            if (each["cell"]["method"], each["cell"]["select_every"], each["cell"]["budget"])
            == (method.name, method.select_every, budget)
        ]
        assert entry.n_seeds == entry.n_timed == len(mine)
        accuracies = [100 * each["test"]["accuracy"] for each in mine]
        seconds = [each["seconds"]["selection"] + each["seconds"]["training"] for each in mine]
        assert entry.mean == (pytest.approx(np.mean(accuracies)) if mine else None)
        assert entry.deviation == (pytest.approx(np.std(accuracies, ddof=1)) if len(mine) > 1 else None)
        assert entry.seconds == (pytest.approx(np.mean(seconds)) if mine else None)
    random.shuffle(some)
    assert summarise(some, PROTOCOL) == summary


def test_a_speed_up_is_of_selection_and_training_over_those_of_full() -> None:
    summary = summarise(ALL, PROTOCOL)
    # seeds 0, 1, 2: FULL trains 1000 to 1002 s; RBF at 1 % trains 10 to 12 s and selects 2 to 4 s
    assert at(summary, "FULL").seconds == pytest.approx(1001)
    assert at(summary, "RBF").seconds == pytest.approx(14)
    assert at(summary, "RBF").selection == pytest.approx(3)
    assert at(summary, "RBF").speed_up == pytest.approx(1001 / 14)
    assert at(summary, "FULL", 0.10).speed_up == 1.0
    without = summarise([each for each in ALL if each["cell"]["method"] != "FULL"], PROTOCOL)
    assert all(entry.speed_up is None for entry in without.entries.values())
    assert at(without, "RBF").seconds == pytest.approx(14)


def test_two_clocks_are_never_in_one_time() -> None:
    mixed = [
        changed(each, "clock", to="wall") if each["cell"]["method"] in ("FULL", "RBF-WARM") else each for each in ALL
    ]
    mixed = [changed(each, "seconds", "training", to=1e6) if each["clock"] == "wall" else each for each in mixed]
    summary = summarise(mixed, PROTOCOL)
    assert (summary.clock, summary.n_other_clock) == ("cpu", 3 + 6)
    assert all(entry.speed_up is None for entry in summary.entries.values())  # FULL has no processor time
    assert at(summary, "RBF-WARM").seconds is None
    assert at(summary, "RBF-WARM").mean == at(summarise(ALL, PROTOCOL), "RBF-WARM").mean
    assert at(summary, "RBF").seconds == pytest.approx(14)
    # within one entry as well
    one = next(i for i, each in enumerate(ALL) if each["cell"]["method"] == "RBF" and each["cell"]["seed"] == 2)
    half = [changed(each, "clock", to="wall") if i == one else each for i, each in enumerate(ALL)]
    entry = at(summarise(half, PROTOCOL), "RBF", ALL[one]["cell"]["budget"])
    assert (entry.n_seeds, entry.n_timed) == (3, 2)


def test_protocols_scales_and_configurations_are_not_mixed() -> None:
    others = [
        *(changed(each, "cell", "protocol", to=99) for each in ALL[:4]),
        *(changed(each, "cell", "scale", to="quick") for each in ALL[:3]),
        *(changed(each, "config", "epochs", to=1) for each in ALL[:2]),
    ]
    summary = summarise([*others, *ALL, ALL[0]], PROTOCOL)
    left_out = summary.left_out
    assert (left_out.other_protocol, left_out.other_scale, left_out.other_config) == (4, 3, 2)
    assert left_out.repeated == 1
    assert summary.entries == summarise(ALL, PROTOCOL).entries
    with pytest.raises(InvalidInputError, match=r"no finished run .* 3 at another scale .* 4 of another version"):
        summarise(others, PROTOCOL)
    with pytest.raises(InvalidInputError, match="no finished run of the table mnist with protocol 1 at scale paper"):
        summarise([], PROTOCOL)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("test",), {}, "it lacks 'accuracy'"),
        (("test", "accuracy"), float("nan"), "accuracy = nan is not a measurement"),
        (("test", "accuracy"), None, "NoneType"),
        (("test", "accuracy"), 1.0001, "accuracy = 1.0001 is not a measurement: it must be at most 1"),
        (("test", "accuracy"), 97.3, "accuracy = 97.3 is not a measurement"),
        (("seconds", "training"), -1.0, "training = -1.0 is not a measurement"),
        (("seconds",), 3, "int"),
        (("cell", "table"), "cifar10", "it belongs to the table 'cifar10'"),
        (("cell", "budget"), 1.5, "budget = 1.5 is not a share"),
        (("cell",), None, "NoneType"),
        (("config",), [], "list"),
    ],
)
def test_a_record_that_lacks_something_is_named_and_the_others_are_used(
    path: tuple[str, ...], value: Any, complaint: str
) -> None:
    broken = changed(ALL[0], *path, to=value)
    summary = summarise([broken, *ALL[1:]], PROTOCOL)
    assert summary.n_finished == len(ALL) - 1
    (sentence,) = summary.left_out.unusable
    assert sentence.startswith(f"record {ALL[0]['id']}: ")
    assert complaint in sentence


def test_runs_beyond_the_protocol_are_shown_and_counted_apart() -> None:
    wider = PROTOCOL.narrowed(["GLISTER@5", "RBF"], [0.01, 0.02], 4)
    summary = summarise([*ALL, *records(wider)], PROTOCOL)
    # new: GLISTER@5 at two budgets, RBF at 2 %, all of four seeds, and a fourth seed of RBF at 1 %
    assert (summary.n_finished, summary.n_expected, summary.n_beyond) == (len(ALL), len(ALL), 13)
    assert summary.left_out.repeated == 3
    assert summary.budgets == (0.01, 0.02, 0.10)
    assert str(summary.methods[-1]) == "GLISTER@5"
    assert at(summary, "RBF").n_seeds == 4
    assert at(summary, "GLISTER@5").reference == ""  # no uniform sample is redrawn every five epochs


@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (Method("RBF", 20), 20),
        (Method("RBF", 1), 1),
        (Method("RBF-WARM", 20), 20),
        (Method("RBF", 5), None),  # redrawn more often than any uniform sample: no fair comparison
        (Method("FIXED-CORESET", 1), 20),
        (Method("COVER-WARM", 7), 20),
        (Method("RANDOM", 1), 20),  # never drawn again
        (Method("RANDOM-WARM", 1), 20),
        (Method("FULL", 20), None),
        (Method("ADAPTIVE-RANDOM", 20), None),
        (Method("ADAPTIVE-RANDOM", 1), None),
        (Method("ADAPTIVE-RANDOM-WARM", 20), 20),
    ],
    ids=str,
)
def test_what_is_compared_with_what(method: Method, reference: int | None) -> None:
    there = load_protocol("mnist").methods
    found = reference_of(method, there, 20)
    assert (found and found.select_every) == reference
    assert reference_of(method, [each for each in there if each.name == "RBF"], 20) is None


def test_comparisons_are_paired_by_seed_and_corrected_together() -> None:
    summary = summarise(ALL, PROTOCOL)
    compared = {key: entry.comparison for key, entry in summary.entries.items() if entry.comparison}
    assert len(compared) == summary.n_tests == 4 * 2  # RANDOM, RBF, RBF-WARM, RBF@1 at two budgets
    p_values = [each.p_value for each in compared.values()]
    assert [each.p_holm for each in compared.values()] == holm(p_values)
    accuracy = {
        (each["cell"]["method"], each["cell"]["select_every"], each["cell"]["budget"], each["cell"]["seed"]): (
            100 * each["test"]["accuracy"]
        )
        for each in ALL
    }
    for every, label in ((20, "RBF"), (1, "RBF@1")):
        differences = [
            accuracy["RBF", every, 0.10, seed] - accuracy["ADAPTIVE-RANDOM", every, 0.10, seed] for seed in range(3)
        ]
        comparison = at(summary, label, 0.10).comparison
        assert comparison.difference == pytest.approx(np.mean(differences))


def test_a_large_difference_is_found_in_a_whole_table() -> None:
    protocol = small_protocol(seeds=5)
    noise = np.random.default_rng(0).normal(0, 0.002, len(protocol.runs()))
    made = [
        record(protocol, cell, accuracy=(0.97 if cell.method == "RBF" else 0.90) + float(error))
        for cell, error in zip(protocol.runs(), noise, strict=True)
    ]
    summary = summarise(made, protocol)
    found = {
        str(method)
        for (method, _), entry in summary.entries.items()
        if entry.comparison and entry.comparison.is_significant
    }
    assert found == {"RBF", "RBF@1"}
    assert at(summary, "RBF").comparison.difference == pytest.approx(7, abs=0.5)


def test_the_papers_figures_stand_beside_methods_at_its_r_only() -> None:
    summary = summarise(ALL, PROTOCOL)
    assert at(summary, "RBF").printed.accuracy == 98.98
    assert at(summary, "RBF").printed_speed_up == 0.82 / 0.028
    assert at(summary, "FULL").printed.accuracy == 99.35
    assert at(summary, "RBF@1").printed is at(summary, "ADAPTIVE-RANDOM").printed is None


def test_macro_f1_in_place_of_accuracy() -> None:
    plain, other = summarise(ALL, PROTOCOL), summarise(ALL, PROTOCOL, "macro_f1")
    assert at(other, "RBF").mean == pytest.approx(at(plain, "RBF").mean / 2)
    difference = at(plain, "RBF").comparison.difference
    assert at(other, "RBF").comparison.difference == pytest.approx(difference / 2)


def test_a_scale_has_its_own_records() -> None:
    whole, small = load_protocol("cifar10"), load_protocol("cifar10", "smoke")
    summary = summarise([*records(whole)[:20], *records(small)], small)
    assert summary.n_finished == summary.n_expected == len(small.runs())
    assert summary.left_out.other_scale == 20


def test_the_records_that_are_counted() -> None:
    """Those of another training are left out of all that is said about the runs."""
    other = changed(ALL[1], "config", "lr", to=0.5)
    first = changed(ALL[0], "cell", "scale", to="cpu")
    counted = summarise([other, first, *ALL[2:]], PROTOCOL).records
    assert sorted(each["id"] for each in counted) == sorted(each["id"] for each in ALL[2:])


def test_speed_ups_are_over_the_full_runs_that_the_note_counts() -> None:
    twice = [each for each in ALL if each["cell"]["method"] == "FULL"]
    often = [changed(changed(each, "cell", "select_every", to=1), "id", to="0" * 12) for each in twice]
    text = terminal_text(summarise([twice[0], *often, *(e for e in ALL if e not in twice)], PROTOCOL))
    assert "Time of FULL (3 runs)" in text
