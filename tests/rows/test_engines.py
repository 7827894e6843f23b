"""Who does the work does not matter: one thread, several, or a Ray cluster of which a worker is killed."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coresift import CoresiftError, InvalidInputError, MissingExtraError, select
from coresift.rows import rows as blocks
from coresift.rows.engines import Engine, RayEngine, ThreadEngine, open_engine, run_pass
from coresift.rows.opening import open_rows
from coresift.rows.rows import Block


@pytest.fixture(scope="module", autouse=True)
def small_tasks() -> Iterator[None]:
    """Every row group can be a task; tasks are made by the driver, so workers need not know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TASK_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("rows")
    for part in range(3):
        X = rng.standard_normal((8_000, 256)).astype(np.float32)  # wide, so that there are several groups of blocks
        X[:100] *= 4
        table = pa.table({f"x{i}": X[:, i] for i in range(256)})
        parquet.write_table(table, path / f"{part}.parquet", row_group_size=3000)
    return path


OPTIONS: dict[str, Any] = {"bound": "closed-form", "n_queries": 2, "random_state": 1}


@pytest.fixture(scope="module")
def alone(folder: Path) -> Any:
    return select(folder, 500, **OPTIONS)


def same(one: Any, other: Any) -> None:
    assert one.coreset == other.coreset  # to the last bit: weights, ball and totals included
    for name in ("total_sensitivity", "spread", "uniform_factor", "worst_error_found", "mean_error_found"):
        assert getattr(one.report, name) == getattr(other.report, name)


def test_there_are_several_tasks(folder: Path) -> None:
    assert len(open_rows(folder).tasks()) == 3  # those in which a group of blocks begins


def test_threads_find_the_same(folder: Path, alone: Any) -> None:
    same(select(folder, 500, workers=2, **OPTIONS), alone)


class Threads:
    """A summary that notes who made it."""

    def __init__(self) -> None:
        self.rows, self.names = 0, set[str]()

    def update(self, block: Block) -> None:
        self.rows += len(block.X)
        self.names.add(threading.current_thread().name)

    def merge(self, other: "Threads") -> None:
        self.rows += other.rows
        self.names |= other.names


def test_each_thread_has_rows_of_its_own_and_all_rows_are_seen_once(folder: Path) -> None:
    source, done = open_rows(folder), list[int]()
    with ThreadEngine(source, 2) as engine:
        found = run_pass(engine, source, Threads(), done.append)
    assert found.rows == sum(done) == source.n
    assert found.names <= {"coresift_0", "coresift_1"}
    with open_engine("local", source, 1) as engine:
        alone = run_pass(engine, source, Threads())
    assert (alone.rows, alone.names) == (source.n, {threading.current_thread().name})


def test_a_worker_reads_in_its_own_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's pool has as many threads as there are cores: two workers would use twice as many."""
    asked, plain = list[Any](), parquet.ParquetFile.iter_batches

    def iter_batches(self: Any, *args: Any, **how: Any) -> Any:
        asked.append(how["use_threads"])
        return plain(self, *args, **how)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", iter_batches)
    source = open_rows(folder)
    with ThreadEngine(source, 2) as engine:
        run_pass(engine, source, Threads())
    assert asked
    assert not any(asked)


def test_tasks_are_small_enough_for_all_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TASK_BYTES", 1 << 40)
    monkeypatch.setattr(blocks, "READ_BYTES", 1)
    source = open_rows(folder)
    assert len(source.tasks()) <= len(source.tasks(2)) == 3
    owned = [source.owned(task) for task in source.tasks(4)]
    assert [first for first, _ in owned] == [0, *(last for _, last in owned[:-1])]
    assert owned[-1][1] == source.n


class Killed:
    """A summary that kills its worker the first time it is used (``marker`` is absent)."""

    def __init__(self, marker: Path) -> None:
        self.marker, self.rows = marker, 0

    def update(self, block: Block) -> None:
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.rows += len(block.X)

    def merge(self, other: "Killed") -> None:
        self.rows += other.rows


def test_errors_of_workers_are_those_of_one(tmp_path: Path) -> None:
    for part in range(2):
        X = np.zeros((5000, 2))
        X[7, 1] = np.nan if part else 0.0
        parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / f"{part}.parquet")
    with pytest.raises(InvalidInputError, match=r"NaN in column 1 \('b'\), row 5007 \(row 7 of .*1\.parquet\)"):
        select(tmp_path, 10, workers=2, preparation=None)


def test_arrays_are_read_in_one_thread() -> None:
    source = open_rows(np.zeros((10, 2)))
    assert type(open_engine("local", source, 8)) is Engine
    with pytest.raises(InvalidInputError, match="files that workers can read"):
        open_engine("ray", source, 2)


@pytest.fixture(scope="module")
def cluster() -> Any:
    ray = pytest.importorskip("ray", reason="Ray, the extra 'ray', is not installed")
    if os.environ.get("RAY_ADDRESS"):
        pytest.skip("RAY_ADDRESS names a cluster; the test starts its own")
    root = str(Path(__file__).parents[2])
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_two_workers_of_ray_find_the_same(folder: Path, alone: Any, cluster: Any) -> None:
    assert cluster.cluster_resources()["CPU"] == 2
    same(select(folder, 500, engine="ray", workers=2, **OPTIONS), alone)
    assert cluster.is_initialized()  # a cluster that we did not start is left running


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_ray_that_is_killed_changes_nothing(folder: Path, tmp_path: Path, cluster: Any) -> None:
    source = open_rows(folder)
    marker = tmp_path / "killed"
    with RayEngine(source, 2) as engine:
        found = run_pass(engine, source, Killed(marker), lambda _: None)
    assert marker.exists()
    assert found.rows == source.n


@pytest.mark.filterwarnings("ignore")
def test_errors_of_ray_workers_are_ours(tmp_path: Path, cluster: Any) -> None:
    np.save(tmp_path / "a.npy", np.full((5000, 2), np.inf))
    with pytest.raises(InvalidInputError, match=r"a\.npy contains infinity"):
        select(tmp_path / "a.npy", 10, engine="ray")


@pytest.mark.parametrize(("address", "expected"), [("", "local"), ("10.0.0.1:6379", None)])
def test_ray_starts_its_own_cluster_unless_told_of_one(
    address: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="Ray, the extra 'ray', is not installed")
    given: list[dict[str, Any]] = []
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: given.append(options))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr(ray, "put", lambda value: value)
    np.save(tmp_path / "a.npy", np.zeros((50, 2)))
    assert RayEngine(open_rows(tmp_path / "a.npy"), 2).n_workers == 2
    # cores may be given to a new cluster only
    assert [(options.get("address"), options.get("num_cpus")) for options in given] == [
        (expected, 2 if expected else None)
    ]


@pytest.mark.parametrize(
    ("address", "words"), [("", "no cluster could be started"), ("10.0.0.1:6379", "at 10.0.0.1:6379 cannot")]
)
def test_a_cluster_that_does_not_start_is_said_in_a_sentence(
    address: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine Ray gives up after a while, with a bare Exception."""
    ray = pytest.importorskip("ray", reason="Ray, the extra 'ray', is not installed")

    def fail(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    np.save(tmp_path / "a.npy", np.zeros((50, 2)))
    with pytest.raises(CoresiftError, match=f"{words}.*timed out during startup. Try again, or use engine"):
        RayEngine(open_rows(tmp_path / "a.npy"), 2)


@pytest.mark.slow
def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((50, 2)))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"coresift\[ray\]"):
        open_engine("ray", open_rows(tmp_path / "a.npy"), 2)
