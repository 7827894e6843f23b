"""Tables on paper: the same numbers in every format, what is missing shown as missing, nothing that breaks out."""

import csv
import dataclasses
import io
import json
import re

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from paper.bench.formats import as_json, csv_text, frame, latex, latex_text, markdown_text, terminal, terminal_text
from paper.bench.layout import blocks, heading, sections, state
from paper.bench.protocol import load_protocol
from paper.bench.summary import Summary, summarise
from tests.paper.bench.records import record, records, small_protocol

PROTOCOL = small_protocol()
ALL = records(PROTOCOL)


def row_of(text: str, label: str, part: int = 0) -> str:
    """The line of a method in the first, second, ... table of a text."""
    return [line for line in text.splitlines() if re.match(rf"(\| )?{re.escape(label)} ", line)][part]


def words(text: str, label: str, part: int = 0) -> list[str]:
    """The label and the cells of a line in a terminal, with a bar only between groups of columns."""
    (label_, _, cells) = row_of(text, label, part).partition("│")
    return [*label_.split(), *cells.split()]


def known(**accuracies: list[float]) -> Summary:
    """A table at 1 % with the accuracies of some methods, seed by seed."""
    protocol = PROTOCOL.narrowed(budgets=[0.01])
    made = []
    for name, values in accuracies.items():
        method = protocol.method(name.replace("_at_", "@"))
        budget = 1.0 if method.name == "FULL" else 0.01
        made += [
            record(protocol, protocol.run(method, budget, seed), accuracy=value) for seed, value in enumerate(values)
        ]
    return summarise(made, protocol)


TABLE = known(
    FULL=[0.9912],
    RANDOM=[0.93, 0.94, 0.95],
    ADAPTIVE_RANDOM=[0.9701, 0.9702, 0.9706],
    RBF=[0.9801, 0.9803, 0.9805],
    RBF_WARM=[0.985, 0.9852],
)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.sets(st.integers(0, len(ALL) - 1), min_size=1), st.integers(40, 160))
def test_any_records_make_a_table_of_the_width_asked_for(chosen: set[int], width: int) -> None:
    summary = summarise([ALL[i] for i in sorted(chosen)], PROTOCOL)
    text = terminal_text(summary, width)
    assert f"{len(chosen)} of {len(ALL)} runs finished" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert f"{len(chosen)} of {len(ALL)} runs finished" in markdown_text(summary)
    check_latex(latex_text(summary))
    rows = list(csv.DictReader(io.StringIO(csv_text(summary))))
    assert len(rows) == 1 + (len(PROTOCOL.methods) - 1) * len(PROTOCOL.budgets)
    assert sum(int(row["seeds"]) for row in rows) == len(chosen)
    json.dumps(as_json(summary), allow_nan=False)
    n_missing = sum(entry.n_seeds == 0 for entry in summary.entries.values())
    assert sum(row["mean_percent"] == "" for row in rows) == n_missing


@pytest.mark.parametrize("table", ["mnist", "cifar10", "cifar100", "imagenet", "covtype", "fashion-mnist"])
def test_every_table_in_full_fits_a_hundred_columns(table: str) -> None:
    protocol = load_protocol(table)
    summary = summarise(records(protocol), protocol)
    text = terminal_text(summary, 100)
    assert max(map(len, text.splitlines())) <= 100
    titles = re.findall(r"^method ", text, re.MULTILINE)
    assert len(titles) == 4  # no block had to be taken apart
    check_latex(latex_text(summary))
    assert {str(method) for method in protocol.methods} <= set(re.findall(r"^\S+", text, re.MULTILINE))


def test_means_deviations_and_seeds_as_known() -> None:
    text = terminal_text(TABLE)
    assert words(text, "FULL") == ["FULL", "99.12¹", "│", "99.35", "±0.012"]
    assert words(text, "RANDOM") == ["RANDOM", "94.00", "±1.00", "│", "94.55", "±0.215"]
    assert words(text, "RBF-WARM") == ["RBF-WARM", "98.51", "±0.01²", "│", "—", "±0.09"]  # printed without a mean
    assert words(text, "RBF@1") == ["RBF@1", "—", "│", "—"]
    assert "Seeds: 3; other numbers of seeds are raised. One seed has no deviation." in text
    assert "12 of 21 runs finished (protocol 1, scale paper, 3 seeds)." in text


def test_seeds_are_named_where_they_are_not_the_protocols() -> None:
    two = known(RANDOM=[0.9, 0.91], RBF=[0.95, 0.94])
    assert "Seeds: 2 where the protocol asks for 3." in terminal_text(two)
    assert "±" in row_of(terminal_text(two), "RBF")
    one = terminal_text(known(RANDOM=[0.9], RBF=[0.95]))
    assert "Seeds: 1 where the protocol asks for 3. One seed has no deviation." in one
    assert words(one, "RBF")[:2] == ["RBF", "95.00"]
    three = terminal_text(known(RANDOM=[0.9, 0.91, 0.92]))
    assert "Seeds: 3." in three
    assert "raised" not in three


def test_time_and_speed_up_say_the_clock_and_leave_out_evaluation() -> None:
    text = terminal_text(TABLE)
    assert re.search(r"^ +│ +ours, seconds +│ +paper, hours", text, re.MULTILINE)
    assert words(text, "RBF", 1) == ["RBF", "14.0", "(3.0)", "│", "0.028"]
    assert words(text, "RBF", 2) == ["RBF", "70", "│", "29.3"]  # 1000 / 14 and its noise, 0.82 / 0.028
    assert "Processor time of selection and training" in text
    assert "Time of FULL (1 run) over time of the method, both processor time" in " ".join(text.split())
    wall = summarise([{**each, "clock": "wall"} for each in ALL], PROTOCOL)
    assert "Wall-clock time of selection" in terminal_text(wall)
    mixed = summarise([{**each, "clock": "wall"} if i == 0 else each for i, each in enumerate(ALL)], PROTOCOL)
    assert "1 run measured by another clock: not in these times." in terminal_text(mixed)
    without = known(RANDOM=[0.9])
    assert "No run of FULL is finished and measured in processor time" in terminal_text(without)


@pytest.mark.parametrize(("spread", "shown"), [(0.0, "71.4"), (0.04, "71"), (0.2, "70")])
def test_a_speed_up_has_the_digits_that_the_noise_of_times_allows(spread: float, shown: str) -> None:
    protocol = PROTOCOL.narrowed(budgets=[0.01])
    made = [record(protocol, protocol.run(protocol.method("FULL"), 1.0, 0))]
    for seed in range(3):
        part = record(protocol, protocol.run(protocol.method("RBF"), 0.01, seed))
        seconds = {"selection": 3.0, "training": 14.0 * (1.0 + spread * (seed - 1)) - 3.0, "evaluation": 1.0}
        made.append({**part, "seconds": seconds})
    text = terminal_text(summarise(made, protocol))
    assert words(text, "RBF", 2)[1] == shown
    assert words(text, "FULL", 2)[1] == "1"
    assert f"Times of seeds deviate by {100 * spread:.2g} %" in " ".join(text.split())


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "seconds"), (100.0, "minutes"), (10_000.0, "hours")])
def test_units_of_time(factor: float, unit: str) -> None:
    made = [{**each, "seconds": {part: factor * value for part, value in each["seconds"].items()}} for each in ALL]
    text = terminal_text(summarise(made, PROTOCOL))
    assert f"ours, {unit} " in text


def test_times_of_several_machines_are_named() -> None:
    made = [record(PROTOCOL, cell, processor=f"kind {cell.seed}") for cell in PROTOCOL.runs()]
    assert "3 machines: kind 0, threads: 1; kind 1" in " ".join(terminal_text(summarise(made, PROTOCOL)).split())


def test_the_papers_figures_have_the_digits_that_it_prints() -> None:
    protocol = load_protocol("mnist")
    summary = summarise(records(protocol), protocol)
    quality, time = (markdown_text(summary).split("\n## ")[part] for part in (1, 2))
    for figure in ("94.55 ±0.215", "98.70 ±0.0181", "99.27 ±0.0129", "99.00 ±0.0098", "99.10 ±0.110", "— ±0.05"):
        assert figure in quality
    for figure in ("0.08352", "0.0084", "0.3758", "0.10 "):
        assert f" {figure}" in time


def test_digits_of_the_paper_are_left_out_only_where_that_makes_room() -> None:
    protocol = load_protocol("mnist")
    summary = summarise(records(protocol), protocol)
    parts = {width: terminal_text(summary, width).split("\n\nTime\n")[0] for width in (80, 100, 130)}
    assert {width: "±0.0181" in text for width, text in parts.items()} == {80: True, 100: False, 130: True}
    assert {width: text.count("\nmethod ") for width, text in parts.items()} == {80: 2, 100: 1, 130: 1}


def test_comparison_as_known() -> None:
    text = terminal_text(TABLE)
    # differences 1.00, 1.01, 0.99: g = 100 / sqrt(pi)
    assert words(text, "RBF", 3) == ["RBF", "+1.00*", "+56.4", "<.001"]
    # differences -4.01, -3.02, -2.06: t = -5.38, the largest p of three, so corrected by nothing
    assert words(text, "RANDOM", 3) == ["RANDOM", "-3.03*", "-1.8", ".033"]
    assert words(text, "RBF-WARM", 3)[1:3] == ["+1.50*", "—"]  # two pairs: a test without effect size
    assert "Holm's correction for the 3 tests of this table" in " ".join(text.split())
    assert "RBF@1 against ADAPTIVE-RANDOM@1" in " ".join(text.split())
    assert "Warm starts are compared with ADAPTIVE-RANDOM without one" in text
    one = terminal_text(known(ADAPTIVE_RANDOM=[0.9], RBF=[0.95]))
    assert words(one, "RBF", 3) == ["RBF", "+5.00", "—", "n/t"]
    assert "none of which is possible yet" in " ".join(one.split())


def test_the_best_of_plain_and_of_warm_are_bold_but_not_full() -> None:
    bold = {
        (block.name, row.label)
        for block in blocks(TABLE)
        for section in block.sections
        for row in section
        if any(cell.is_bold for cell in row.cells)
    }
    assert {label for name, label in bold if name == "quality"} == {"RBF", "RBF-WARM"}
    tie = known(FULL=[0.99], RANDOM=[0.95001], RBF=[0.94999])  # equal as shown
    assert markdown_text(tie).count("**95.00**") == 2
    lucky = known(RANDOM=[0.94, 0.95], RBF=[0.96, 0.95], RBF_at_1=[0.99], RBF_WARM=[0.99])
    assert re.findall(r"\*\*(\d.*?)\*\*", markdown_text(lucky)) == ["95.50 ±0.71"]  # not the single seeds
    console = Console(width=100)
    segments = [each for line in console.render_lines(terminal(TABLE)) for each in line]
    bold = [each.text.strip() for each in segments if each.style is not None and each.style.bold]
    assert {"98.03 ±0.02", "98.51 ±0.01²"} <= set(bold)
    assert "99.12¹" not in bold


def test_sections_keep_the_order_within() -> None:
    found = [[str(method) for method in section] for section in sections(load_protocol("mnist").methods)]
    assert [section[0] for section in found] == ["FULL", "RANDOM", "GLISTER", "RANDOM-WARM"]
    assert found[1] == ["RANDOM", "ADAPTIVE-RANDOM", "ADAPTIVE-RANDOM@1"]
    assert sum(map(len, found)) == len(load_protocol("mnist").methods)


def test_left_out_records_are_counted() -> None:
    other = [{**each, "cell": {**each["cell"], "protocol": 9}} for each in ALL[:5]]
    (first, second) = state(summarise([*ALL, *other, ALL[0], {"id": "x"}], PROTOCOL))
    assert first == "39 of 39 runs finished (protocol 1, scale paper, 3 seeds)."
    what = "5 of another version of the protocol, 1 of a run that is here already, 1 that cannot be used"
    assert second == f"Records left out: {what}."


def test_a_scale_down_says_so_everywhere() -> None:
    protocol = load_protocol("cifar10", "cpu")
    summary = summarise(records(protocol), protocol)
    for text in (terminal_text(summary), markdown_text(summary), latex_text(summary)):
        flat = " ".join(text.split()).replace("\n%", "")
        assert "The paper's figures belong to its own protocol, not to this one: narrow ResNet-9 (cpu)." in flat
    assert "Not comparable with the paper" in " ".join(terminal_text(summary).split())
    rows = frame(summary)
    assert set(rows["scale"]) == {"cpu"}
    assert "127 of 127 runs finished (protocol 2, scale cpu, 2 to 3 seeds)." in " ".join(markdown_text(summary).split())
    assert "where the protocol asks for 2 to 3" in markdown_text(summary)
    assert (rows["seeds"] == rows["seeds_expected"]).all()


def test_a_scale_that_trains_longer_is_not_called_scaled_down() -> None:
    protocol = load_protocol("mnist", "equal-time")
    summary = summarise(records(protocol), protocol)
    assert heading(summary) == "MNIST, LeNet-5, uniform redraws for longer (equal-time)"
    for text in (terminal_text(summary), markdown_text(summary), latex_text(summary)):
        flat = " ".join(text.split())
        assert "scale-down" not in flat
        assert "scaled down" not in flat
        assert "not to this one: uniform redraws for longer (equal-time)." in flat


def test_macro_f1_has_no_figures_of_the_paper_beside_it() -> None:
    summary = summarise(ALL, PROTOCOL, "macro_f1")
    block = blocks(summary)[0]
    assert block.title == "Macro-F1 on the test set, %"
    assert [group.title for group in block.groups] == [""]


def test_ascii_is_ascii_and_aligned() -> None:
    text = terminal_text(TABLE, is_ascii=True)
    assert text.isascii()
    assert row_of(text, "FULL").split()[2] == "99.12^1"
    lines = text.split("\nTime\n")[0].splitlines()
    assert len({line.index("|") for line in lines if "|" in line}) == 1
    assert len({line.rindex("|") for line in lines if "|" in line}) == 1


def test_csv_gives_back_the_very_numbers() -> None:
    summary = summarise(ALL, PROTOCOL)
    rows = {(row["method"], float(row["budget"])): row for row in csv.DictReader(io.StringIO(csv_text(summary)))}
    for entry in summary.entries.values():
        row = rows[str(entry.method), entry.budget]
        assert float(row["mean_percent"]) == entry.mean
        assert float(row["deviation_percent"]) == entry.deviation
        assert float(row["speed_up"]) == entry.speed_up
        assert (row["p_holm"] == "") == (entry.comparison is None)
        if entry.comparison:
            assert float(row["p_holm"]) == entry.comparison.p_holm
            assert float(row["difference_points"]) == entry.comparison.difference
    assert [each["mean_percent"] for each in as_json(summary)["entries"]] == [
        entry.mean for entry in summary.entries.values()
    ]


def test_markdown_escapes_and_has_rectangular_tables() -> None:
    protocol = dataclasses.replace(PROTOCOL, title="a|b *c* <script> _d_", scale_note="#1 | [x](y)")
    text = markdown_text(summarise(ALL, protocol))
    assert r"# a\|b \*c\* \<script\> \_d\_" in text
    assert r"\#1 \| \[x\](y)" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert all(f"- {each}" in text for each in protocol.assumptions if not set("_*[]") & set(each))


def test_latex_escapes() -> None:
    assert latex("a_b & 5 % {x} #1 $ ~ ^ \\") == (
        r"a\_b \& 5 \% \{x\} \#1 \$ \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert latex("1 ±2³ — <") == r"1 $\pm$2$^{3}$ --- $<$"
    protocol = dataclasses.replace(PROTOCOL, title=r"50 % of A&B_c \input{x}", scale_note="two\nlines")
    text = latex_text(summarise(ALL, protocol))
    assert r"\caption[{50 \% of A\&B\_c \textbackslash{}input\{x\}: Test accuracy, \%}]" in text
    assert "% two lines\n" in text
    check_latex(text)


def test_latex_marks_the_best_and_minus_is_no_hyphen() -> None:
    text = latex_text(TABLE)
    assert r"\textbf{98.03 $\pm$0.02}" in text
    assert r"99.12\rlap{$^{1}$}" in text
    assert r"RANDOM & \textbf{$-$3.03\rlap{$^{*}$}} & $-$1.8 & .033" in text
    assert r"\textbf{$+$1.00\rlap{$^{*}$}}" in text


def check_latex(text: str) -> None:
    """Balanced braces, dollars and environments, and rows that are as wide as their table declares."""
    body = re.sub(r"(?<!\\)%.*", "", text)
    bare = re.sub(r"\\[\\{}$&%#_]", "", body)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert body.isascii()
    opened: list[str] = []
    for what, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", body):
        if what == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    tables = re.findall(r"\\begin\{tabular\}\{([lr ]+)\}(.*?)\\end\{tabular\}", body, re.DOTALL)
    assert len(tables) == 4
    for columns, inside in tables:
        for line in inside.splitlines():
            if line.endswith(r"\\"):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == len(columns.replace(" ", ""))


@pytest.mark.parametrize(
    "broken",
    [r"\begin{tabular}{lr}a & b & c \\ \end{tabular}", r"\begin{table*}\end{tabular}", "{", "$x"],
    ids=["row", "environment", "brace", "dollar"],
)
def test_the_check_of_latex_can_fail(broken: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        check_latex(latex_text(TABLE) + broken)
