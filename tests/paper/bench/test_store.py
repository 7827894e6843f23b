"""The results store: nothing lost, nothing twice, damage named."""

import errno
import json
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from paper.bench import store as module
from paper.bench.protocol import Run
from paper.bench.store import Store, StoreError, Watch, parse, serialised


def cell(seed: int = 0, **changes) -> Run:
    return Run(
        **{
            "table": "mnist",
            "protocol": 1,
            "scale": "paper",
            "method": "RBF",
            "select_every": 20,
            "budget": 0.01,
            "seed": seed,
            **changes,
        }
    )


def record(seed: int = 0, accuracy: float = 0.9, **changes) -> dict:
    of = cell(seed, **changes)
    return {
        "id": of.id,
        "cell": vars(of),
        "config": {"model": "lenet"},
        "test": {"accuracy": accuracy},
        "seconds": {"selection": 1.0, "training": 2.0, "evaluation": 0.5},
        "clock": "cpu",
        "n_epochs": 200,
        "subset_size": 600,
        "n_train": 60000,
    }


def test_records_come_back_as_they_were_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    assert store.read().records == []
    for seed in range(3):
        store.append(record(seed))
    found = store.read()
    assert found.records == [record(seed) for seed in range(3)]
    assert found.problems == []
    assert found.ids == {cell(seed).id for seed in range(3)}


def test_of_two_records_of_a_cell_the_first_counts(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record(accuracy=0.9))
    store.append(record(accuracy=0.8))
    assert [each["test"]["accuracy"] for each in store.read().records] == [0.9]


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_flipped_byte_is_noticed(where: int, flip: int) -> None:
    line = bytearray(serialised(record())[:-1])
    line[where % len(line)] ^= flip
    try:
        found = parse(bytes(line))
    except ValueError:
        return
    assert found == record()  # white space only


def test_damage_in_the_middle_is_named_and_the_rest_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    for seed in range(5):
        store.append(record(seed))
    lines = store.file.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"0.9", b"0.99")
    lines[3] = b"\xff\x00{{{"
    store.file.write_bytes(b"\n".join(lines))
    found = store.read()
    assert [each["cell"]["seed"] for each in found.records] == [0, 2, 4]
    assert [problem.split(": ")[0].rpartition(" ")[2] for problem in found.problems] == ["2", "4"]
    assert "records.jsonl" in found.problems[0]
    assert "checksum" in found.problems[0]
    store.append(record(1))
    assert len(store.read().records) == 4


def test_half_a_line_at_the_end_stays_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record(0))
    with store.file.open("ab") as file:
        file.write(serialised(record(1))[:40])
    store.append(record(2))
    found = store.read()
    assert [each["cell"]["seed"] for each in found.records] == [0, 2]
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": "0" * 12}, "id"),
        ({"seconds": {}}, "selection"),
        ({"test": None}, "test"),
        ({"n_train": True}, "n_train"),
        ({"cell": {}}, "cell.table"),
    ],
)
def test_a_record_with_a_right_checksum_and_wrong_fields_is_no_record(change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(serialised({**record(), **change}))


def test_records_of_another_table_are_named(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record(0))
    with store.file.open("ab") as file:
        file.write(serialised(record(0, table="cifar10")))
    assert len(store.read().records) == 1
    assert "cifar10" in store.read().problems[0]


def test_numbers_that_are_not_finite_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Store(tmp_path, "mnist").append(record(accuracy=float("nan")))
    assert Store(tmp_path, "mnist").read().records == []


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record(0))
    before = store.file.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StoreError, match=r"records\.jsonl.*No space left"):
        store.append(record(1))
    assert store.file.read_bytes() == before


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limits of file sizes")
def test_a_record_that_is_cut_off_is_taken_back(tmp_path: Path) -> None:
    """The system takes 100 bytes of the line, and no more: nothing stays, also not when the file is closed."""
    store = Store(tmp_path, "mnist")
    store.append(record(0))
    before = store.file.read_bytes()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_append_limited, args=(str(tmp_path), len(before) + 100))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert store.file.read_bytes() == before


def _append_limited(folder: str, limit: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with pytest.raises(StoreError, match="File too large"):
        Store(Path(folder), "mnist").append(record(1))


def _append_many(folder: str, first: int) -> None:
    for seed in range(first, first + 40):
        Store(Path(folder), "mnist").append(record(seed))


@pytest.mark.slow
def test_processes_append_at_the_same_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append_many, args=(str(tmp_path), 40 * i)) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = Store(tmp_path, "mnist").read()
    assert found.problems == []
    assert sorted(each["cell"]["seed"] for each in found.records) == list(range(80))


def _hold(folder: str, ready) -> None:
    with Store(Path(folder), "mnist").claimed(cell()) as is_mine:
        ready.put(is_mine)
        signal.pause()


@pytest.mark.slow
def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    process = context.Process(target=_hold, args=(str(tmp_path), ready), daemon=True)
    process.start()
    assert ready.get(timeout=60)
    store = Store(tmp_path, "mnist")
    with store.claimed(cell()) as is_mine:
        assert not is_mine
    with store.claimed(cell(1)) as is_mine:
        assert is_mine
    process.kill()
    process.join()
    with store.claimed(cell()) as is_mine:
        assert is_mine


def test_what_is_finished_is_not_claimed(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record())
    with store.claimed(cell()) as is_mine:
        assert not is_mine


def test_a_finished_cell_has_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "mnist")
    with store.claimed(cell()) as is_mine:
        assert is_mine
        assert list(tmp_path.rglob("*.lock"))
    store.append(record())
    original, reads = Store.read, []

    def read(self: Store):
        """At the first look the record is not there yet: it is written between the look and the lock."""
        reads.append(1)
        return original(self) if len(reads) > 1 else module.Found([], [])

    monkeypatch.setattr(Store, "read", read)
    with store.claimed(cell()) as is_mine:
        assert not is_mine
    assert len(reads) == 2
    assert [path.name for path in tmp_path.rglob("*.lock")] == [".records.jsonl.lock"]
    with store.claimed(cell()) as is_mine:
        assert not is_mine
    assert [path.name for path in tmp_path.rglob("*.lock")] == [".records.jsonl.lock"]


def test_a_watch_reads_what_has_grown_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "mnist")
    watch, seldom = Watch(store, 0.0), Watch(store, 1000.0)
    assert watch.ids() == seldom.ids() == frozenset()
    store.append(record(0))
    assert watch.ids() == {cell(0).id}
    assert seldom.ids() == frozenset()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "read", lambda _: pytest.fail("nothing has changed"))
        assert watch.ids() == {cell(0).id}
    store.append(record(1))
    assert watch.ids() == {cell(0).id, cell(1).id}


def test_the_layout_of_a_line_is_plain_json(tmp_path: Path) -> None:
    store = Store(tmp_path, "mnist")
    store.append(record(accuracy=float(np.float64(0.5))))
    assert json.loads(store.file.read_text())["test"] == {"accuracy": 0.5}
