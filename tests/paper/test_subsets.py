"""Subsets for models: records that resume, scores of every method, and a report that follows from the records alone."""

from pathlib import Path

import numpy as np
import pytest

from paper import subsets
from paper.subsets import Table, measure, methods_of, read_cells, run_missing
from paper.subsets_report import frame_of, gains, write_report


def small(n: int = 1200) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return Table(X, (X[:, 0] + X[:, 1] > 2.9).astype(int), True)


def test_runs_resume_and_the_report_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsets, "LOADERS", {"small": lambda folder: small()})
    subsets.load.cache_clear()
    path = tmp_path / "records.jsonl"
    steps = run_missing(tmp_path, path, seeds=2, budgets=(0.1,), methods=["stratified", "cover", "auto"])
    assert next(steps)[:2] == (1, 6)
    steps.close()  # killed after the first
    with path.open("a") as file:
        file.write('{"table": "cut o')
        file.write("\n")
    done = [step[0] for step in run_missing(tmp_path, path, 2, (0.1,), ["stratified", "cover", "auto"])]
    assert done == [2, 3, 4, 5, 6]
    cells = read_cells(path)
    assert len(cells) == len({cell.key for cell in cells}) == 6
    write_report(cells, tmp_path)
    found = gains(frame_of(cells), "cover")
    assert set(found["n"]) == {2}
    assert (tmp_path / "README.md").read_text().count("| 10% | cover |") == 1
    assert (tmp_path / "gains.svg").stat().st_size > 1000
    subsets.load.cache_clear()


def test_the_same_seed_gives_the_same_scores_and_methods_suit_the_table() -> None:
    table = small()
    assert measure("t", table, 0.1, 1, "fixed").scores == measure("t", table, 0.1, 1, "fixed").scores
    assert "rare and random" in methods_of(table)
    assert "stratified" not in methods_of(Table(table.X, table.X[:, 0], False))
