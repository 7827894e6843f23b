"""Tables and the figure of ``subsets``: means over seeds of every strategy, and what ``auto`` gains over stratified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from coresift._errors import InvalidInputError
from coresift._progress import Progress
from coresift.coresets.files import write_whole

from .bench.store import RESULTS
from .plots import BLUE, GREY, VERMILLION, figure_paths, new_figure, save_figure
from .subsets import CHOSEN_ON, KINDS, METHODS, Cell, read_cells, run_missing


def study(data_dir: Path | None, out: Path = RESULTS) -> str:
    """Measure what the records in ``out/tables`` lack, and write the tables and the figure; resumable."""
    if data_dir is None:
        raise InvalidInputError("--data-dir is needed: the folder of the tables (paper/subsets.py says what it holds)")
    folder, progress = out / "tables", Progress("tables", 1.0, verbose=1, unit="subsets", warn_after=math.inf)
    for done, total, last in run_missing(data_dir, folder / "records.jsonl"):
        progress.total = total
        progress.move(done, last)
    cells = read_cells(folder / "records.jsonl")
    if cells:
        write_report(cells, folder)
    return f"{len(cells):,} subsets are in {folder / 'records.jsonl'}, their means in {folder / 'README.md'}."


def frame_of(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row for each model that was fitted to a subset."""
    return pd.DataFrame(
        {**asdict(cell), "model": model, "score": score, "strategy": cell.strategies.get(model, "")}
        for cell in cells
        for model, score in cell.scores.items()
    ).drop(columns=["scores", "strategies"])


def gains(frame: pd.DataFrame, method: str = "auto") -> pd.DataFrame:
    """Of ``method`` over the plain draw (stratified; uniform in a regression), paired by seed: mean and error."""
    keys = ["table", "model", "budget", "seed"]
    wide = frame.pivot_table("score", keys, "method")
    plain = wide[[name for name in ("stratified", "uniform") if name in wide]].bfill(axis=1).iloc[:, 0]
    change = (wide[method] - plain).dropna().groupby(keys[:3])
    return pd.DataFrame({"gain": change.mean(), "error": change.sem(), "n": change.size()}).reset_index()


def _count(seeds: pd.Series) -> str:
    least, most = int(seeds.min()), int(seeds.max())
    return f"{most}" if least == most else f"{least} to {most}"


def _score_name(table: str) -> str:
    if table in ("california", "diamonds", "bikes"):
        return "minus RMSE"
    rare = ("covtype, willows", "covtype", "generated, 0.9 %", "flights, 3 hours late")
    return "average precision" if table in rare else "accuracy"


def write_report(cells: Sequence[Cell], folder: Path) -> None:
    """README.md with all means, gains.csv with what auto gains, and the figure."""
    frame = frame_of(cells)
    lines = [
        "# Subsets for models",
        "",
        "Written by `python -m paper run tables --data-dir FOLDER` (`paper/subsets.py` says what the folder holds). At "
        "most 20,000 rows of a table, of which a fifth is the test set; another split for each seed. Weights have mean "
        f"1. What `auto` tries was chosen on {'; '.join(CHOSEN_ON)}, and the other tables confirm it; two later rules "
        "(kernel regressions, shares of rare classes) were chosen on all of them.",
    ]
    for name in dict.fromkeys(frame["table"]):
        part = frame[frame["table"] == name]
        seeds = part.groupby(["budget", "method"])["seed"].nunique()
        role = "rule chosen here" if name in CHOSEN_ON else "confirmation"
        lines += ["", f"## {name}: {_score_name(name)} ({role}; {_count(seeds)} seeds)", ""]
        wide = part.pivot_table("score", ["budget", "method"], "model")[list(KINDS)]
        lines += ["| budget | subset | " + " | ".join(KINDS) + " |", "|---:|---|" + "---:|" * len(KINDS)]
        for budget in sorted(part["budget"].unique()):
            for method in [each for each in METHODS if (budget, each) in wide.index]:
                values = " | ".join(f"{value:.3f}" for value in wide.loc[(budget, method)])
                lines.append(f"| {budget:.0%} | {method} | {values} |")
    text = "\n".join(lines) + "\n"
    write_whole(folder / "README.md", lambda file: file.writelines([text.encode()]))
    if "auto" in set(frame["method"]):
        found = gains(frame)
        found.to_csv(folder / "gains.csv", index=False, lineterminator="\n", float_format="%.5f")
        draw(found, folder / "gains")


def draw(found: pd.DataFrame, out: Path) -> None:
    """What auto gains over a stratified draw, in points: a panel for each model, a row for each table."""
    names = list(dict.fromkeys(found["table"]))
    with new_figure(11, 4.8) as figure:
        names = sorted(names, key=lambda name: (_score_name(name), name))
        models = [name for name in KINDS if name in set(found["model"])]
        axes = figure.subplots(1, len(models), sharex=True, sharey=True, squeeze=False)
        for axis, model in zip(axes[0], models, strict=True):
            part = found[found["model"] == model]
            for budget, shift, colour in ((0.01, -0.2, VERMILLION), (0.05, 0.0, BLUE), (0.1, 0.2, GREY)):
                own = part[np.isclose(part["budget"], budget)].set_index("table")
                if own.empty:
                    continue
                at = [i + shift for i, name in enumerate(names) if name in own.index]
                own = own.loc[[name for name in names if name in own.index]]
                error = 100 * own["error"].fillna(0.0)
                axis.errorbar(100 * own["gain"], at, xerr=error, fmt="o", ms=3.5, color=colour, label=f"{budget:.0%}")
            axis.axvline(0.0, color="black", lw=0.8)
            axis.set_title(model)
            axis.set_xscale("symlog", linthresh=5)
            axis.set_xticks([-5, 0, 5, 20, 60], ["-5", "0", "5", "20", "60"])
            axis.set_xticks([], minor=True)
        axes[0][0].set_yticks(range(len(names)), [f"{name} ({_score_name(name)})" for name in names])
        axes[0][0].invert_yaxis()
        figure.supxlabel(
            "auto less a stratified draw, in points (hundredths): right is better; bars are standard errors"
        )
        axes[0][-1].legend(title="of the rows")
        for path in figure_paths(out):
            save_figure(figure, path)
