"""The sentences at the top of a report, on tables whose answer is known."""

import dataclasses
from typing import Any

import pytest

from paper.bench.summary import Summary, summarise
from paper.report.finding import finding, listed, signed
from tests.paper.bench.records import record, small_protocol

SEEDS = 3
NOISE = (0.0, 0.0004, -0.0003)  # by seed; the same for all, so that pairs differ by a constant unless told


def table(accuracy: dict[str, float], wiggle: float = 0.0, **changes: Any) -> Summary:
    """A small MNIST table in which a method has this accuracy at every budget."""
    protocol = small_protocol(SEEDS)
    rows = []
    for cell in protocol.runs():
        own = "" if cell.select_every == protocol.select_every else f"@{cell.select_every}"
        mean = accuracy.get(cell.method + own)
        if mean is not None:
            noise = NOISE[cell.seed] + wiggle * (cell.seed - 1) * (1 if cell.method == "RBF" else 0)
            rows.append(record(protocol, cell, accuracy=round(mean + noise, 6), **changes))
    return summarise(rows, protocol)


def test_the_best_of_each_budget_is_named_without_warm_starts_and_all_data() -> None:
    said = finding(table({"RANDOM": 0.93, "RBF": 0.97, "RBF-WARM": 0.99, "FULL": 0.995, "ADAPTIVE-RANDOM": 0.96}))
    assert said[0] == (
        "Best mean accuracy without a warm start: RBF at 1 % (97.00 %, 3 seeds) and 10 % (97.00 %, 3 seeds)."
    )


def lucky(method: str, accuracy: float, others: dict[str, float]) -> Summary:
    """One run of a method at 10 % and one of FULL, beside others with all seeds."""
    protocol = small_protocol(SEEDS)
    whole = table(others)
    cell = protocol.run(protocol.method(method), 0.10, 0)
    full = protocol.run(protocol.method("FULL"), 1.0, 0)
    single = [record(protocol, cell, accuracy=accuracy), record(protocol, full, accuracy=0.9933)]
    return summarise([*whole.records, *single], protocol)


def test_a_single_run_does_not_lead_where_others_have_more() -> None:
    others = {"RANDOM": 0.93, "ADAPTIVE-RANDOM": 0.96, "ADAPTIVE-RANDOM@1": 0.97}
    summary = lucky("RBF", 0.99, others)
    said = finding(summary)
    assert "ADAPTIVE-RANDOM@1 at 1 % (97.00 %, 3 seeds) and 10 % (97.00 %, 3 seeds)" in said[0]
    assert said[-1].startswith("Training on all data (FULL) reaches 99.33 % (one run)")
    assert "(ADAPTIVE-RANDOM@1 at 1 %, 3 seeds)" in said[-1]
    (redraws,) = [one for one in said if one.startswith("ADAPTIVE-RANDOM@1, a uniform")]
    assert "has a higher mean (not tested) than every method that selects every 20 epochs: " in redraws
    assert "RBF" not in " ".join([said[0], redraws, said[-1]])
    alone = " ".join(finding(lucky("ADAPTIVE-RANDOM@1", 0.99, {"RBF": 0.96, "RANDOM": 0.93})))
    assert "a uniform subset redrawn every epoch" not in alone


def test_single_runs_lead_where_there_is_nothing_else_and_say_so() -> None:
    protocol = small_protocol(1)
    said = finding(summarise([record(protocol, cell) for cell in protocol.runs()], protocol))
    assert said[0].count("%, one run)") == 2
    assert "(one run)" in said[-1]


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.01, "of 2 differences, 2 significantly better (RBF at 1 % and 10 %)"),
        (-0.01, "of 2 differences, 2 significantly worse (RBF at 1 % and 10 %)"),
        (0.00001, "none of 2 differences is significant"),
    ],
)
def test_rbf_is_compared_with_uniform_redraws_and_tested(gap: float, words: str) -> None:
    said = finding(table({"RANDOM": 0.93, "RBF": 0.97 + gap, "ADAPTIVE-RANDOM": 0.97}, wiggle=0.0001))
    (sentence,) = [one for one in said if one.startswith("RBF differs")]
    assert words in sentence
    assert signed(100 * gap) in sentence
    assert "Holm's correction" in sentence


def test_findings_are_named_with_their_budgets_and_warm_starts_apart() -> None:
    """Only the warm start wiggles, so that it alone can be tested."""
    summary = table({"RANDOM": 0.93, "RBF": 0.96, "RBF-WARM": 0.99, "ADAPTIVE-RANDOM": 0.97}, wiggle=0.0001)
    (warm,) = [key for key in summary.entries if str(key[0]) == "RBF-WARM" and key[1] == 0.10]
    found = summary.entries[warm].comparison
    assert found is not None
    decided = dataclasses.replace(found, p_value=0.001, p_holm=0.01)
    entries = {**summary.entries, warm: dataclasses.replace(summary.entries[warm], comparison=decided)}
    said = finding(dataclasses.replace(summary, entries=entries))
    (sentence,) = [one for one in said if one.startswith("Warm starts")]
    assert sentence == (
        "Warm starts, compared with ADAPTIVE-RANDOM, which spends no epochs on all data: 1 significantly better "
        "(RBF-WARM at 10 %); 1 could not be tested."
    )
    assert all("RBF-WARM" not in one for one in said if one != sentence)


def test_what_cannot_be_tested_is_not_called_a_finding() -> None:
    protocol = small_protocol(1)
    rows = [record(protocol, cell) for cell in protocol.runs()]
    said = " ".join(finding(summarise(rows, protocol)))
    assert "too few seeds in common to test it" in said
    assert "significant" not in said


@pytest.mark.parametrize(
    ("often", "words"),
    [(0.985, "has a higher mean (not tested) than every method"), (0.96, "stays below the best method")],
)
def test_uniform_redraws_of_every_epoch_are_held_against_the_best(often: float, words: str) -> None:
    said = finding(table({"RANDOM": 0.93, "RBF": 0.98, "ADAPTIVE-RANDOM": 0.97, "ADAPTIVE-RANDOM@1": often}))
    (sentence,) = [one for one in said if one.startswith("ADAPTIVE-RANDOM@1")]
    assert words in sentence
    assert "that selects every 20 epochs" in sentence
    assert "98.00 ± 0.04 % (3 seeds) by RBF" in sentence


def test_where_redraws_win_only_in_part_both_parts_are_named() -> None:
    summary = table({"RANDOM": 0.93, "RBF": 0.98, "ADAPTIVE-RANDOM": 0.97, "ADAPTIVE-RANDOM@1": 0.985})
    (at_ten,) = [key for key in summary.entries if str(key[0]) == "RBF" and key[1] == 0.10]
    entries = {**summary.entries, at_ten: dataclasses.replace(summary.entries[at_ten], mean=99.0)}
    said = finding(dataclasses.replace(summary, entries=entries))
    (sentence,) = [one for one in said if one.startswith("ADAPTIVE-RANDOM@1")]
    assert "epochs at 1 %, not at 10 %" in sentence


def test_all_data_come_with_time_gap_and_factor() -> None:
    said = finding(table({"RANDOM": 0.93, "RBF": 0.97, "FULL": 0.99}, selection=0.0, training=100.0))
    (sentence,) = [one for one in said if one.startswith("Training on all data")]
    assert sentence == (
        "Training on all data (FULL) reaches 99.00 ± 0.04 % (3 seeds) in 1.7 min; the best on a subset (RBF at 1 %, "
        "3 seeds) is 2.00 points below it and 1 times as fast."
    )
    equal = finding(table({"RANDOM": 0.93, "RBF": 0.99001, "FULL": 0.99}, selection=0.0, training=100.0))
    assert "(RBF at 1 %, 3 seeds) is as accurate and 1 times as fast." in equal[-1]
    said = finding(table({"RANDOM": 0.93, "RBF": 0.97}))
    assert said[-1] == "Training on all data (FULL) has not been run, so there are no speed-ups."


def test_a_list_in_words() -> None:
    assert [listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
