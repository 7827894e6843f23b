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
from coresift.coresets.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")

# Okabe and Ito (2008)
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    *("#000000", "#E69F00", "#56B4E9", "#009E73"),
    *("#F0E442", "#0072B2", "#D55E00", "#CC79A7"),
)
SHADE, TINT = "#DDDDDD", "#FFF6D6"  # behind the data: where nothing is guaranteed, where nothing is gained

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
def figure_style() -> Iterator[None]:
    """Draw in the style of this package, and leave Matplotlib's own settings as they were."""
    with require_matplotlib().rc_context(_STYLE):
        yield


def require_matplotlib() -> Any:
    """The module, or an error that names the extra."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise MissingExtraError('figures need Matplotlib: pip install "coresift[plots]"') from error
    return mpl


def figure_paths(out: Path) -> list[Path]:
    """The files to write: the one named, or one of each kind where the name has no suffix."""
    if not out.name or out.is_dir():
        raise InvalidInputError(f"{out}: this is a folder; a file is to be written")
    if not out.suffix:
        return [out.with_name(out.name + suffix) for suffix in SUFFIXES]
    if out.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{out}: unknown suffix {out.suffix!r}; use {' or '.join(SUFFIXES)}")
    return [out]


def check_writable(path: Path) -> None:
    """Raise at once what writing this file would raise after hours of computing."""
    if path.is_dir():
        raise InvalidInputError(f"{path}: this is a folder; a file is to be written")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written ({error.strerror})") from error


def save_figure(figure: Figure, path: Path) -> None:
    """Write whole or not at all; the same figure gives the same bytes."""
    kind = path.suffix.lower()[1:]
    unstamped = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    with figure_style():
        write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=unstamped))


def true_spans(x: Sequence[float], flags: Sequence[bool]) -> Iterator[tuple[float, float]]:
    """Intervals of a logarithmic axis in which the flag holds, ends half-way to the neighbour where it does not."""
    ends = [x[0], *(math.sqrt(a * b) for a, b in pairwise(x)), x[-1]]
    start = None
    for i, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            yield ends[start], ends[i]
            start = None
