"""Progress of long computations: log messages, or bars by Rich where a terminal shows them.

A computation counts its work with :class:`Progress`, which logs to ``coresift`` at most every two seconds::

    progress = Progress("cells", total=n, verbose=self.verbose)
    for rows in blocks:
        ...
        progress(len(rows))  # more rows are done

:class:`Bars` draws instead, and is called like ``Progress``; code that takes either has a parameter
``display: Display = Progress``::

    with Bars() as display:  # needs the extra "cli"
        epochs = display("training", 20, unit="epochs")
        epochs.move(3.5, note="loss 0.12")  # absolute, with a remark

The library never writes to the terminal unasked: messages have level INFO, or WARNING with ``verbose=1``.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol, Self

from ._errors import MissingExtraError

logger = logging.getLogger("coresift")

_LOG_SECONDS = 2.0


class Progress:
    """Work that is done, logged every two seconds.

    Parameters
    ----------
    label : str
    total : float
        In ``unit``; may be changed later.
    verbose : int
        Above 0, log at WARNING level, which Python shows by default.
    unit : str
    warn_after : float
        Warn once, whatever ``verbose`` is, when more than this many seconds are ahead.
    """

    def __init__(
        self, label: str, total: float, verbose: int = 0, *, unit: str = "rows", warn_after: float = 60.0
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done, self.note = 0.0, ""
        self._level = logging.WARNING if verbose else logging.INFO
        self._warn_after = warn_after
        self._started = self._logged = time.monotonic()

    def __call__(self, done: float = 1.0, note: str | None = None) -> None:
        """Count ``done`` more units."""
        self.move(self.done + done, note)

    def move(self, done: float, note: str | None = None) -> None:
        """Set how many units are done; ``note`` is shown beside them until there is another."""
        self.done, self.note = done, self.note if note is None else note
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._logged < _LOG_SECONDS or not 0 < self.done < self.total:
            return
        self._logged = now
        left, level = (now - self._started) * (self.total - self.done) / self.done, self._level
        if left > self._warn_after:
            self._warn_after, level = float("inf"), logging.WARNING
        share, note = 100 * self.done / self.total, self.note and f" ({self.note})"
        text = "%s: %.0f %% of %d %s, about %.0f s left%s"
        logger.log(level, text, self.label, share, self.total, self.unit, left, note)


class _Bar(Progress):
    """Work that is done, drawn as a bar; Rich draws at most ten times a second."""

    def __init__(self, bars: Any, label: str, total: float, unit: str) -> None:
        super().__init__(label, total, unit=unit)
        self._bars, self._task = bars, bars.add_task(label, total=total, note="")

    def _show(self) -> None:
        self._bars.update(
            self._task, description=self.label, total=self.total, completed=self.done, note=self.note
        )


class Display(Protocol):
    """Anything that shows work: the class :class:`Progress` (logs), or :class:`Bars`."""

    def __call__(self, label: str, total: float, *, unit: str = "rows") -> Progress:
        """Begin a computation of ``total`` units."""


class Bars:
    """Bars on standard error while the ``with`` block runs, one for each call; needs the extra ``cli``.

    Parameters
    ----------
    console : rich.console.Console, optional
        By default standard error.
    disable : bool
        Draw nothing, for example where nobody looks at a terminal.
    transient : bool
        Remove the bars at the end.
    """

    def __init__(self, console: Any = None, *, disable: bool = False, transient: bool = False) -> None:
        try:
            from rich import progress as rich
            from rich.console import Console
        except ImportError as error:
            raise MissingExtraError('a progress bar needs rich: pip install "coresift[cli]"') from error
        self._bars = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.TextColumn("{task.fields[note]}", markup=False),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=transient,
            disable=disable,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def __call__(self, label: str, total: float, *, unit: str = "rows") -> Progress:
        """Add a bar."""
        return _Bar(self._bars, label, total, unit)
