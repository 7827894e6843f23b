"""Ctrl-C: exit code 130, no traceback, nothing left behind; with workers, and while the command starts."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc", allow_module_level=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [2, 3])  # as the workers start, and once they are at work
def test_an_interrupt_with_workers_is_quiet_and_leaves_nothing(
    tmp_path: Path, n_threads: int, request: pytest.FixtureRequest
) -> None:
    for i in range(8):
        np.save(tmp_path / f"{i}.npy", np.random.default_rng(i).standard_normal((300_000, 8)))
    scratch = Path(tempfile.mkdtemp(prefix="coresift-test-"))
    request.addfinalizer(partial(shutil.rmtree, scratch))
    command = [
        "select",
        str(tmp_path),
        "-b",
        "100",
        "-j",
        "2",
        "-o",
        str(scratch / "core.npz"),
        "--bound",
        "cells",
        "-q",
    ]
    running = subprocess.Popen(
        [sys.executable, "-m", "coresift", *command],
        env={**os.environ, "TMPDIR": str(scratch), "OPENBLAS_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while len(list(Path(f"/proc/{running.pid}/task").iterdir())) < n_threads:
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert said == ""
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_an_interrupt_while_the_command_starts_is_quiet(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-m", "coresift", "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{source}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
