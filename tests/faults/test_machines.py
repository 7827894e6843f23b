"""Random operations, with kills and reloads, against a model in memory: the store, a run folder, a stream."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coresift import StreamingCoreset
from coresift.training.checkpoint import DamagedCheckpointError, RunFolder
from paper.bench.store import RECORDS, Store, serialised
from tests.paper.bench.records import record, small_protocol

PROTOCOL = small_protocol()
RUNS = PROTOCOL.runs()[:7]
RECORDED = [record(PROTOCOL, run) for run in RUNS]
QUICK = settings(max_examples=10, stateful_step_count=12)


class StoreMachine(RuleBasedStateMachine):
    """Records are appended, some twice, and writes are cut off: what was written whole is there, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.store = Store(Path(self.place.name), "mnist")
        self.model: dict[str, Any] = {}
        self.n_damaged = 0

    @rule(seed=st.integers(0, 6))
    def append(self, seed: int) -> None:
        made = RECORDED[seed]
        self.store.append(made)
        self.model.setdefault(made["id"], made)

    @rule(seed=st.integers(0, 6), cut=st.floats(0.01, 0.99))
    def kill(self, seed: int, cut: float) -> None:
        """A process dies in the middle of a write, after it took the lock."""
        line = serialised(RECORDED[seed])
        self.store.folder.mkdir(parents=True, exist_ok=True)
        with (self.store.folder / RECORDS).open("ab") as file:
            if file.tell() and not self.store.file.read_bytes().endswith(b"\n"):
                file.write(b"\n")
            file.write(line[: max(1, int(cut * (len(line) - 2)))])
        self.n_damaged += 1

    @rule(seed=st.integers(0, 6))
    def claim(self, seed: int) -> None:
        run = RUNS[seed]
        with self.store.claimed(run) as is_ours:
            assert is_ours == (run.id not in self.model)
            with Store(self.store.results, "mnist").claimed(run) as is_theirs:
                assert not is_theirs

    @rule()
    def reload(self) -> None:
        self.store = Store(Path(self.place.name), "mnist")

    @invariant()
    def all_whole_records_are_there(self) -> None:
        found = self.store.read()
        assert [each["id"] for each in found.records] == list(self.model)
        assert found.records == list(self.model.values())
        assert len(found.problems) == self.n_damaged

    def teardown(self) -> None:
        self.place.cleanup()


class FolderMachine(RuleBasedStateMachine):
    """Checkpoints are saved, cut off and half written: the newest whole one of the last two is read."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.path = Path(self.place.name) / "run"
        self.config = {"lr": 0.1}
        self.folder = RunFolder(self.path)
        self.folder.begin(self.config)
        self.epoch = 0
        self.model: list[tuple[int, float]] = []  # of the files that are there: epoch and value, the newest first
        self.damaged: set[int] = set()

    @rule(value=st.floats(-1, 1, width=32))
    def save(self, value: float) -> None:
        self.epoch += 1
        self.folder.save(self.epoch, {"model": {"w": torch.tensor([value])}, "history": [value]})
        self.model = [(self.epoch, value), *self.model][:2]

    @precondition(lambda self: self.model)
    @rule(cut=st.floats(0.0, 0.99), which=st.integers(0, 1))
    def damage(self, cut: float, which: int) -> None:
        path = self.folder.checkpoints()[min(which, len(self.model) - 1)]
        content = path.read_bytes()
        path.write_bytes(content[: int(cut * len(content))])
        self.damaged.add(int(path.stem.partition("-")[2]))

    @rule()
    def kill_and_begin_again(self) -> None:
        (self.path / ".coresift-0123.tmp").write_bytes(b"half")
        if (self.path / "checkpoints").exists():
            (self.path / "checkpoints" / ".coresift-4567.tmp").write_bytes(b"half")
        self.folder = RunFolder(self.path)
        self.folder.begin(self.config)
        assert not [*self.path.rglob("*.tmp")]

    @invariant()
    def the_newest_whole_checkpoint_is_read(self) -> None:
        assert len(self.folder.checkpoints()) == len(self.model)
        whole = [(epoch, value) for epoch, value in self.model if epoch not in self.damaged]
        if whole:
            found = self.folder.load()
            assert found is not None
            assert (found["epoch"], float(found["model"]["w"][0]), found["history"]) == (*whole[0], [whole[0][1]])
        elif self.model:
            with pytest.raises(DamagedCheckpointError, match="there is no other"):
                self.folder.load()
        else:
            assert self.folder.load() is None

    def teardown(self) -> None:
        self.place.cleanup()


class StreamMachine(RuleBasedStateMachine):
    """Batches of any size, saved and loaded at any time, give the coreset of all rows in one batch."""

    @initialize(seed=st.integers(0, 3))
    def begin(self, seed: int) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.rng = np.random.default_rng(seed)
        self.stream = StreamingCoreset(4, bandwidth=2.0, random_state=seed)
        self.seen, self.weights = np.zeros((0, 2)), np.zeros(0)
        self.saved: tuple[np.ndarray, np.ndarray] | None = None

    @rule(n=st.integers(1, 70))
    def add(self, n: int) -> None:
        rows, weights = self.rng.standard_normal((n, 2)), self.rng.integers(0, 3, n).astype(float)
        self.stream.partial_fit(rows, sample_weight=weights)
        self.seen, self.weights = np.concatenate([self.seen, rows]), np.concatenate([self.weights, weights])

    @rule()
    def refused(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            self.stream.partial_fit(np.array([[np.nan, 0.0]]))

    @rule()
    def save(self) -> None:
        self.stream.save(Path(self.place.name) / "stream.npz")
        self.saved = self.seen, self.weights

    @precondition(lambda self: self.saved is not None)
    @rule()
    def kill_and_load(self) -> None:
        """What came after the last file is lost, and nothing else."""
        self.stream = StreamingCoreset.load(Path(self.place.name) / "stream.npz")
        assert self.saved is not None
        self.seen, self.weights = self.saved

    @invariant()
    def it_is_as_if_nothing_had_happened(self) -> None:
        assert self.stream.n_seen_ == len(self.seen)
        if self.weights.any():
            once = StreamingCoreset(4, bandwidth=2.0, random_state=self.stream.random_state)
            once.partial_fit(self.seen, sample_weight=self.weights)
            assert self.stream.coreset() == once.coreset()
            np.testing.assert_array_equal(self.stream.points_, once.points_)

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.cleanup()


TestStore = pytest.mark.slow(StoreMachine.TestCase)
TestFolder = pytest.mark.slow(FolderMachine.TestCase)
TestStream = pytest.mark.slow(StreamMachine.TestCase)
TestStore.settings = TestFolder.settings = TestStream.settings = QUICK
