"""The report: one self-contained page of the results of ``python -m paper run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coresift.coresets.files import write_whole

from .inputs import Inputs, Missing, look_at
from .page import page
from .reading import Part, Results, read_results

__all__ = ["Results", "read_results", "write_report"]

Looking = Callable[[Part], Inputs | Missing]


def write_report(
    results: Results, out: Path, data_dir: Path | None = None, *, verbose: int = 0, looking: Looking | None = None
) -> int:
    """Write the page, whole or not at all.

    Parameters
    ----------
    results : Results
        The result of :func:`read_results`.
    out : path
    data_dir : path, optional
        The folder of the data sets; without it the page has no sensitivities, images and certificates.
    verbose : int, default 0
        Above 0, log progress at WARNING level.
    looking : callable, optional
        Describes the data set of a part; by default the data are read from ``data_dir``.

    Returns
    -------
    int
        The size of the page in bytes.
    """
    found: dict[str, Inputs | Missing] = {}  # once for each data set, however many tables it has
    for part in results.parts:
        name = part.protocol.dataset
        if name not in found:
            same = [each.summary.budgets for each in results.parts if each.protocol.dataset == name]
            budgets = sorted({budget for each in same for budget in each})
            found[name] = looking(part) if looking else look_at(name, budgets, data_dir, verbose=verbose)
    text = page(results, found)
    write_whole(out, lambda file: file.writelines([text]))
    return len(text)
