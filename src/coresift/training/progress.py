"""A bar on standard error: epochs, loss, accuracy, subset, time left."""

from __future__ import annotations

import time
from typing import Any, Self

from .._errors import MissingExtraError

_EVERY_SECONDS = 0.1


class NoBar:
    """Nothing is drawn."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def begin(self, epoch: int, n_samples: int) -> None:
        """An epoch of so many samples begins."""

    def advance(self, n_samples: int) -> None:
        """So many more samples were seen."""

    def end(self, metrics: dict[str, Any]) -> None:
        """An epoch ended."""


class Bar(NoBar):
    """A bar by Rich (extra ``cli``); it moves within long epochs too.

    Parameters
    ----------
    n_epochs : int, optional
        Known at the latest from the metrics of the first epoch.
    label : str
    console : rich.console.Console, optional
        By default standard error.
    disable : bool
    """

    def __init__(
        self, n_epochs: int | None = None, label: str = "training", console: Any = None, disable: bool = False
    ) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError as error:
            raise MissingExtraError('a progress bar needs rich: pip install "coresift[cli]"') from error
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[what]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
            disable=disable,
        )
        self._task = self._progress.add_task(label, total=n_epochs, what="")
        self._epoch, self._samples, self._seen, self._drawn = 0, 1, 0, 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, epoch: int, n_samples: int) -> None:
        """An epoch of so many samples begins."""
        self._epoch, self._samples, self._seen = epoch, max(n_samples, 1), 0

    def advance(self, n_samples: int) -> None:
        """So many more samples were seen; the bar is redrawn at most ten times a second."""
        self._seen += n_samples
        if time.monotonic() - self._drawn >= _EVERY_SECONDS:
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=self._epoch + self._seen / self._samples)

    def end(self, metrics: dict[str, Any]) -> None:
        """An epoch ended."""
        words = [f"epoch {metrics['epoch']}/{metrics['n_epochs']}", f"loss {metrics['loss']:.4f}"]
        if "accuracy" in metrics:
            words.append(f"accuracy {metrics['accuracy']:.1%}")
        if "val_accuracy" in metrics:
            words.append(f"validation {metrics['val_accuracy']:.1%}")
        words.append(f"{metrics['subset']:,} samples")
        self._progress.update(
            self._task, completed=metrics["epoch"], total=metrics["n_epochs"], what=", ".join(words)
        )
