"""A report: one self-contained page of the results of ``coresift bench``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from coresift.coresets.files import write_whole

from .inputs import Inputs, Missing, look_at
from .page import page
from .reading import Part, Results, read_results

__all__ = ["Results", "read_results", "write_report"]

Looking = Callable[[Part], Inputs | Missing]


def write_report(
    results: Results,
    out: Path,
    data_dir: Path | None = None,
    *,
    verbose: int = 0,
    looking: Looking | None = None,
) -> int:
    """Write the page, whole or not at all.

    Parameters
    ----------
    results : Results
        Of :func:`read_results`.
    out : path
    data_dir : path, optional
        The folder of the data sets; without it there are no sensitivities, images and certificates.
    verbose : int, default 0
        Above 0, progress is logged as warnings of the logger ``coresift``.
    looking : callable, optional
        In place of reading the data, from the first part of a data set to what is said of it.

    Returns
    -------
    int
        The size of the page in bytes.
    """
    found: dict[str, Inputs | Missing] = {}  # once for each data set, whatever the number of its tables
    for part in results.parts:
        name = part.protocol.dataset
        if name not in found:
            alike = [each.summary.budgets for each in results.parts if each.protocol.dataset == name]
            budgets = sorted({budget for each in alike for budget in each})
            found[name] = looking(part) if looking else look_at(name, budgets, data_dir, verbose=verbose)
    text = page(results, found)

    def write(file: IO[bytes]) -> None:
        file.write(text)

    write_whole(out, write)
    return len(text)
