"""Draw figures of the documentation from stored records, and its flow chart: ``python tools/docs_figures.py``.

Nothing is measured here. The files go to docs/figures; the same records give the same bytes with the same Matplotlib.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "figures"
Excess = dict[int, dict[str, list[float]]]


def excess(table: str = "covtype", loss: str = "logistic") -> Excess:
    """Relative excess losses by size and kind of subset, one entry per seed, from paper/results/models."""
    found: Excess = defaultdict(lambda: defaultdict(list))
    for line in (ROOT / "paper/results/models/excess.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if (record["table"], record["loss"]) == (table, loss):
            for kind in ("uniform", "two-step", "calibrated", "certificate"):
                found[record["size"]][kind].append(record[kind])
    return dict(sorted(found.items()))


def gains(method: str = "AUTO") -> dict[str, list[float]]:
    """Points above all data at equal samples, by condition, from the first table of paper/results/acceleration.md."""
    text = (ROOT / "paper/results/acceleration.md").read_text(encoding="utf-8")
    lines = [line for line in text.split("Over the cells of")[0].splitlines() if line.startswith("|")]
    column = [cell.strip() for cell in lines[0].split("|")].index(method)
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.split("|")]
        condition = cells[1].split(", ")[1]
        found[condition] += [float(number) for number in re.findall(r"[+-]\d+\.\d+", cells[column])]
    return dict(found)


def memory() -> list[tuple[str, float, float]]:
    """Rows, size of the file and peak of memory in MB, closed form, from paper/benchmarks/results.json."""
    table = json.loads((ROOT / "paper/benchmarks/results.json").read_text(encoding="utf-8"))["scale"]["tables"][0]
    return [
        (row[0].split()[0], 1000 * float(row[1].split()[0]), float(row[4].split()[0]))
        for row in table["rows"]
        if row[0].endswith("closed form")
    ]


def draw_table(out: Path, height: float = 2.7, **labels: str) -> None:
    """Draw the loss of fits to subsets, above the smallest possible one; ``labels`` names the lines."""
    from paper.plots import BLACK, BLUE, ORANGE, VERMILLION, new_figure, save_figure

    found = excess()
    sizes = list(found)
    styles: dict[str, dict[str, Any]] = {
        "uniform": {"color": BLACK, "marker": "o", "linestyle": ":"},
        "two-step": {"color": ORANGE, "marker": "D", "linestyle": "--"},
        "calibrated": {"color": BLUE, "marker": "^"},
        "certificate": {"color": VERMILLION, "marker": "_", "linestyle": "", "markersize": 18, "markeredgewidth": 2},
    }
    with new_figure(5.6, height) as figure:
        ax = figure.subplots()
        for kind, label in labels.items():
            style = styles[kind]
            values = [found[size][kind] for size in sizes]
            ax.plot(sizes, [np.exp(np.mean(np.log(v))) for v in values], label=label, **style)
            if kind != "certificate":
                low, high = [min(v) for v in values], [max(v) for v in values]
                ax.fill_between(sizes, low, high, color=style["color"], alpha=0.13, linewidth=0)
        ax.set(xscale="log", yscale="log", xlabel="rows the model is fitted to, of 92,962", ylabel="excess loss")
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        ax.legend(loc="lower left")
        save_figure(figure, out)


def draw_training(out: Path) -> None:
    """Draw what ``auto`` gains over all data at equal samples, a dot for each cell."""
    from paper.plots import BLUE, GREY, new_figure, save_figure

    found = gains()
    names = {
        "20 % wrong": "a fifth of the\nlabels wrong",
        "clean": "clean",
        "duplicates": "70 % of the rows\nnear-copies",
    }
    with new_figure(5.6, 2.5) as figure:
        ax = figure.subplots()
        for place, condition in enumerate(names):
            values = np.sort(found[condition])
            offsets = np.linspace(-0.22, 0.22, values.size)
            ax.plot(values, place + offsets, "o", color=BLUE, alpha=0.7, markersize=5)
        ax.axvline(0, color=GREY, linewidth=1)
        ax.set_yticks(range(len(names)), names.values())
        ax.set(xlabel="points of accuracy above all data at equal samples", ylim=(-0.5, len(names) - 0.5))
        ax.grid(visible=False, axis="y")
        save_figure(figure, out)


def draw_files(out: Path) -> None:
    """Draw the size of two files and the memory that choosing rows from them takes."""
    from paper.plots import BLUE, SHADE, new_figure, save_figure

    rows = sorted(memory(), key=lambda row: row[1])
    with new_figure(5.6, 2.2) as figure:
        ax = figure.subplots()
        for place, (_, file, peak) in enumerate(rows):
            for offset, value, color in ((0.19, file, SHADE), (-0.19, peak, BLUE)):
                ax.barh(place + offset, value, 0.34, color=color)
                ax.text(value + 15, place + offset, f"{value:,.0f} MB", va="center")
        ax.set_yticks(range(len(rows)), [f"{name}\nrows" for name, _, _ in rows])
        ax.set(xlim=(0, 1480), xlabel="MB: grey, the Parquet file; blue, the peak of memory of the process")
        ax.grid(visible=False, axis="y")
        save_figure(figure, out)


QUESTIONS = (  # question, the answer that leads to the right, and where it leads
    (("Is the model a network", "that you train?"), "no", ("see “Which subset", "for my model?”")),
    (("Do you have time for all the", "data, with fewer epochs?"), "yes", ("auto", "the default")),
    (("Do you need one subset", "for many networks?"), "yes", ("fixed-coreset", "labels must be clean")),
    (("Can you redraw", "before every epoch?"), "no", ("adaptive-coreset", "select_every=20")),
    (("Does the loop record what", "it sees? train, sift: yes"), "yes", ("adaptive-coreset-seen", "select_every=1")),
)
LAST = ("adaptive-random", "select_every=1")


def flow_chart() -> str:
    """The way to a strategy as an SVG: questions on the left, strategies on the right, legible on a phone."""
    step, left, width, height = 118, (12, 318), 700, 76
    right = (418, 272)
    parts = []

    def box(x: int, y: int, w: int, lines: tuple[str, ...], fill: str, edge: str, *, is_code: bool) -> None:
        parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{height}" rx="9" fill="{fill}" stroke="{edge}"/>')
        for i, line in enumerate(lines):
            style = ' font-family="monospace" font-weight="bold"' if is_code and i == 0 else ""
            parts.append(
                f'<text x="{x + w // 2}" y="{y + 33 + 27 * i}" text-anchor="middle"{style}>{escape(line)}</text>'
            )

    def arrow(x1: int, y1: int, x2: int, y2: int, word: str) -> None:
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#333" marker-end="url(#head)"/>')
        x, y = ((x1 + x2) // 2 - 4, y1 - 9) if y1 == y2 else (x1 + 26, (y1 + y2) // 2 + 6)
        parts.append(f'<text x="{x}" y="{y}" text-anchor="middle" fill="#555">{word}</text>')

    for i, (question, answer, leads_to) in enumerate(QUESTIONS):
        y = 12 + i * step
        box(left[0], y, left[1], question, "#fff6d6", "#b08900", is_code=False)
        box(right[0], y, right[1], leads_to, "#e3f1fa", "#0072b2", is_code=i > 0)
        arrow(left[0] + left[1], y + height // 2, right[0] - 4, y + height // 2, answer)
        middle = left[0] + left[1] // 2
        arrow(middle, y + height, middle, y + step - 4, "no" if answer == "yes" else "yes")
    y = 12 + len(QUESTIONS) * step
    box(left[0] + 27, y, right[1], LAST, "#e3f1fa", "#0072b2", is_code=True)
    total = y + height + 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}"'
            ' font-family="DejaVu Sans, Verdana, sans-serif" font-size="20" fill="#111" stroke-width="1.6">',
            "<title>Which strategy?</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#333"/></marker></defs>',
            f'<rect width="{width}" height="{total}" rx="12" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


FIGURES: dict[str, Callable[[Path], object]] = {
    "path-table": lambda out: draw_table(
        out, uniform="fit to a uniform sample", calibrated="fit to a coreset", certificate="its certificate"
    ),
    "linear-models": lambda out: draw_table(
        out,
        height=3.4,
        **{
            "uniform": "uniform sample",
            "two-step": "coreset, weights as drawn",
            "calibrated": "coreset, calibrated weights (the default)",
            "certificate": "proved bound on the calibrated fit",
        },
    ),
    "path-training": draw_training,
    "path-files": draw_files,
    "choosing": lambda out: out.write_text(flow_chart(), encoding="utf-8"),
}


def main() -> None:
    """Draw all figures, or those named as arguments."""
    sys.path.insert(0, str(ROOT))  # for the style of the figures, paper.plots
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name](OUT / f"{name}.svg")
        print(f"docs/figures/{name}.svg")


if __name__ == "__main__":
    main()
