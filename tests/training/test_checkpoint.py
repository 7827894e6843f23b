"""Runs that are killed end as if they had not been: the same weights, the same metrics, bit by bit."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coresift import InvalidInputError
from coresift.selection import RBF, AdaptiveRandom
from coresift.training import DamagedCheckpointError, train
from coresift.training.checkpoint import read_tensors
from coresift.training.metrics import Seconds

if not hasattr(os, "fork"):
    pytest.skip("needs fork and SIGKILL", allow_module_level=True)
torch.set_num_threads(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)

# Momentum, dropout, batch norm, a strategy that looks at the model, validation: everything that has a state. The
# runs are forks of a process that has imported torch and done nothing else: that is quick, and a kill a kill.
SCRIPT = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np, torch
from torch import nn
from coresift.training import train
torch.set_num_threads(1)

def run(out):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8)).astype("float32")
    y = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype("int64")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
    train(model, (X, y), "gradmatch-warm", 0.2, test=(X, y), epochs=120, select_every=7, eval_every=5, batch_size=10,
          device="cpu", out=out, checkpoint_seconds=0.0)

def start(out):
    child = os.fork()
    if child == 0:
        try:
            run(out)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def newest():
    return max((folder / "killed").glob("checkpoints/epoch-*"), default=None)

folder = Path(sys.argv[1])
assert ended(start(folder / "whole")) == 0
chance, resumed = random.Random(0), 0
for attempt in range(6):
    before = newest()
    child = start(folder / "killed")
    for _ in range(attempt and chance.randrange(1, 6)):  # at first at once; then after a few more checkpoints
        seen = newest()
        while newest() == seen and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.0005)
    time.sleep(chance.uniform(0.0, 0.02))  # anywhere within an epoch, or within the writing of a file
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL
    resumed += before is not None
assert ended(start(folder / "killed")) == 0
print(resumed)
"""


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if not key.endswith("seconds")}


def outcome(run: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]], dict[str, float]]:
    tensors, _ = read_tensors(run / "model.safetensors")
    lines = [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return tensors, lines, json.loads((run / "result.json").read_text())["test"]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_the_same(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2  # runs that went on from a checkpoint and were killed again
    killed = tmp_path / "killed"
    (ours, lines, test), (theirs, expected, other) = outcome(killed), outcome(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    assert lines == expected
    assert len(lines) == 72  # ceil(0.5 * 120 * 0.2) + 60
    assert test == other
    assert not list(killed.rglob("*.tmp"))


class Stop(Exception):
    pass


def interrupted(out: Path, after: int, **changes: Any) -> None:
    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == after:
            raise Stop

    with pytest.raises(Stop):
        run(out, on_epoch=stop, **changes)


def run(out: Path, **changes: Any) -> torch.Tensor:
    settings: dict[str, Any] = {
        "strategy": "adaptive-random",
        "budget": 0.3,
        "epochs": 8,
        "select_every": 3,
        "checkpoint_seconds": 0.0,
        **changes,
    }
    model = network()
    train(model, (X, Y), out=out, **settings)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.slow
def test_two_checkpoints_are_kept_and_a_damaged_one_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run(tmp_path / "whole")
    out = tmp_path / "run"
    interrupted(out, 5)
    newest, before = sorted((out / "checkpoints").iterdir(), reverse=True)
    assert (newest.name, before.name) == ("epoch-000005.safetensors", "epoch-000004.safetensors")
    content = bytearray(newest.read_bytes())
    content[-20] ^= 1  # one bit of a tensor
    newest.write_bytes(content)
    caplog.set_level("WARNING", "coresift")
    resumed = []
    model = network()
    train(
        model,
        (X, Y),
        "adaptive-random",
        0.3,
        epochs=8,
        select_every=3,
        checkpoint_seconds=0.0,
        out=out,
        on_epoch=lambda metrics: resumed.append(metrics["epoch"]),
    )
    assert "epoch-000005.safetensors: the checksum does not match" in caplog.text
    assert resumed == [5, 6, 7, 8]
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), expected)


def test_when_all_are_damaged_the_run_says_so(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 3)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DamagedCheckpointError, match=r"epoch-000003.safetensors: .*damaged.*remove the file"):
        run(tmp_path / "run")


def test_without_a_checkpoint_it_starts_over(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole")
    interrupted(tmp_path / "run", 4, checkpoint_seconds=1e9)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["epochs"] == 8  # it was there first
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 5, "lo')  # killed while writing
    assert torch.equal(run(tmp_path / "run"), expected)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 8


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    expected = run(tmp_path / "run")
    calls: list[Any] = []
    assert torch.equal(run(tmp_path / "run", on_epoch=calls.append), expected)
    assert calls == []


def test_another_run_does_not_go_into_the_folder(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 3)
    with pytest.raises(InvalidInputError, match=r"holds another run: select_every was 3 and is now 2"):
        run(tmp_path / "run", select_every=2)
    with pytest.raises(InvalidInputError, match="holds another run: data"):
        train(network(), (X + 1, Y), "adaptive-random", 0.3, epochs=8, select_every=3, out=tmp_path / "run")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mail.txt").write_text("")
    with pytest.raises(InvalidInputError, match=r"other files \(mail.txt\)"):
        run(tmp_path / "letters")


def test_what_a_strategy_keeps_is_made_again_off_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit is counted once in a run, however often it was killed."""
    fitted_at: list[str] = []
    where = ["elsewhere"]
    original, counted = RBF._select, Seconds.counted

    def select(self, context, size, rng):
        def fit():
            fitted_at.append(where[0])
            return 0

        context.kept("a fit", fit)
        return original(self, context, size, rng)

    @contextmanager
    def watched(self, part, place):
        where[0] = part
        with counted(self, part, place):
            yield
        where[0] = "elsewhere"

    monkeypatch.setattr(RBF, "_select", select)
    monkeypatch.setattr(Seconds, "counted", watched)
    settings = {"epochs": 6, "select_every": 2, "checkpoint_seconds": 0.0, "out": tmp_path / "run"}

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(nn.Linear(5, 2), (X, Y), RBF(), 30, on_epoch=stop, **settings)
    assert fitted_at == ["selection"]
    where[0] = "elsewhere"
    train(nn.Linear(5, 2), (X, Y), RBF(), 30, **settings)
    assert fitted_at == ["selection", "elsewhere"]


def test_a_strategy_with_a_state_gets_it_back(tmp_path: Path) -> None:
    class Counting(AdaptiveRandom):
        def __init__(self) -> None:
            object.__setattr__(self, "seen", 0)
            object.__setattr__(self, "norms", torch.zeros(2))

        def _select(self, context, size, rng):
            object.__setattr__(self, "seen", self.seen + 1)
            object.__setattr__(self, "norms", self.norms + self.seen)
            return super()._select(context, size, rng)

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen, "norms": self.norms}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            for name, value in state.items():
                object.__setattr__(self, name, value)

    interrupted(tmp_path / "run", 5, strategy=Counting())
    after = Counting()
    run(tmp_path / "run", strategy=after)
    assert after.seen == 3  # of epochs 0, 3 and 6
    assert after.norms.tolist() == [6.0, 6.0]


def test_a_full_disk_is_an_error_and_leaves_the_run_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(tmp_path / "whole")
    interrupted(tmp_path / "run", 3)
    real = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", real)
    assert torch.equal(run(tmp_path / "run"), expected)
    assert not list((tmp_path / "run").rglob("*.tmp"))
