"""What all figures share: style, colours for colour-blind readers too, files that repeat byte by byte."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresift._errors import InvalidInputError, MissingExtraError
from coresift._imports import how_to_install
from coresift.coresets.files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")

# Okabe and Ito (2008)
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    *("#000000", "#E69F00", "#56B4E9", "#009E73"),
    *("#0072B2", "#D55E00", "#CC79A7"),
)
GREY, SHADE, TINT = ("#555555", "#DDDDDD", "#FFF6D6")  # annotations; where nothing is guaranteed, nothing is gained

LINES: dict[str, dict[str, Any]] = {
    "uniform": {"color": BLACK, "marker": "o", "linestyle": ":"},
    "uniform reweighted": {"color": ORANGE, "marker": "D", "linestyle": ":"},
    "uniform per class": {"color": ORANGE, "marker": "D", "linestyle": ":"},
    "paper": {"color": VERMILLION, "marker": "s", "linestyle": "--"},
    "ours": {"color": BLUE, "marker": "^", "linestyle": "-"},
    "ours reweighted": {"color": PURPLE, "marker": "D", "linestyle": "-."},
    "ours refined": {"color": GREEN, "marker": "v", "linestyle": "-"},
    "gradient norms": {"color": PURPLE, "marker": "P", "linestyle": "-."},
}

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same on every machine
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#D8D8D8",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "coresift",  # identifiers in the file, otherwise random
}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Make a figure of a size in inches and draw in the style of all figures."""
    with require_matplotlib().rc_context(_STYLE):
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), layout="constrained")


def require_matplotlib() -> Any:
    """Return the module, or raise an error that names the extra."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"figures need Matplotlib: {how_to_install('plots')}") from error
    return mpl


def banded(ax: Axes, middle: pd.Series, low: pd.Series, high: pd.Series, **line: Any) -> None:
    """Draw a line against its index, with a band around it."""
    ax.fill_between(middle.index, low, high, color=line["color"], alpha=0.15, linewidth=0)
    ax.plot(middle.index, middle, **line)


def figure_paths(out: Path) -> list[Path]:
    """Return the files to write: the one named, or one of each kind where the name has no suffix."""
    if not out.name or out.is_dir():
        raise InvalidInputError(f"{out}: this is a folder; name a file")
    if not out.suffix:
        return [out.with_name(out.name + suffix) for suffix in SUFFIXES]
    if out.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{out}: unknown suffix {out.suffix!r}; use {' or '.join(SUFFIXES)}")
    return [out]


def check_writable(path: Path) -> None:
    """Raise now what writing this file would raise after hours of computing."""
    if path.is_dir():
        raise InvalidInputError(f"{path}: this is a folder; name a file")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written ({error.strerror})") from error


def save_figure(figure: Figure, path: Path) -> None:
    """Write whole or not at all; the same figure gives the same bytes."""
    kind = path.suffix.lower()[1:]
    unstamped = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    with require_matplotlib().rc_context(_STYLE):
        write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=unstamped))


def true_spans(x: Sequence[float], flags: Sequence[bool]) -> Iterator[tuple[float, float]]:
    """Yield the intervals of a logarithmic axis where a flag holds; they end half-way to the next point."""
    ends = [x[0], *(math.sqrt(a * b) for a, b in pairwise(x)), x[-1]]
    start = None
    for i, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            yield ends[start], ends[i]
            start = None
