"""The page and the figures of the benchmark ``models``, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import plots
from ..measure import Record, markdown
from .excess import METHODS

FLOOR = 1e-12  # relative: the minimum is not known better
WORDS = {
    "logistic": "logistic",
    "squared_hinge": "squared hinge",
    "poisson": "Poisson",
    "huber": "Huber",
    "squared": "squared",
}
LEAST_GAIN, LEAST_ROWS, CLOSE, MOST_COVTYPE = 50.0, 50, 1e-2, 3e-4


def geometric(values: ArrayLike) -> float:
    """Geometric mean, of values not below the precision of the minimum."""
    return float(np.exp(np.mean(np.log(np.maximum(values, FLOOR)))))


@dataclass(frozen=True)
class Line:
    """All seeds of one table, loss and size."""

    records: list[Record]

    def __getattr__(self, name: str) -> Any:
        return self.records[0][name]

    def column(self, name: str) -> np.ndarray:
        return np.array([record[name] for record in self.records])

    @property
    def rows_per_parameter(self) -> float:
        return self.size / (self.p * self.classes)

    @property
    def gain(self) -> float:
        """Geometric mean of the excess of uniform samples over that of calibrated coresets."""
        return geometric(self.column("uniform")) / geometric(self.column("calibrated"))

    @property
    def ratios(self) -> np.ndarray:
        """Certificate over truth; 1 where both are below the precision of the minimum."""
        truth = self.column("model")
        return np.where(
            self.column("certificate") <= 10 * FLOOR, 1.0, self.column("certificate") / np.maximum(truth, FLOOR)
        )

    @property
    def is_named(self) -> bool:
        """Whether the aim of 50 times holds for it."""
        return self.rows_per_parameter > LEAST_ROWS


def lines_of(records: Sequence[Record]) -> list[Line]:
    """Group the records by table, loss and size, in the order in which these first appear."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault((record["table"], record["loss"], record["size"]), []).append(record)
    return [Line(group) for _, group in sorted(groups.items())]


def misses(lines: Sequence[Line]) -> list[str]:
    """What was required and does not hold, as sentences."""
    found = []
    for line in lines:
        where = f"{line.table}, {WORDS[line.loss]}, {line.size:,} rows"
        ours, theirs = geometric(line.column("calibrated")), geometric(line.column("uniform"))
        if ours > theirs:
            found.append(f"{where}: the calibrated coreset ({ours:.1e}) is above uniform ({theirs:.1e}).")
        if line.is_named and line.gain < LEAST_GAIN:
            found.append(f"{where}: {line.gain:.0f} times below uniform, not {LEAST_GAIN:g}.")
        if (line.table, line.loss, line.size) == ("covtype", "logistic", 5_000) and ours > MOST_COVTYPE:
            found.append(f"{where}: {ours:.1e}, above {MOST_COVTYPE:g}.")
        if (line.column("certificate") < line.column("model")).any():
            found.append(f"{where}: a certificate is below the true excess.")
        if (line.ratios[line.column("certificate") < CLOSE] > 2.0).any():
            found.append(f"{where}: a certificate is {line.ratios.max():.1f} times the true excess.")
    return found


HEADER = ("table, loss", "rows", "p", "m", "m / p", *METHODS, "certificate", "gain", "certificate / truth", "rounds")


def excess_table(lines: Sequence[Line]) -> list[str]:
    """One row for each table, loss and size: geometric means over the seeds."""
    rows = [
        (
            f"{line.table}, {WORDS[line.loss]}",
            f"{line.n:,}",
            f"{line.p}" + (f" x {line.classes}" if line.classes > 1 else ""),
            f"{line.size:,}",
            f"{line.rows_per_parameter:.0f}",
            *(f"{geometric(line.column(name)):.1e}" for name in (*METHODS, "certificate")),
            f"{line.gain:,.0f}" if line.gain >= 10 else f"{line.gain:.1f}",
            f"{line.ratios.min():.2f} to {line.ratios.max():.2f}",
            f"{line.column('rounds').mean():.1f}",
        )
        for line in lines
    ]
    return markdown(HEADER, rows)


def _summary(lines: Sequence[Line]) -> list[str]:
    gains = [line.gain for line in lines if line.is_named]
    ratios = np.concatenate([line.ratios for line in lines])
    told = [f"Certificate over truth, all {len(ratios)} models: {ratios.min():.3f} to {ratios.max():.2f}."]
    if gains:
        told.append(
            f"Gain where m > {LEAST_ROWS} p: smallest {min(gains):,.0f}, geometric mean {geometric(gains):,.0f}."
        )
    return told


def write(excess: Sequence[Record], studies: Sequence[Record], out: Path) -> None:
    """Write README.md and the figures."""
    from .sections import SECTIONS

    lines = lines_of(excess)
    text = [
        "# Models fitted on coresets",
        "",
        "`python -m paper benchmark models FOLDER`, then without a folder. Relative excess loss `(F - F*) / F*` over",
        "all rows of a linear model fitted to a subset, with alpha = 1e-4 and a free intercept; `F*` is solved to a",
        "relative 1e-12. Geometric means of five seeds. *Stratified*: by class, or by tenths of the targets.",
        "*Two-step*: `sample(size, calibrate=False)`. *Calibrated*: `sample(size)`. *Certificate*: `certify_model` of",
        "the calibrated fit. *Gain*: uniform over calibrated. *m / p*: rows per column, and per class if there are",
        "more than two. Numbers are standardised, on CovType all columns; categories are columns of 0 and 1.",
        "",
        *excess_table(lines),
        "",
        *_summary(lines),
        "",
        "## Requirements on excess and certificates that are missed",
        "",
        *([f"* {each}" for each in misses(lines)] or ["None."]),
        "",
        "![Excess loss against size](excess.svg)",
    ]
    for title, about, table in SECTIONS:
        if rows := table(studies):
            text += ["", f"## {title}", "", about, "", *rows]
    (out / "README.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    draw_excess(lines, out / "excess.svg")


STYLES: dict[str, dict[str, Any]] = {
    "uniform": {"color": plots.BLACK, "marker": "o"},
    "two-step": {"color": plots.ORANGE, "marker": "D"},
    "calibrated": {"color": plots.BLUE, "marker": "^"},
    "certificate": {"color": plots.VERMILLION, "marker": "|", "markersize": 9},
}


def draw_excess(lines: Sequence[Line], path: Path) -> None:
    """Draw the excess on every table, ordered by rows per parameter."""
    ordered = sorted(lines, key=lambda line: line.rows_per_parameter)
    names = [f"{line.table}, {WORDS[line.loss]}, {line.size:,} ({line.rows_per_parameter:.0f})" for line in ordered]
    first = next((i for i, line in enumerate(ordered) if line.is_named), len(ordered))
    about = (
        "relative excess loss, geometric mean of five seeds\n"
        f"(in brackets: rows per parameter; above the line, more than {LEAST_ROWS})"
    )
    with plots.new_figure(8.5, 0.19 * len(ordered) + 1.6) as figure:
        ax = figure.subplots()
        for name, style in STYLES.items():
            values = [geometric(line.column(name)) for line in ordered]
            ax.plot(values, range(len(ordered)), label=name, linestyle="", **style)
        ax.set(xscale="log", xlabel=about, ylim=(-0.7, len(ordered) - 0.3))
        ax.set_yticks(range(len(ordered)), names, fontsize=7.5)
        ax.axhline(first - 0.5, color=plots.GREY, linewidth=0.8)
        figure.legend(loc="outside upper center", ncols=4)
        plots.save_figure(figure, path)
