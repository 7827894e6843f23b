"""Progress of long computations, through ``logging``.

A library must not write to the terminal unasked: the messages go to the logger ``coresift`` at level INFO, which
``verbose=1`` of an estimator, ``-v`` on the command line, or one line of ``logging`` configuration make visible.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("coresift")

_EVERY_SECONDS = 2.0
_LONG_SECONDS = 60.0


class Progress:
    """Counts finished rows; speaks every two seconds, and warns early when more than a minute is ahead."""

    def __init__(self, label: str, total: int, verbose: int = 0) -> None:
        self.label = label
        self.total = total
        self.level = logging.WARNING if verbose else logging.INFO
        self.done = 0
        self.started = self.spoke = time.monotonic()
        self.warned = False

    def __call__(self, rows: int) -> None:
        self.done += rows
        now = time.monotonic()
        if now - self.spoke < _EVERY_SECONDS or self.done >= self.total:
            return
        self.spoke = now
        left = (now - self.started) * (self.total - self.done) / self.done
        level = self.level
        if left > _LONG_SECONDS and not self.warned:
            self.warned, level = True, logging.WARNING
        logger.log(
            level,
            "%s: %.0f %% of %d rows, about %.0f s left",
            self.label,
            100 * self.done / self.total,
            self.total,
            left,
        )
