"""Progress: logged at the right level and pace, or drawn."""

import io
import logging
import sys

import pytest
from rich.console import Console

from coresift import MissingExtraError, _progress
from coresift._progress import Progress, bars


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def run(clock, progress, seconds=1.0, steps=10):
    for _ in range(steps):
        clock[0] += seconds
        progress(10)


def test_progress_is_logged_every_two_seconds(clock, caplog):
    with caplog.at_level(logging.INFO, "coresift"):
        run(clock, Progress("cells", 100))
    assert [record.levelname for record in caplog.records] == ["INFO"] * 4  # at 2, 4, 6, 8 s, not at the end
    assert caplog.messages[0] == "cells: 20 % of 100 rows, about 8 s left"


def test_verbose_shows_what_python_hides(clock, caplog):
    with caplog.at_level(logging.INFO, "coresift"):
        run(clock, Progress("cells", 100, 1))
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_long_computation_warns_once(clock, caplog):
    with caplog.at_level(logging.INFO, "coresift"):
        run(clock, Progress("cells", 1000))
        assert [record.levelname for record in caplog.records] == ["WARNING"] + ["INFO"] * 4
        caplog.clear()
        run(clock, Progress("training", 1000, unit="epochs", warn_after=float("inf")))
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert "of 1000 epochs" in caplog.messages[0]


def test_work_is_counted_or_set(clock, caplog):
    progress = Progress("epochs", 4)
    progress()
    progress.move(2.5, note="loss 0.1")
    progress(0.5)
    assert (progress.done, progress.note) == (3.0, "loss 0.1")
    clock[0] = 3.0
    with caplog.at_level(logging.INFO, "coresift"):
        progress(0)
    assert caplog.messages == ["epochs: 75 % of 4 rows, about 1 s left (loss 0.1)"]


@pytest.mark.parametrize("disable", [False, True])
def test_bars_are_drawn_where_they_are_wanted(disable, caplog):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with caplog.at_level(logging.INFO, "coresift"), bars(console, disable=disable) as display:
        display("survey", 10)(10)
        training = display("training", 3, unit="epochs")
        training.total = 4
        training.move(4, note="loss 0.25")
    shown = console.file.getvalue()
    assert (all(word in shown for word in ("survey", "training", "loss 0.25"))) == (not disable)
    assert caplog.messages == []


def test_bars_name_the_extra_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(MissingExtraError, match=r"coresift\[cli\]"), bars():
        pass
