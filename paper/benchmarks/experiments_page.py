"""The tables of docs/experiments.md, written from the records: the page cannot say what was not measured.

``python -m paper benchmark experiments-page`` replaces what is between ``<!-- NAME -->`` and ``<!-- end of NAME -->``.
A test of the suite compares the page with the records.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from coresift.cli.app import Settings

from ..bench.protocol import load_protocol
from ..bench.store import RESULTS, Store
from ..bench.summary import Entry, Metric, Summary, summarise
from ..equal_time import FEWER_EPOCHS, equal_time
from .measure import markdown

PAGE = RESULTS.parents[1] / "docs" / "experiments.md"
MISSING = "—"
WARM = ("RANDOM", "RBF", "CRAIG", "CRAIGPB", "GRADMATCH", "GRADMATCHPB", "GLISTER")
MNIST = (
    ("one subset, kept", ("RANDOM", "FIXED-CORESET")),
    (
        "every 20 epochs",
        (
            *("**ADAPTIVE-RANDOM**", "RBF", "CRAIGPB", "GRADMATCHPB", "GLISTER", "CRAIG", "GRADMATCH"),
            "ADAPTIVE-CORESET",
        ),
    ),
    ("after a warm start", tuple(f"{name}-WARM" for name in WARM)),
    (
        "before every epoch",
        (
            *("**ADAPTIVE-RANDOM@1**", "RBF@1", "ADAPTIVE-CORESET@1", "ADAPTIVE-CORESET-AUTO@1"),
            "ADAPTIVE-CORESET-SEEN@1",
        ),
    ),
    ("all data", ("FULL",)),
)
CIFAR = (
    ("one subset, kept", ("RANDOM", "STRATIFIED", "CCS", "MODERATE", "FIXED-CORESET")),
    ("every 20 epochs", ("**ADAPTIVE-RANDOM**", "RBF", "GRADMATCHPB", "CRAIGPB", "GLISTER", "ADAPTIVE-CORESET")),
    ("before every epoch", ("**ADAPTIVE-RANDOM@1**", "RBF@1", "RS2@1", "ADAPTIVE-CORESET-SEEN@1")),
    ("all data, 60 epochs", ("FULL",)),
)
FASHION = (
    (
        "one subset, kept",
        (
            *("RANDOM", "STRATIFIED", "FIXED-CORESET", "FACILITY-LOCATION", "COVER", "CCS", "MODERATE", "K-CENTER"),
            *("HERDING", "GRAPH-CUT"),
        ),
    ),
    ("the hardest, kept", ("MARGIN", "LEAST-CONFIDENCE", "ENTROPY", "GRAND", "FORGETTING", "EL2N")),
    ("the easiest, kept", ("AUM",)),
    ("every 10 epochs", ("**ADAPTIVE-RANDOM**", "ADAPTIVE-CORESET", "RBF", "GRADMATCHPB", "CRAIGPB", "GLISTER")),
    (
        "before every epoch",
        (
            *("**ADAPTIVE-RANDOM@1**", "ADAPTIVE-CORESET-SEEN@1", "AUTO@1", "INFOBATCH@1", "RBF@1", "TRIM@1", "RS2@1"),
            "LOSSLESS@1",
        ),
    ),
)
COVTYPE = (
    *("RANDOM", "FIXED-CORESET", "**ADAPTIVE-RANDOM**", "GRADMATCHPB", "RBF", "ADAPTIVE-CORESET"),
    *("ADAPTIVE-CORESET-AUTO", "**ADAPTIVE-RANDOM@1**", "RBF@1", "ADAPTIVE-CORESET@1"),
    *("ADAPTIVE-CORESET-AUTO@1", "ADAPTIVE-CORESET-SEEN@1", "FULL"),
)


def summary_of(results: Path, table: str, scale: str = "paper", metric: Metric = "accuracy") -> Summary:
    """All that was run of a table."""
    return summarise(Store(results, table).read().records, load_protocol(table, scale), metric)


def entry_of(summary: Summary, label: str, budget: float) -> Entry | None:
    """The entry of a method by its label, if it was run."""
    for method in summary.methods:
        if str(method) == label.strip("*"):
            entry = summary.at(method, budget)
            return entry if entry.mean is not None else None
    return None


def accuracy(entry: Entry | None) -> str:
    """Mean and deviation, and in brackets what the paper prints."""
    if entry is None:
        return MISSING
    printed = entry.printed.accuracy if entry.printed else None
    return plain(entry) + ("" if printed is None else f" [{printed:.2f}]")


def plain(entry: Entry | None) -> str:
    """Mean and deviation."""
    if entry is None:
        return MISSING
    return f"{entry.mean:.2f}" + ("" if entry.deviation is None else f" ± {entry.deviation:.2f}")


def seconds(entry: Entry | None) -> str:
    """Of selection and training, and in brackets those of selection."""
    if entry is None or entry.seconds is None:
        return MISSING
    digits = ".0f" if entry.seconds >= 10 else ".1f"
    return f"{entry.seconds:{digits}} ({entry.selection or 0.0:{digits}})"


def counted(entries: Sequence[Entry | None]) -> str:
    """The number of seeds, or one number for each entry if they differ."""
    seeds = [str(entry.n_seeds if entry else 0) for entry in entries]
    return seeds[0] if len(set(seeds)) == 1 else ", ".join(seeds)


def grid(
    summary: Summary, groups: Sequence[tuple[str, Sequence[str]]], cell: Callable[[Entry | None], str]
) -> list[str]:
    """A row for each method, a column for each budget of the protocol, and the numbers of seeds."""
    budgets = summary.protocol.budgets
    lines = [
        "| selects | method | " + " | ".join(f"{100 * b:g} %" for b in budgets) + " | seeds |",
        "|---|---|" + "---:|" * len(budgets) + "---|",
    ]
    for when, labels in groups:
        for place, label in enumerate(labels):
            entries = [entry_of(summary, label, b) for b in budgets]
            said = counted(entries[:1] if label == "FULL" else entries)
            cells = [cell(entry) for entry in entries]
            if label == "FULL":
                cells[1:] = [""] * (len(budgets) - 1)
            row = ["" if place else when, label, *cells, said]
            lines.append("| " + " | ".join(row) + " |")
    return lines


def summaries(results: Path, scale: str) -> tuple[Summary, Summary]:
    """CovType by accuracy and by macro-F1."""
    return summary_of(results, "covtype", scale), summary_of(results, "covtype", scale, "macro_f1")


def covtype(results: Path) -> list[str]:
    """Accuracy, macro-F1 and seconds of both budgets."""
    quality, balanced = summaries(results, "paper")
    longer = summaries(results, "equal-time")
    header = ["method", "1 %: accuracy", "macro-F1", "seconds", "5 %: accuracy", "macro-F1", "seconds"]
    lines = []
    rows = [(label, label, quality, balanced) for label in COVTYPE]
    rows.insert(-1, ("ADAPTIVE-RANDOM@1, 150 epochs", "ADAPTIVE-RANDOM@1", longer[0], longer[1]))
    rows[-1] = ("FULL (all rows, one seed)", *rows[-1][1:])
    rows.append(("FULL, 1 epoch (three seeds)", "FULL", *summaries(results, "full-1")))
    for title, label, one, other in rows:
        cells = []
        for budget in (0.01, 0.05):
            entry = entry_of(one, label, budget)
            cells += [plain(entry), plain(entry_of(other, label, budget)), seconds(entry)]
        if label == "FULL":
            cells[3:] = [""] * 3
        lines.append([title, *cells])
    return markdown(header, lines)


def cifar(results: Path) -> list[str]:
    """All methods at all budgets, then all the data for fewer epochs."""
    short = [summary_of(results, "cifar10", f"cpu-full-{100 * b:.0f}") for b in FEWER_EPOCHS]
    entries = [entry_of(each, "FULL", 1.0) for each in short]
    *others, last = map(str, FEWER_EPOCHS.values())
    label = f"all data, {', '.join(others)} and {last} epochs"
    row = [label, "FULL", *map(plain, entries), counted(entries)]
    return [*grid(summary_of(results, "cifar10", "cpu"), CIFAR, plain), "| " + " | ".join(row) + " |"]


def cifar_times(results: Path) -> list[str]:
    """Time in epochs of all the data; points above all the data, and above uniform redraws, that take as long."""
    found = equal_time(results)
    points = {(point.method, point.budget): point for point in found.methods}
    lines = []
    for label in itertools.chain.from_iterable(labels for _, labels in CIFAR[:-1]):
        own = [points.get((label.strip("*"), budget)) for budget in FEWER_EPOCHS]
        cells = [MISSING if each is None else f"{each.epochs:.1f}" for each in own]
        for line in (found.full, found.uniform):
            gains = [None if each is None else round(found.above(each, line), 1) for each in own]
            cells += [MISSING if gain is None else f"{gain + 0.0:+.1f}" for gain in gains]
        lines.append([label, *cells])
    first, *shares = [f"{100 * budget:g} %" for budget in FEWER_EPOCHS]
    header = [cell for what in ("time", "above all data", "above uniform") for cell in (f"{what}: {first}", *shares)]
    return markdown(["method", *header], lines)


def tables(results: Path) -> dict[str, list[str]]:
    """By the name of their place in the page."""
    mnist = summary_of(results, "mnist")
    return {
        "mnist accuracy": grid(mnist, MNIST, accuracy),
        "mnist seconds": grid(mnist, MNIST, seconds),
        "cifar10 accuracy": cifar(results),
        "cifar10 times": cifar_times(results),
        "fashion-mnist": [
            *grid(summary_of(results, "fashion-mnist"), FASHION, plain),
            *grid(summary_of(results, "fashion-mnist", "full-5"), (("all data, 2 epochs", ("FULL",)),), plain)[2:],
        ],
        "covtype": covtype(results),
    }


def filled(page: str, found: dict[str, list[str]]) -> str:
    """The page with these tables in their places."""
    for name, lines in found.items():
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if page.count(first) != 1 or page.count(last) != 1:
            raise ValueError(f"{PAGE} needs one place for the table {name!r}: {first.strip()} and {last}.")
        before, _, rest = page.partition(first)
        page = before + first + "\n".join(["", *lines, "", ""]) + last + rest.partition(last)[2]
    return page


def experiments_page(
    settings: Settings,
    results: Annotated[Path, typer.Option(help="Folder of the records.", show_default="paper/results")] = RESULTS,
) -> None:
    """Write the tables of docs/experiments.md from the records."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    settings.out.print(f"Wrote {PAGE}.", soft_wrap=True)
