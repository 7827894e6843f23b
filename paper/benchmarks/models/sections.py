"""Tables of the studies, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..measure import Record, markdown
from .studies import FOLDS, PENALTIES, SUBSETS


def _of(records: Sequence[Record], study: str) -> list[Record]:
    return [record for record in records if record["study"] == study]


def _table(
    study: str, header: Sequence[str], rows_of: Callable[[list[Record]], list[Sequence[str]]]
) -> Callable[[Sequence[Record]], list[str]]:
    """Make a function from records to a table in Markdown; empty without records of the study."""

    def make(records: Sequence[Record]) -> list[str]:
        own = _of(records, study)
        return markdown(header, rows_of(own)) if own else []

    return make


def _grid_rows(found: list[Record]) -> list[Sequence[str]]:
    (record,) = found
    base = record["ways"]["all rows"]["cpu"]
    return [
        (
            way,
            f"{each['cpu']:.1f}",
            f"{base / each['cpu']:.1f}",
            f"{each['regret']:.1e}",
            "" if each["models"] is None else f"{each['models']:.1e}",
        )
        for way, each in record["ways"].items()
    ]


def _single_rows(found: list[Record]) -> list[Sequence[str]]:
    (record,) = found
    names = {
        "coreset": f"coreset of {record['size']:,} rows",
        "certificate": f"its certificate ({record['certified']:.1e})",
    }
    return [(names.get(way, f"all rows, {way}"), f"{spent:.2f}") for way, spent in record["cpu"].items()]


def _parquet_rows(found: list[Record]) -> list[Sequence[str]]:
    (record,) = found
    ours, sgd = record["ours"], record["sgd"]
    best = max(each["lower"] for each in (*ours["fits"], sgd))
    ways = [(f"coreset of 20,000 rows, tolerance {each['tolerance']:g}", each) for each in ours["fits"]]
    ways.append((f"SGDClassifier.partial_fit, {sgd['scans']} scans", sgd))
    rows: list[Sequence[str]] = [("bare scan", "", f"{ours['scan']:.1f}", "1.0", "", "", "")]
    for name, each in ways:
        figures = [f"{each['cpu']:.1f}", f"{each['cpu'] / ours['scan']:.1f}", f"{each['mb']:,.0f}"]
        excess = f"{each['objective'] / best - 1:.1e}"
        rows.append((name, str(each.get("passes", "")), *figures, excess, f"{each['relative']:.1e}"))
    return rows


def _few_rows(found: list[Record]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name in found[0]["lines"]:
        own = [record["lines"][name] for record in found]
        table, loss, size = name.split("; ")
        means = [f"{np.mean([each[way] for each in own]):.1e}" for way in ("uniform", "stratified", "coreset")]
        middle = [f"{np.median([each[way] for each in own]):.1e}" for way in ("uniform", "coreset")]
        kept = np.mean([each["method"] != "two-step" for each in own])
        of = f"{int(size) / own[0]['parameters']:.1f}"
        rows.append((f"{table}, {loss.replace('_', ' ')}", size, of, *means, *middle, f"{kept:.0%}"))
    return rows


def _spread(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def _cluster_rows(found: list[Record]) -> list[Sequence[str]]:
    return [
        (f"k = {k}", *(_spread([record["cost"][k][way] for record in found], 3) for way in ("uniform", "coreset")))
        for k in found[0]["cost"]
    ]


def _kernel_rows(found: list[Record]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for way in SUBSETS:
        own = [record["ways"][way] for record in found if way in record["ways"]]
        accuracy = _spread([100 * each["accuracy"] for each in own], 2)
        rows.append((way, accuracy, f"{np.mean([each['cpu'] for each in own]):.2f}"))
    return rows


def _tree_rows(found: list[Record]) -> list[Sequence[str]]:
    return [
        (
            way,
            *(
                _spread([100 * r["models"][model][way] for r in found if way in r["models"][model]], 2)
                for model in ("forest", "boosting")
            ),
        )
        for way in SUBSETS
    ]


SECTIONS: tuple[tuple[str, str, Callable[[Sequence[Record]], list[str]]], ...] = (
    (
        "A grid of penalties",
        f"{len(PENALTIES)} penalties x {FOLDS} folds, 500,000 x 50 generated float32 rows. Processor seconds with "
        "construction; subsets have 10,000 rows, drawn for the middle penalty. *Regret*: how far the chosen penalty "
        "is above the best, in the loss of fits on all rows, over the folds. *Models*: the same for the models "
        "fitted to the subsets. All rows by lbfgs. The aim: 5 times faster with a regret of at most 1e-4.",
        _table("grid", ("fitted to", "seconds", "times faster", "regret", "models"), _grid_rows),
    ),
    (
        "A single fit in memory",
        "1,000,000 x 30 generated float32 rows, alpha = 1e-4; processor seconds. A single well-conditioned fit of data "
        "in memory does not gain.",
        _table("single", ("fitted to", "seconds"), _single_rows),
    ),
    (
        "A table in Parquet files",
        "4,000,000 x 30 float32 columns in 8 files, scaled down from larger than memory; ours and SGD in a process "
        "each. Processor seconds, also in bare scans (reading all columns into NumPy), and the peak of resident "
        "memory. *Excess*: against the best lower bound. SGD is averaged, with its default rate and unscaled columns. "
        "The aim: a certified 1e-3 in at most 12 bare scans and 1 GB.",
        _table("parquet", ("", "passes", "seconds", "bare scans", "MB", "excess", "certified"), _parquet_rows),
    ),
    (
        "About one row a parameter",
        "Relative excess at sizes from half a row to 20 rows a parameter (*m / q*), means and medians of 11 seeds. "
        "*Even*: how often the comparison kept the plain draw. Means of unbounded losses can be set by one seed.",
        _table(
            "few",
            ("table, loss", "m", "m / q", "uniform", "stratified", "coreset", "median, uniform", "coreset", "even"),
            _few_rows,
        ),
    ),
    (
        "k-means",
        "CovType, 4,000 rows: cost on all rows over the best of three fits on all rows; mean ± deviation of five "
        "seeds.",
        _table("clusters", ("", "uniform", "coreset"), _cluster_rows),
    ),
    (
        "A kernel machine on the same subsets",
        "SVC(C=10) on CovType, two classes: 1,500 of 15,000 rows, accuracy in % on 15,000 others, processor seconds "
        "with the choice. The coreset is that of the logistic loss.",
        _table("kernel", ("fitted to", "accuracy", "seconds"), _kernel_rows),
    ),
    (
        "Trees on the same subsets",
        "CovType, 10 columns, 7 classes: 6,000 of 60,000 rows, accuracy in % on 30,000 others. No gain is "
        "claimed: no choice of rows closes the gap of the forest to all rows.",
        _table("trees", ("fitted to", "random forest", "gradient boosting"), _tree_rows),
    ),
)
