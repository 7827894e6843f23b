"""A full disk, a file that may not grow, a folder that may not be written to: one line, code 1, the file's name."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresift import Coreset
from coresift.coresets.files import UnwritableError, unwritable, write_whole

if not hasattr(os, "fork"):
    pytest.skip("needs a Unix", allow_module_level=True)

# Several command lines in one process: codes and what was said, as JSON.
SCRIPT = """
import contextlib, io, json, sys
import coresift.coresets.files as files
from coresift.cli import main
done = []
for line in json.loads(sys.argv[1]):
    files._ROW_BYTES = line.pop("row_bytes", 64)
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main(line["arguments"])
    done.append([code, error.getvalue()])
print(json.dumps(done))
"""


def run(lines: list[dict[str, Any]], *before: str, **options: Any) -> list[tuple[int, str]]:
    done = subprocess.run(
        [*before, sys.executable, "-c", SCRIPT, json.dumps(lines)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        **options,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def one_line(outcome: tuple[int, str], *parts: str) -> None:
    code, said = outcome
    assert code == 1, said
    lines = [line for line in said.splitlines() if line.startswith("coresift: error: ")]
    assert len(lines) == 1, said
    assert "Traceback" not in said
    for part in parts:
        assert part in lines[0]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((30_000, 4)).astype(np.float32))
    return path


def select(rows: Path, out: Path, **more: Any) -> dict[str, Any]:
    arguments = ["select", str(rows), "-b", "50%", "--queries", "0", "--bound", "closed-form", "-o", str(out)]
    return {"arguments": arguments, **more}


def train(out: Path) -> dict[str, Any]:
    options = "--dataset digits --model mlp --budget 5% --epochs 2 --checkpoint-seconds 0 --device cpu"
    return {"arguments": ["train", *options.split(" "), "--out", str(out)]}


@pytest.mark.slow
def test_a_full_disk(rows: Path, tmp_path: Path) -> None:
    """A file system of 64 kB, which needs no root to be mounted in a namespace of one's own."""
    disk, listing = tmp_path / "disk", tmp_path / "listing"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=64k none "{disk}"'
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")
    script = f'{mount} && "$0" "$@" && ls -A "{disk}" > "{listing}"'
    early, npz, parquet = run(
        [
            select(rows, disk / "a.npz"),
            # without the look at the disk before the work
            select(rows, disk / "b.npz", row_bytes=0),
            select(rows, disk / "c.parquet", row_bytes=0),
        ],
        *("unshare", "-rm", "sh", "-c", script),
    )
    one_line(early, f"{disk / 'a.npz'}: 0 MB are free there")
    one_line(npz, f"{disk / 'b.npz'}: cannot be written (No space left on device)")
    one_line(parquet, str(disk / "c.parquet"), "No space left on device")
    assert listing.read_text() == ""  # neither half a file nor a draft


@pytest.mark.slow
def test_files_that_may_not_grow(rows: Path, tmp_path: Path) -> None:
    """The system refuses to write beyond a limit, as on a full disk; with room, the run goes on."""
    out, place = tmp_path / "core.npz", tmp_path / "run"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    selected, trained = run([select(rows, out), train(place)], preexec_fn=limit)
    one_line(selected, f"{out}: cannot be written (File too large)")
    one_line(trained, str(place), "cannot be written (File too large)")
    assert not out.exists()
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".tmp", ".safetensors")]
    assert run([train(place)])[0][0] == 0
    assert (place / "result.json").exists()


@pytest.mark.slow
def test_a_folder_that_may_not_be_written_to(rows: Path, tmp_path: Path) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may write anywhere, unless it gives up the capability to
        if shutil.which("setpriv") is None:
            pytest.skip("root may write anywhere, and there is no setpriv")
        before = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    try:
        selected, trained = run([select(rows, closed / "core.npz"), train(closed / "run")], *before)
    finally:
        closed.chmod(0o755)
    one_line(selected, str(closed / "core.npz"), "Permission denied")
    one_line(trained, str(closed / "run"), "Permission denied")
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_python_gets_an_error_that_names_the_file(tmp_path: Path, suffix: str) -> None:
    core = Coreset(np.arange(5000), np.ones(5000), n_samples=5000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(UnwritableError) as error:
            core.save(tmp_path / f"core{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value).startswith(f"{tmp_path / f'core{suffix}'}: cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_the_error_stays(tmp_path: Path) -> None:
    error = unwritable(PermissionError(13, "Permission denied", "draft"), tmp_path / "a")
    assert isinstance(error, OSError)
    assert error.errno == 13
    assert str(error) == f"{tmp_path / 'a'}: cannot be written (Permission denied)"
    assert str(unwritable(OSError("words"), tmp_path)) == f"{tmp_path}: cannot be written (words)"


def _full(file: object) -> None:
    raise OSError(28, "No space left on device")


def _append(folder: Path) -> None:
    from coresift.training.checkpoint import RunFolder

    (folder / "a").unlink()
    (folder / "metrics.jsonl").symlink_to("/dev/full")
    RunFolder(folder).append({"epoch": 1})


@pytest.mark.parametrize("write", [lambda folder: write_whole(folder / "a", _full), _append])
def test_a_failed_write_leaves_no_draft(tmp_path: Path, write: Callable[[Path], None]) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(UnwritableError, match=r"cannot be written \(No space left on device\)"):
        write(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    if (tmp_path / "a").exists():
        assert (tmp_path / "a").read_text() == "old"
