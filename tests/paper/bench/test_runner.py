"""Cells are run once, resumed, shared by workers, and fail alone."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from coresift.coresets.coreset import Coreset
from coresift.data import load_dataset
from coresift.selection import names as _registry, register
from coresift.training.checkpoint import DamagedCheckpointError
from paper.bench import run as run_module, runner as runner_module
from paper.bench.planning import Speed, estimated_bytes, estimated_seconds
from paper.bench.protocol import Protocol, load_protocol
from paper.bench.run import run_one
from paper.bench.runner import Job, Progress, run_missing
from paper.bench.store import Store, Watch
from tests.tiny_data import write_mnist

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist", n=(200, 60))
    return folder


def tiny(methods: list[str], budgets: tuple[float, ...] = (0.1,), seeds: int = 1) -> Protocol:
    return load_protocol("mnist", "smoke").narrowed(methods, budgets, seeds)


def job(protocol: Protocol, results: Path, data_dir: Path) -> Job:
    return Job(protocol, protocol.runs(), Store(results, "mnist"), str(data_dir))


def comparable(record: dict) -> dict:
    return {name: record[name] for name in ("id", "cell", "test", "curve", "n_epochs", "subset_size")}


@pytest.mark.slow
def test_a_table_is_filled_once(tmp_path: Path, data_dir: Path) -> None:
    protocol = tiny(["adaptive-random", "rbf@1", "random-warm", "gradmatchpb", "full"])
    seen: list[Progress] = []
    progress = run_missing(job(protocol, tmp_path, data_dir), 1, lambda now: seen.append(dataclasses.replace(now)))
    assert (progress.done, progress.left, progress.failed) == (5, 0, [])
    assert all(each.total == 5 for each in seen)
    assert [each.done for each in seen] == sorted(each.done for each in seen)
    store = Store(tmp_path, "mnist")
    records = store.read().records
    assert {record["id"] for record in records} == {cell.id for cell in protocol.runs()}
    by_method = {record["cell"]["method"]: record for record in records}
    assert by_method["RBF"]["subset_size"] == 20
    assert by_method["FULL"]["subset_size"] == by_method["FULL"]["n_train"] == 200
    assert by_method["RANDOM-WARM"]["n_epochs"] == 3  # ceil(4 / 2 * 0.1) on all data, then 2
    for record in records:
        assert record["curve"][-1][0] == record["n_epochs"]
        assert 0 <= record["test"]["accuracy"] <= 1
        assert record["clock"] == "cpu"
        assert record["machine"]["threads"] == 1
    assert not any(store.run_folder(cell).exists() for cell in protocol.runs())

    before = store.file.read_bytes()
    assert run_missing(job(protocol, tmp_path, data_dir), 1, lambda _: None).done == 5
    assert store.file.read_bytes() == before


@pytest.mark.slow
def test_two_workers_give_what_one_gives_and_nothing_twice(tmp_path: Path, data_dir: Path) -> None:
    protocol = tiny(["adaptive-random", "rbf"], seeds=2)
    for folder, workers in (("one", 1), ("two", 2)):
        assert run_missing(job(protocol, tmp_path / folder, data_dir), workers, lambda _: None).done == 4
    one, two = (Store(tmp_path / folder, "mnist") for folder in ("one", "two"))
    assert len(two.file.read_text().splitlines()) == 4
    of_one, of_two = ({r["id"]: comparable(r) for r in store.read().records} for store in (one, two))
    assert of_one == of_two


def test_a_killed_cell_goes_on_to_the_same_record(tmp_path: Path, data_dir: Path) -> None:
    protocol = tiny(["rbf@1"])
    (cell,) = protocol.runs()
    data = load_dataset("mnist", data_dir)
    expected = run_one(cell, protocol, data, Store(tmp_path / "whole", "mnist"))

    class KilledError(Exception):
        pass

    def kill(epoch: int, n_epochs: int) -> None:
        if epoch == 3:
            raise KilledError

    store = Store(tmp_path / "killed", "mnist")
    original = run_module.train
    run_module.train = lambda *a, **k: original(*a, **k, checkpoint_seconds=0)
    try:
        with pytest.raises(KilledError):
            run_one(cell, protocol, data, store, on_epoch=kill)
        assert store.read().records == []
        assert list((store.run_folder(cell) / "run").rglob("*.safetensors"))
        epochs: list[int] = []
        found = run_one(cell, protocol, data, store, on_epoch=lambda epoch, _: epochs.append(epoch))
    finally:
        run_module.train = original
    assert epochs[0] > 1  # it went on, it did not begin anew
    assert comparable(found) == comparable(expected)
    assert [comparable(each) for each in store.read().records] == [comparable(expected)]


def test_what_another_command_finishes_is_done_at_once(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = tiny(["adaptive-random", "random"])
    mine, theirs = protocol.runs()
    record = run_one(theirs, protocol, load_dataset("mnist", data_dir), Store(tmp_path / "other", "mnist"))
    monkeypatch.setattr(runner_module, "Watch", lambda store: Watch(store, 0.0))
    seen: list[tuple[int, int, int]] = []

    def on_progress(progress: Progress) -> None:
        seen.append((progress.done, len(progress.running), progress.left))
        if len(seen) == 3:
            Store(tmp_path, "mnist").append(record)

    progress = run_missing(job(protocol, tmp_path, data_dir), 1, on_progress)
    assert seen[:3] == [(0, 0, 2), (0, 1, 1), (0, 1, 1)]
    assert seen[3:] == [(1, 1, 0)] * (len(seen) - 5) + [(2, 0, 0)] * 2
    assert progress.finished == {mine.id, theirs.id}
    assert len(Store(tmp_path, "mnist").file.read_text().splitlines()) == 2


def test_locks_that_a_kill_left_are_cleared(tmp_path: Path, data_dir: Path) -> None:
    protocol = tiny(["adaptive-random"])
    work = job(protocol, tmp_path, data_dir)
    run_missing(work, 1, lambda _: None)
    (tmp_path / "mnist" / "cells" / f"{protocol.runs()[0].id}.lock").touch()
    assert run_missing(work, 1, lambda _: None).left == 0
    assert list((tmp_path / "mnist" / "cells").iterdir()) == []


class Broken:
    """A strategy that fails."""

    def select(self, context, budget, rng) -> Coreset:
        raise ValueError("no subset today")


def test_a_cell_that_fails_is_named_and_the_others_are_run(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    register("broken", Broken())
    progress = run_missing(job(tiny(["broken", "adaptive-random"]), tmp_path, data_dir), 1, lambda _: None)
    assert progress.done == 1
    ((cell, reason),) = progress.failed
    assert (cell.method, reason) == ("BROKEN", "ValueError: no subset today")


def test_a_cell_with_a_damaged_checkpoint_is_named_and_the_others_are_run(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk stops everything; a file that is damaged concerns its cell alone."""
    original = run_module.run_one
    trouble: list[OSError] = [DamagedCheckpointError("epoch-1: damaged")]

    def run(cell, *rest, **options):
        if cell.method == "RANDOM":
            raise trouble[0]
        return original(cell, *rest, **options)

    monkeypatch.setattr(run_module, "run_one", run)
    work = job(tiny(["random", "adaptive-random"]), tmp_path, data_dir)
    progress = run_missing(work, 1, lambda _: None)
    assert (progress.done, [cell.method for cell, _ in progress.failed]) == (1, ["RANDOM"])
    trouble[0] = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        run_missing(work, 1, lambda _: None)


def test_a_cell_that_failed_is_not_tried_by_the_next_worker(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    register("broken", Broken())
    work = job(tiny(["broken", "adaptive-random"]), tmp_path, data_dir)
    has_failed, told = bytearray(2), []
    for _ in range(2):
        runner_module._work(work, lambda what, cell, _: told.append((what, cell.method)), has_failed)
    assert [what for what, _ in told if what != "epoch"] == ["started", "failed", "started", "finished"]
    assert list(has_failed) == [1, 0]


class Threads:
    """A strategy that looks at the threads of BLAS."""

    seen: ClassVar[list[int]] = []

    def select(self, context, budget, rng) -> Coreset:
        self.seen.extend(pool["num_threads"] for pool in threadpool_info())
        return Coreset(np.arange(20), np.full(20, 10.0), 200)


def test_one_worker_has_as_many_threads_as_it_says(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds of the processor are the sum over threads: those of BLAS have to be told, too."""
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    register("threads", Threads())
    with threadpool_limits(2):
        run_missing(job(tiny(["threads"]), tmp_path, data_dir), 1, lambda _: None)
    assert set(Threads.seen) == {1}


def test_with_readers_the_clock_is_that_of_the_wall(tmp_path: Path, data_dir: Path) -> None:
    """They are processes of their own, whose seconds the processor's clock of this one does not know."""
    protocol = tiny(["adaptive-random"])
    (cell,) = protocol.runs()
    data = load_dataset("mnist", data_dir)
    assert run_one(cell, protocol, data, Store(tmp_path / "a", "mnist"))["clock"] == "cpu"
    assert run_one(cell, protocol, data, Store(tmp_path / "b", "mnist"), readers=1)["clock"] == "wall"


ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
from paper.__main__ import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_command_leaves_no_worker_and_goes_on(tmp_path: Path, data_dir: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "run", "mnist", "--scale", "smoke", "-q"]
    command += ["--methods", "adaptive-random,rbf,gradmatch", "--budgets", "50%", "--seeds", "2", "-j", "2"]
    command += ["--data-dir", str(data_dir), "--results", str(tmp_path / "results")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # the laboratory is not installed
    process = subprocess.Popen(command, start_new_session=True, env=environment)
    store = Store(tmp_path / "results", "mnist")
    deadline = time.monotonic() + 120
    while not store.read().records and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(process.pid)  # workers end with the command
    assert subprocess.run(command, check=False, env=environment).returncode == 0
    records = store.read()
    assert len(records.records) == len(store.file.read_text().splitlines()) == 6
    assert records.problems == []


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    found = subprocess.run(["ps", "-o", "stat=", "-g", str(group)], capture_output=True, text=True, check=False)
    return any(not line.startswith("Z") for line in found.stdout.split())


def test_an_estimate_counts_samples_and_believes_records(data_dir: Path) -> None:
    protocol = tiny(["adaptive-random", "random-warm", "full", "gradmatch"], (0.1,), 2)
    data = load_dataset("mnist", data_dir)
    cells = [cell for cell in protocol.runs() if cell.seed == 0]
    speed = Speed(training=100.0, forward=1e9)
    found = {cell.method: e for cell, e in zip(cells, estimated_seconds(protocol, cells, data, speed), strict=True)}
    assert found["ADAPTIVE-RANDOM"] == pytest.approx(4 * 20 / 100, rel=1e-3)
    assert found["RANDOM-WARM"] == pytest.approx((200 + 2 * 20) / 100, rel=1e-3)
    assert found["FULL"] == pytest.approx(4 * 200 / 100, rel=1e-3)
    slow = estimated_seconds(protocol, cells, data, Speed(1e9, 100.0))
    per_method = {cell.method: e for cell, e in zip(cells, slow, strict=True)}
    assert per_method["GRADMATCH"] > 2 * 200 / 100 > per_method["ADAPTIVE-RANDOM"]
    sibling = next(cell for cell in protocol.runs() if cell.seed == 1 and cell.method == "FULL")
    record = {"cell": vars(sibling), "seconds": {"selection": 1.0, "training": 5.0, "evaluation": 1.0}}
    known = estimated_seconds(protocol, cells, data, speed, [record])
    assert known[[cell.method for cell in cells].index("FULL")] == 7.0
    assert estimated_bytes(data) > 4e8


def test_an_estimate_counts_the_pool_of_adaptive_coresets(data_dir: Path) -> None:
    """A pool of 3 R budgets is passed through the model, all data at most."""
    protocol = tiny(["adaptive-coreset@1", "adaptive-coreset-auto-warm@1", "adaptive-coreset@4"], (0.1,), 1)
    data = load_dataset("mnist", data_dir)
    found = estimated_seconds(protocol, protocol.runs(), data, Speed(training=1e9, forward=1.0))
    n_test = len(data.test)
    passed = {(c.method, c.select_every): e - n_test for c, e in zip(protocol.runs(), found, strict=True)}
    assert passed["ADAPTIVE-CORESET", 1] == pytest.approx(4 * 60, rel=1e-3)
    assert passed["ADAPTIVE-CORESET-AUTO-WARM", 1] == pytest.approx(2 * 60, rel=1e-3)
    assert passed["ADAPTIVE-CORESET", 4] == pytest.approx(200, rel=1e-3)
