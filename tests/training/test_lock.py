"""One run folder, one process: the second says who holds it."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from coresift import CoresiftError
from coresift.training import train

X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def run(out: Path, **more: Any) -> Any:
    return train(nn.Linear(3, 2), (X, Y), "random", 20, epochs=3, device="cpu", out=out, checkpoint_seconds=0, **more)


def test_a_second_run_in_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    refused: list[str] = []

    def again() -> None:
        try:
            run(tmp_path / "run")
        except CoresiftError as error:
            refused.append(str(error))

    def on_epoch(_: object) -> None:
        other = threading.Thread(target=again)
        other.start()
        other.join()

    first = run(tmp_path / "run", on_epoch=on_epoch)
    assert len(refused) == 3
    assert refused[0].startswith(f"{tmp_path / 'run'}: process {os.getpid()} on ")
    assert refused[0].endswith(" is training there; wait for it, or choose another folder.")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3  # not doubled
    assert run(tmp_path / "run").history == first.history  # finished: anybody may read it


def test_the_folder_is_free_after_an_error_and_after_a_kill(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "run", on_epoch=stop)
    assert len(run(tmp_path / "run").history) == 3
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import test_lock; from pathlib import Path;"
        "test_lock.run(Path(sys.argv[2]), on_epoch=lambda _: os.kill(os.getpid(), 9))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path / "killed")])
    assert done.returncode == -9
    assert (tmp_path / "killed" / ".lock-holder").exists()
    assert len(run(tmp_path / "killed").history) == 3
    assert not (tmp_path / "killed" / ".lock-holder").exists()
