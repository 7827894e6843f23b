"""The page of results, from the lines of JSON."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from paper.benchmarks.peers.data import CASES
from paper.benchmarks.peers.methods import METHODS

Record = dict[str, Any]

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "peers.md"

# column, measure, whether less is better
MEASURES = (
    ("certified", "certified", True),
    ("found", "found", True),
    ("MMD", "mmd", True),
    ("MMD, our weights", "best_mmd", True),
    ("logistic", "logistic", False),
    ("1-NN", "neighbour", False),
)

INTRODUCTION = """\
Written by `python -m paper benchmark peers` (extra `peers`); discussed in [docs/peers.md]({page}).
Every method gets the same array (float32), the same size m and, where it has a kernel, the same kernel
$e^{{-\\lVert p-x \\rVert^2/\\sigma^2}}$ with the median distance as $\\sigma$; each runs in a process of its own, one
thread.

* **processor, clock**: seconds of the fastest of {seeds} calls (of one, if it took more than 4 s or the data is large),
  so that compilation is left out where a call is short. The machine was shared: read the processor's seconds, not the
  clock's. A choice that needs more than {limit:g} s of processor time is stopped: *too slow*.
* **memory**: how much the peak of the process grew during the choice (data and imports were there before), in MB.
* **certified**: proved bound on the relative error of all Gaussian sums with queries in the ball of radius 1 (in
  $\\sigma$) around the mean. Up to 20,000 rows it is that of `Coreset.certify`; above, the same bound by moments with
  those of order 3 and more taken together, which is 1.1 to 2.4 times as large: compare within a table. **found**: the
  worst error that `coresift.audit` finds. The true worst error is between the two.
* **MMD**: maximum mean discrepancy to all the data; **our weights**: after replacing the method's weights by the
  non-negative ones that minimise it. (`Coreset.reweight` minimises the certificate instead.)
* **logistic, 1-NN**: test accuracy in % of a logistic regression on the weighted subset, and of the nearest neighbour
  in it. In the mixtures all 20 clusters are equally frequent in the test rows, while 5 of them have a thousandth of the
  data each.
* Means over the seeds. The best of each column is bold. Fewer rows than m: a row was chosen twice.
"""

_DATA = """\
The least sum is a proved lower bound on F/n over the ball. The last column is what a certificate costs beyond the
choice: all pairs of rows where c is exact. Where it is not, c (the squared norm of the data's mean in the kernel's
space) is estimated without bias from random rows, and with it the columns marked *estimate*.
"""


def write(records: list[Record], out: Path, figures: Path) -> None:
    """RESULTS.md, and the figure where Matplotlib is installed."""
    limits = [record["limit"] for record in records if "limit" in record]
    lines = ["# Other packages and coresift on the same arrays", ""]
    page = Path(os.path.relpath(_PAGE, out.resolve())).as_posix()
    lines += INTRODUCTION.format(limit=max(limits, default=60.0), seeds=3, page=page).splitlines()
    lines += ["", f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}.", ""]
    lines += ["## Methods", "", *_methods(records), "", "## Data", "", *_data(records)]
    for case, size in cases(records):
        lines += ["", f"## {case}, m = {size:,}", "", *_table(records, case, size)]
    (out / "RESULTS.md").write_text("\n".join(lines) + "\n")
    try:
        from paper.benchmarks.peers import figure
    except ModuleNotFoundError:
        return
    figure.draw(records, figures)


def cases(records: list[Record]) -> list[tuple[str, int]]:
    """Data sets and sizes that were measured, from small to large."""
    order = [case.name for case in CASES]
    found = {(record["case"], record["size"]) for record in records if "size" in record}
    return sorted(found, key=lambda pair: (order.index(pair[0]) if pair[0] in order else len(order), *pair))


def subsets(records: list[Record], case: str, size: int) -> list[tuple[str, Record]]:
    """Name of a subset and the record of its method, in the order of METHODS."""
    found = []
    for name in METHODS:
        wanted = (case, size, name)
        record = next(
            (r for r in records if (r["case"], r.get("size"), r.get("method")) == wanted),
            {"status": "not run", "reason": "left out to save time"},
        )
        found += [(subset, record) for subset in record.get("quality", {name: None})]
    return found


def mean(record: Record, subset: str, measure: str) -> float:
    """Over the seeds; NaN where it is unknown."""
    values = [found.get(measure, np.nan) for found in record["quality"][subset]]
    return float(np.mean(values))


def _table(records: list[Record], case: str, size: int) -> list[str]:
    rows = subsets(records, case, size)
    measured = [(name, record) for name, record in rows if record["status"] == "ok"]
    about = next(record for record in records if record["case"] == case and record.get("kind") == "data")
    is_exact = about["square_error"] == 0.0
    shown = {
        measure: [shown_value(mean(record, name, measure), is_share=not is_less) for name, record in measured]
        for _, measure, is_less in MEASURES
    }
    best = {measure: (min if is_less else max)(shown[measure], key=float) for _, measure, is_less in MEASURES}
    header = ["subset", "rows", "processor, s", "clock, s", "memory, MB"]
    header += [
        f"{title} (estimate)" if not is_exact and measure in ("certified", "mmd", "best_mmd") else title
        for title, measure, _ in MEASURES
    ]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    position = 0
    for name, record in rows:
        if record["status"] != "ok":
            why = f"{record['status']}: {record['reason']}"
            lines.append(f"| {name} | " + " | " * (len(header) - 2) + f"{why} |")
            continue
        cells = [
            name,
            f"{mean(record, name, 'size'):.0f}",
            f"{record['processor']:.2f}",
            f"{record['clock']:.2f}",
            f"{record['memory_mb']:.0f}",
        ]
        for _, measure, _ in MEASURES:
            value = shown[measure][position]
            cells.append(f"**{value}**" if value == best[measure] else value)
        position += 1
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def shown_value(value: float, is_share: bool) -> str:
    """Three digits; shares in percent."""
    return f"{100 * value:.1f}" if is_share else f"{value:.3g}"


def _methods(records: list[Record]) -> list[str]:
    lines = ["| method | package | how |", "|---|---|---|"]
    for name, method in METHODS.items():
        versions = {record["version"] for record in records if record.get("method") == name and "version" in record}
        package = f"{method.package} {', '.join(sorted(versions))}".strip() if method.package else ""
        lines.append(f"| {name} | {package} | {method.about} |")
    return lines


def _data(records: list[Record]) -> list[str]:
    lines = [
        *_DATA.splitlines(),
        "",
        "| data | n | d | bandwidth | least sum | c (standard error) | c and least sum, s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    order = [case for case, _ in cases(records)]
    for record in sorted(
        (record for record in records if record.get("kind") == "data" and record["case"] in order),
        key=lambda record: order.index(record["case"]),
    ):
        error = "exact" if record["square_error"] == 0.0 else f"{record['square_error']:.1g}"
        lines.append(
            f"| {record['case']} | {record['n']:,} | {record['d']} | {record['scale']:.3g} | {record['floor']:.3f} | "
            f"{record['square']:.6f} ({error}) | {record['certificate_processor']:.1f} |"
        )
    return lines
