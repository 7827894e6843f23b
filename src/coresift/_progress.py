"""Progress of long computations: log messages, of level INFO or, with ``verbose=1``, WARNING; or bars by Rich."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ._imports import need

logger = logging.getLogger("coresift")

_LOG_SECONDS = 2.0

OnPass = Callable[..., Any]
"""Called with the name of a pass and its number of rows when it begins. If it returns a callable, that is called with
the number of rows that were finished, again and again."""
Display = Callable[..., "Progress"]  # from label, total and unit: the class Progress, which logs, or what bars yields


class Progress:
    """Work in ``unit``, logged every two seconds; it warns once when more than ``warn_after`` seconds are ahead."""

    def __init__(self, label: str, total: float, verbose: int = 0, *, unit: str = "rows", warn_after: Any = 60) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done, self.note = 0.0, ""
        self._level = logging.WARNING if verbose else logging.INFO
        self._warn_after = warn_after
        self._started = self._logged = time.monotonic()

    def __call__(self, done: float = 1.0, note: str | None = None) -> None:
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

    def __init__(self, drawn: Any, label: str, total: float, *, unit: str = "rows") -> None:
        super().__init__(label, total, unit=unit)
        self._update = partial(drawn.update, drawn.add_task(label, total=total, note=""))

    def _show(self) -> None:
        self._update(description=self.label, total=self.total, completed=self.done, note=self.note)


class _Told(Progress):
    """Work that is told to a function of the user; see :func:`display_of`."""

    def __init__(self, on_pass: OnPass, label: str, total: float, *, unit: str = "rows") -> None:
        super().__init__(label, total, unit=unit)
        self._tell, self._told = on_pass(label, int(total)), 0

    def _show(self) -> None:
        if callable(self._tell):
            self._tell(int(self.done) - self._told)
            self._told = int(self.done)


def display_of(on_pass: OnPass | None) -> Display:
    """Make a display of what users pass as ``on_pass``: nothing, a function of their own, or what `bars` yields."""
    if on_pass is None:
        return Progress
    is_ours = on_pass is Progress or getattr(on_pass, "func", None) is _Bar
    return on_pass if is_ours else partial(_Told, on_pass)


@contextmanager
def bars(console: Any = None, *, disable: bool = False, transient: bool = False) -> Iterator[Display]:
    """Draw a bar on ``console`` (standard error) for each call of what is yielded; needs the extra ``cli``."""
    rich = need("rich.progress", "cli", "a progress bar")
    with rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=console or rich.Console(stderr=True),
        transient=transient,
        disable=disable,
    ) as drawn:
        yield partial(_Bar, drawn)
