"""Does a coreset that knows the model beat uniform redraws, and at what price? The aims, checked against the records.

``python -m paper benchmark beat-random [--results FOLDER]`` reads what ``python -m paper run`` has finished (``mnist``,
``cifar10 --scale cpu``, ``covtype``, and ``--scale equal-time``, where uniform redraws get more epochs) and writes
``beat-random.md`` there. Nothing is trained. The settings were chosen on validation data (``adaptive-study``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from coresift.cli.app import Settings

from ..bench.protocol import load_protocol
from ..bench.statistics import Comparison, compare_pairs, corrected, mean_and_deviation
from ..bench.store import RESULTS, Store

ADAPTIVE, UNIFORM, FIXED = "ADAPTIVE-CORESET", "ADAPTIVE-RANDOM", "FIXED-CORESET"
AUTOMATIC, SEEN = f"{ADAPTIVE}-AUTO", f"{ADAPTIVE}-SEEN"
MNIST_BUDGETS = (0.01, 0.03, 0.05, 0.10)
COVTYPE_BUDGETS = (0.01, 0.05)
CIFAR10_BUDGETS = (0.05, 0.10, 0.20, 0.30)
METRICS = (("accuracy", "accuracy"), ("macro_f1", "macro-F1"))
PAPERS_BEST = dict(zip(MNIST_BUDGETS, (99.0, 99.23, 99.31, 99.32), strict=True))
MOST_TIME = 2.0  # times that of RANDOM
LEAST_SEEDS = 3
TITLES = {"mnist": "MNIST", "covtype": "CovType"}
COMPARED = {  # title, budgets, scale, metrics
    "mnist": ("MNIST", MNIST_BUDGETS, "paper", METRICS[:1]),
    "cifar10": ("CIFAR-10 (narrow ResNet-9)", CIFAR10_BUDGETS, "cpu", METRICS[:1]),
    "covtype": ("CovType", COVTYPE_BUDGETS, "paper", METRICS),
}


class Longer(NamedTuple):
    """Uniform redraws for more epochs: where their records are."""

    table: str
    every: int
    scale: str
    epochs: int
    budgets: tuple[float, ...]
    has_aim: bool


FOR_OUR_TIME = (
    Longer("mnist", 1, "equal-time", 350, (0.01, 0.03), True),
    Longer("covtype", 1, "equal-time", 150, COVTYPE_BUDGETS, True),
    Longer("mnist", 20, "equal-time", 350, (0.01, 0.03), False),
    Longer("covtype", 20, "equal-time", 150, COVTYPE_BUDGETS, False),
)
FOR_AUTOMATIC_TIME = (
    Longer("mnist", 1, "equal-time", 350, (0.01, 0.03), True),
    Longer("covtype", 1, "equal-time-probe-1", 110, (0.01,), True),
    Longer("covtype", 1, "equal-time-probe-5", 103, (0.05,), True),
    Longer("covtype", 1, "equal-time-auto", 115, COVTYPE_BUDGETS, False),
    Longer("covtype", 20, "equal-time-auto", 115, COVTYPE_BUDGETS, False),
)
FOR_SEEN_TIME = (
    Longer("covtype", 1, "equal-time-auto", 115, COVTYPE_BUDGETS, True),
    Longer("mnist", 1, "equal-time", 350, (0.01, 0.03), False),
    Longer("covtype", 1, "equal-time", 150, COVTYPE_BUDGETS, False),
)


@dataclass(frozen=True)
class Runs:
    """A method at one budget, by seed: quality in per cent, seconds of selection and training, processor, speed."""

    quality: Mapping[int, float]
    seconds: Mapping[int, float]
    processors: Mapping[int, str | None] = field(default_factory=dict)
    speeds: Mapping[int, float] = field(default_factory=dict)  # samples a second, in training

    @property
    def text(self) -> str:
        """Mean, deviation, number of runs."""
        if not self.quality:
            return "missing"
        mean, deviation = mean_and_deviation(list(self.quality.values()))
        spread = "" if deviation is None else f" ± {deviation:.2f}"
        return f"{mean:.2f}{spread} ({len(self.quality)})"


class Records:
    """The records of all tables."""

    def __init__(self, results: Path, tables: Sequence[str] = ("mnist", "cifar10", "covtype")) -> None:
        self.records: list[Mapping[str, Any]] = []
        for table in tables:
            if (results / table).is_dir():
                self.records += Store(results, table).read().records

    def of(
        self, table: str, method: str, every: int, budget: float, scale: str = "paper", metric: str = "accuracy"
    ) -> Runs:
        """Those of one cell of a table, all seeds."""
        cell = {"table": table, "method": method, "select_every": every, "budget": budget}
        wanted = {**cell, "scale": scale, "protocol": load_protocol(table, scale).version}
        found = [r for r in self.records if all(r["cell"][name] == value for name, value in wanted.items())]
        return Runs(
            {r["cell"]["seed"]: 100 * r["test"][metric] for r in found},
            {r["cell"]["seed"]: r["seconds"]["selection"] + r["seconds"]["training"] for r in found},
            {r["cell"]["seed"]: r.get("machine", {}).get("processor") for r in found},
            {r["cell"]["seed"]: r["n_epochs"] * r["subset_size"] / r["seconds"]["training"] for r in found},
        )


@dataclass(frozen=True)
class Line:
    """One comparison of a family that is corrected together."""

    where: str
    ours: Runs
    theirs: Runs
    found: Comparison

    @property
    def time(self) -> str:
        """Our seconds over theirs, of the seeds that both have."""
        ratio = time_ratio(self.ours, self.theirs)
        return "" if ratio is None else f"{ratio:.2f}"

    def row(self, verdict: str) -> str:
        """Of the table in Markdown."""
        found = self.found
        interval = "" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
        difference = "" if found.difference is None else f"{found.difference:+.2f}{interval}"
        p = "" if found.p_holm is None else f"{found.p_holm:.3g}"
        cells = (self.where, self.ours.text, self.theirs.text, difference, p, self.time, verdict)
        return "| " + " | ".join(cells) + " |"


def time_ratio(ours: Runs, theirs: Runs) -> float | None:
    """Seconds of one over those of the other; None without common seeds on machines of the same kind and speed.

    Machines whose processors have one name differ by factors of three. What a method adds to a step takes less time
    than the step, so runs that train at speeds more than a factor of two apart come from two kinds.
    """
    common = set(ours.seconds) & set(theirs.seconds)
    seeds = {seed for seed in common if ours.processors.get(seed) == theirs.processors.get(seed)}
    seeds -= {seed for seed in seeds if not 0.5 < ours.speeds.get(seed, 1) / theirs.speeds.get(seed, 1) < 2}
    if not seeds:
        return None
    return sum(ours.seconds[seed] for seed in seeds) / sum(theirs.seconds[seed] for seed in seeds)


def family(pairs: Sequence[tuple[str, Runs, Runs]]) -> list[Line]:
    """Paired tests, corrected by Holm for all of them."""
    found = corrected([compare_pairs(ours.quality, theirs.quality) for _, ours, theirs in pairs])
    return [Line(*pair, each) for pair, each in zip(pairs, found, strict=True)]


def above(line: Line, least: float = 0.0) -> str:
    """Whether the mean difference is at least so many points (above 0), and beyond chance."""
    difference = line.found.difference
    if difference is None:
        return "not run"
    if difference <= 0.0 or difference < least:
        return "no"
    return "**yes**" if line.found.is_significant else "above, within noise"


def not_below(line: Line) -> str:
    """Whether it is significantly below, or above, or neither; corrected."""
    difference = line.found.difference
    if difference is None or line.found.p_holm is None:
        return "not run"
    if not line.found.is_significant:
        return "**not below**"
    return "below" if difference < 0 else "**above**"


HEAD = [
    "| | ours | reference | difference, points [95 %] | p (Holm) | time | reached |",
    "|---|---:|---:|---:|---:|---:|---|",
]


def page(records: Records) -> str:
    """All aims, one section each."""
    lines = [
        "# Beating uniform redraws: the aims, and what was measured",
        "",
        "Written by `python -m paper benchmark beat-random` from the records of `python -m paper run`. Quality on the",
        "test set in %, mean ± deviation (number of seeds); differences over common seeds with their interval; paired",
        "t tests, corrected by Holm within each section (`table` corrects for all tests of its table, so that its",
        "p are larger); *time*: our processor seconds over those of the reference, selection and training, which",
        "differ by up to a quarter with what else the machine did, over seeds that ran on machines of one kind and",
        "speed. *Reached*: **yes** only beyond chance, p (Holm) at most 0.05; *above, within noise*: by the mean;",
        "*not below*, where that is all that is aimed at: no test says that it is, which with so few seeds does not",
        "say that it is equal (*above*: a test says that it is above); *not run*: too few common seeds so far.",
    ]

    def section(title: str, about: str, rows: Sequence[str]) -> None:
        lines.extend(["", f"## {title}", "", about, "", *HEAD, *rows])

    found = family(_pairs(records, "mnist", ADAPTIVE, UNIFORM, 20))
    section(
        "Redraws every 20 epochs, MNIST",
        f"{ADAPTIVE} against {UNIFORM}. Aim: significantly above at every budget, by at least 1.2 points at 1 %.",
        [line.row(above(line, 1.2 if number == 0 else 0.0)) for number, line in enumerate(found)],
    )
    others = [pair for table in ("cifar10", "covtype") for pair in _pairs(records, table, ADAPTIVE, UNIFORM, 20)]
    others += [
        (f"{where}, automatic", ours, theirs)
        for where, ours, theirs in _pairs(records, "covtype", AUTOMATIC, UNIFORM, 20)
    ]
    section(
        "Rare redraws, other data",
        "Every 20 of 60 epochs on CIFAR-10, every 20 of 100 on CovType. Aim: above.",
        [line.row(above(line)) for line in family(others)],
    )
    section(
        "Redraws before every epoch, equal epochs",
        "Aim: above on MNIST at 1 %, and in macro-F1 on CovType.",
        [line.row(above(line)) for line in family(_every_epoch(records, ADAPTIVE))],
    )
    section(
        "Redraws before every epoch by what training saw",
        f"{SEEN}: norms that training computes itself, which take no pass of their own. Equal epochs are nearly equal "
        "time. Aim: above.",
        [line.row(above(line)) for line in family(_every_epoch(records, SEEN))],
    )
    section(
        "The same at equal total time, and longer",
        "Measured in pairs of runs (`python -m paper benchmark recorder-cost`), its draws and records take 15 % of "
        "the time of uniform redraws on CovType at 1 %, 9 % at 5 %: uniform redraws for 115 epochs have at least as "
        "much. Aim: never significantly below. With half as much time again, or three quarters, there is no aim.",
        _equal_time(records, SEEN, FOR_SEEN_TIME),
    )
    section(
        "Equal total time",
        f"{ADAPTIVE}; {UNIFORM} trains for so many more epochs that it has at least our time (*time* at most 1). Aim "
        "at R = 1: never significantly below. Rows with an aim and rows without are corrected apart.",
        _equal_time(records, ADAPTIVE, FOR_OUR_TIME),
    )
    section(
        "Equal total time, automatic",
        f"{AUTOMATIC}, which draws uniformly where scores would not pay. The same aim. On CovType at R = 1 it only "
        "ever probes, which takes 10 % of the training at 1 % and 3 % at 5 %, by the seconds inside each run: uniform "
        "redraws for 110 and 103 epochs take as long. For 115 epochs they take longer, and there is no aim.",
        _equal_time(records, AUTOMATIC, FOR_AUTOMATIC_TIME),
    )
    kept = [pair for table in COMPARED for pair in _pairs(records, table, FIXED, "RANDOM", 20)]
    section(
        "One subset, kept",
        f"{FIXED} against RANDOM. Aim: at least one point above on MNIST at 1 %.",
        [line.row(above(line, 1.0 if number == 0 else 0.0)) for number, line in enumerate(family(kept))],
    )
    lines += [
        "",
        "## The paper's best entry",
        "",
        "The best of its methods at each budget of MNIST. Aim: above it in some regime, for at most "
        f"{MOST_TIME:g} times the time of RANDOM. Its runs cannot be paired with ours: **yes** here is by the mean, "
        "and the regime is the best of eight.",
        "",
        "| budget | paper | ours | regime | time over RANDOM | reached |",
        "|---:|---:|---:|---|---:|---|",
    ]
    for budget, best in PAPERS_BEST.items():
        lines.append(_against_paper(records, budget, best))
    return "\n".join(lines) + "\n"


Pair = tuple[str, Runs, Runs]


def _pairs(records: Records, table: str, ours: str, theirs: str, every: int) -> list[Pair]:
    """Compare two methods at the budgets of a table that ours was run at, by accuracy, on CovType by macro-F1 too."""
    title, budgets, scale, metrics = COMPARED[table]
    run = [b for b in budgets if records.of(table, ours, every, b, scale).quality]
    return [
        (
            f"{title}, {100 * b:g} %" if len(metrics) == 1 else f"{title}, {name}, {100 * b:g} %",
            *(records.of(table, method, every, b, scale, metric) for method in (ours, theirs)),
        )
        for metric, name in metrics
        for b in run
    ]


def _every_epoch(records: Records, ours: str) -> list[Pair]:
    """Compare with uniform redraws before every epoch, on all data."""
    return [pair for table in COMPARED for pair in _pairs(records, table, ours, UNIFORM, 1)]


def _equal_time(records: Records, ours: str, references: Sequence[Longer]) -> list[str]:
    """Against uniform redraws for more epochs; rows with an aim are one family of tests, rows without another."""
    pairs: dict[bool, list[Pair]] = {True: [], False: []}
    for each in references:
        metrics = METRICS if each.table == "covtype" else METRICS[:1]
        for (metric, name), b in product(metrics, each.budgets):
            where = f"{TITLES[each.table]}, R = {each.every}, {name}, {100 * b:g} %, {each.epochs} epochs"
            mine = records.of(each.table, ours, each.every, b, metric=metric)
            theirs = records.of(each.table, UNIFORM, each.every, b, each.scale, metric)
            pairs[each.has_aim].append((where, mine, theirs))
    aimed = [line.row(not_below(line)) for line in family(pairs[True])]
    return aimed + [line.row("no aim") for line in family(pairs[False])]


def _against_paper(records: Records, budget: float, best: float) -> str:
    base = records.of("mnist", "RANDOM", 20, budget)
    regimes = {
        f"{method}, R = {r}": records.of("mnist", method, r, budget)
        for method, r in ((ADAPTIVE, 1), (AUTOMATIC, 1), (SEEN, 1), (ADAPTIVE, 20), ("RBF", 1), (UNIFORM, 1))
    }
    regimes |= {
        f"{method}, R = 1, 350 epochs": records.of("mnist", method, 1, budget, "equal-time")
        for method in (SEEN, UNIFORM)
    }
    affordable = {
        name: runs
        for name, runs in regimes.items()
        if len(runs.quality) >= LEAST_SEEDS and (time_ratio(runs, base) or 9.0) <= MOST_TIME
    }
    if not affordable:
        return f"| {100 * budget:g} % | {best:.2f} | fewer than {LEAST_SEEDS} seeds | | | not run |"
    means = {name: mean_and_deviation(list(runs.quality.values()))[0] for name, runs in affordable.items()}
    name = max(means, key=means.__getitem__)
    verdict = "**yes**" if means[name] > best else "no"
    ratio = time_ratio(affordable[name], base) or float("nan")
    return f"| {100 * budget:g} % | {best:.2f} | {affordable[name].text} | {name} | {ratio:.2f} | {verdict} |"


def beat_random(
    settings: Settings,
    results: Annotated[Path, typer.Option(help="Folder of the records.", show_default="paper/results")] = RESULTS,
) -> None:
    """Write beat-random.md from the records of finished runs; nothing is trained."""
    out = results / "beat-random.md"
    out.write_text(page(Records(results)), encoding="utf-8")
    settings.out.print(f"Wrote {out}.", soft_wrap=True)
