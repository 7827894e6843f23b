"""Kill commands at random moments, start them again, and compare with what an undisturbed run gives.

    python tools/kill_test.py select train bench --kills 200 [--seed 0] [--record paper/results/faults]

The moment of a kill (SIGKILL) is uniform over the time of an undisturbed run. After each one no file may stand half
written under its final name, and no process may be left over. A command that was killed is started again, and killed
again, until it ends by itself (after ten kills it is left in peace): its result must be that of the undisturbed run.

    select          coresift select of a Parquet file; the bytes of the coreset
    select-workers  the same with two threads
    fit             coresift fit of a Parquet file; the bytes of the model
    train           coresift train, with a checkpoint after each epoch; the bytes of the model, metrics but times
    bench           python -m paper run; the records but times, and that nothing is run twice
    ray             coresift select --engine ray, needs the extra ray; the bytes that one process writes

Commands run in forks of a process that has imported the package (ray: in processes of their own), so that hundreds of
kills take minutes. Ends with code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np

from coresift import Coreset, LinearModel, __version__
from coresift.cli import main as coresift

sys.path.insert(0, str(Path(__file__).parents[1]))  # for ``paper``, which is not installed
from paper.__main__ import main as laboratory

IMPORTED = (  # once, here: forks have them
    *("pyarrow.parquet", "scipy.ndimage", "sklearn.datasets", "sklearn.cluster", "filelock"),
    *("coresift.coresets", "coresift.training", "paper.bench.run"),
)
MOST_KILLS = 10  # of one run, until it may end
GRACE = 15.0  # seconds in which processes of a killed command must be gone, on a busy machine


@dataclass(frozen=True)
class Target:
    """A command: how it is called, what its result is, and what its files must look like at any moment."""

    prepare: Callable[[Path], None]
    """Writes the data into a folder."""
    arguments: Callable[[Path, Path], list[str]]
    """Of the folders of the data and of the output."""
    outcome: Callable[[Path], object]
    check: Callable[[Path], None]
    """Raises if a file is half written."""
    is_forked: bool = True
    is_paper: bool = False
    """Whether it is a command of ``python -m paper``."""
    reference: Callable[[Path, Path], list[str]] | None = None
    """The undisturbed command, where it is another one."""
    notes: Callable[[Path], list[str]] = lambda out: []


@dataclass
class Found:
    """What happened to one command."""

    kills: int = 0
    restarts: int = 0
    """Starts in a folder in which a run had been killed."""
    compared: int = 0
    """Results that were compared with the undisturbed one."""
    seconds: float = 0.0
    """Of the undisturbed run."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is not as it should be, and does no harm."""


def campaign(target: Target, kills: int, seed: int, folder: Path) -> Found:
    """So many kills of one command."""
    chance, found = random.Random(seed), Found()
    data = folder / "data"
    data.mkdir(parents=True)
    target.prepare(data)
    whole = folder / "whole"
    whole.mkdir()
    started = time.monotonic()
    code = _ended(_start(target, (target.reference or target.arguments)(data, whole)))
    found.seconds = time.monotonic() - started
    if code != 0:
        found.problems.append(f"the undisturbed run ended with code {code}: {_said(whole)}")
        return found
    expected = target.outcome(whole)
    run, of_this = 0, 0
    while found.kills < kills or of_this:
        out = folder / f"run-{run}"
        out.mkdir(exist_ok=True)
        in_peace = of_this >= MOST_KILLS or found.kills >= kills
        found.restarts += of_this > 0
        child = _start(target, target.arguments(data, out))
        code = _ended(child, None if in_peace else chance.uniform(0.0, found.seconds))
        problem = ""
        if code == -signal.SIGKILL:
            found.kills, of_this = found.kills + 1, of_this + 1
        elif code == 0:
            found.compared += 1
            problem = _difference(target, out, expected)
            found.notes += target.notes(out)
        else:
            problem = f"ended with code {code}: {_said(out)}"
        grace = GRACE if target.is_forked else 6 * GRACE  # the agents of Ray look around now and then
        if (left := _left_over(child, grace)) and not problem:
            problem = f"processes are left over: {left}"
        try:
            target.check(out)
        except Exception as error:
            problem = problem or f"{type(error).__name__}: {error}"
        if problem:
            found.problems.append(f"after {found.kills} kills: {problem}")
        if code != -signal.SIGKILL:  # ended: the next one starts anew
            shutil.rmtree(out)
            run, of_this = run + 1, 0
    return found


def _difference(target: Target, out: Path, expected: object) -> str:
    try:
        return "" if target.outcome(out) == expected else "the result is another one"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _start(target: Target, arguments: list[str]) -> int:
    """The command in a process group of its own; what it says goes to a file beside its output."""
    log = Path(arguments[arguments.index("--log") + 1])
    arguments = [part for part in arguments if part not in ("--log", str(log))]
    if not target.is_forked:
        with log.open("wb") as file:
            command = [sys.executable, "-m", "coresift", *arguments]
            return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True).pid
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            forkserver._forkserver.__init__()  # type: ignore[misc]  # the parent's server is not this process's child
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            code = (laboratory if target.is_paper else coresift)(arguments)
        finally:
            os._exit(code)
    return child


def _ended(child: int, kill_after: float | None = None) -> int:
    """The exit code, of a command that is killed after some seconds if it has not ended by then."""
    if kill_after is not None:
        end = time.monotonic() + kill_after
        while time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _left_over(group: int, grace: float) -> list[str]:
    """Processes of the group that are still there after a while; they are ended."""
    end = time.monotonic() + grace
    while (left := _members(group)) and time.monotonic() < end:
        time.sleep(0.02)
    if left:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    return left


def _members(group: int) -> list[str]:
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            state, _, of = rest.split()[:3]
            if int(of) == group and state != "Z":
                members.append(f"{name.partition('(')[2]} {state}")
    return members


def _said(out: Path) -> str:
    return " ".join((out / "log").read_text(errors="replace").split())[-300:]


# The commands.


def _rows(data: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 8)).astype(np.float32)
    X[:500] *= 4
    table = pa.table({f"x{i}": X[:, i] for i in range(8)})
    parquet.write_table(table, data / "rows.parquet", row_group_size=10_000)


def _select(*more: str, suffix: str = ".parquet") -> Callable[[Path, Path], list[str]]:
    def arguments(data: Path, out: Path) -> list[str]:
        files = [str(data / "rows.parquet"), "--out", str(out / f"core{suffix}"), "--log", str(out / "log")]
        return ["select", *files, "--budget", "20%", "--bound", "cells", "--queries", "4", "--seed", "3", *more]

    return arguments


def _fit(data: Path, out: Path) -> list[str]:
    files = [str(data / "rows.parquet"), "--out", str(out / "model.json"), "--log", str(out / "log")]
    return ["fit", *files, "--label", "x7", "--model", "squared", "--budget", "2%"]


def _check_fit(out: Path) -> None:
    _only(out, ("log", "model.json"))
    if (out / "model.json").exists():
        assert LinearModel.load(out / "model.json").size == 1200


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _check_select(out: Path) -> None:
    _only(out, ("log", "core.parquet"))
    if (out / "core.parquet").exists():
        assert Coreset.load(out / "core.parquet").size == 12_000


def _only(folder: Path, names: tuple[str, ...]) -> None:
    """Nothing but these names, and drafts."""
    for path in folder.iterdir():
        is_draft = path.name.startswith(".coresift-") and path.suffix == ".tmp"
        assert path.name in names or is_draft, f"{path} has no business there"


def _train(data: Path, out: Path) -> list[str]:
    options = "--dataset digits --model mlp --width 32 --budget 10% --strategy rbf --select-every 3 --epochs 12"
    more = ["--checkpoint-seconds", "0", "--threads", "1", "--device", "cpu", "--seed", "1"]
    return ["train", *options.split(), *more, "--out", str(out / "run"), "--log", str(out / "log")]


def _train_outcome(out: Path) -> object:
    run = out / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        for name in [name for name in line if name.endswith("_seconds")]:
            del line[name]
    assert not list(run.rglob("*.tmp")), "drafts are left over"
    return _hash(run / "model.safetensors"), lines, json.loads((run / "result.json").read_text())["test"]


def _check_train(out: Path) -> None:
    from coresift.training.checkpoint import read_tensors

    run = out / "run"
    if not run.exists():
        return
    files = ("config.json", "data.json", "metrics.jsonl", "model.safetensors", "result.json")
    names = (".lock", ".lock-holder", "checkpoints", *files)
    _only(run, names)
    for path in run.rglob("[!.]*.safetensors"):
        read_tensors(path)
    for path in run.glob("[!.]*.json"):
        json.loads(path.read_text())
    if (run / "metrics.jsonl").exists():
        for line in (run / "metrics.jsonl").read_text().splitlines()[:-1]:  # the last one is cut off by a kill
            json.loads(line)


def _forest(data: Path) -> None:
    (data / "covtype").mkdir()
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, (1500, 54)).astype(np.int16)
    np.savez(data / "covtype" / "covtype.npz", X=X, y=1 + np.arange(1500) % 7)


def _bench(data: Path, out: Path) -> list[str]:
    options = "--scale smoke --methods random,rbf@1,gradmatch --budgets 5%,10% --seeds 1 --device cpu"
    places = ["--data-dir", str(data), "--results", str(out / "results"), "--log", str(out / "log")]
    return ["run", "covtype", *options.split(), *places]


def _bench_outcome(out: Path) -> object:
    from paper.bench.store import Store

    store = Store(out / "results", "covtype")
    lines = store.file.read_bytes().splitlines()
    records = store.read().records
    assert len(lines) == len(records), f"{len(lines)} lines, {len(records)} records"
    for record in records:
        for name in ("seconds", "finished"):
            del record[name]
    return sorted(records, key=lambda record: str(record["id"]))


def _bench_notes(out: Path) -> list[str]:
    """A kill after the record and before the removal of the checkpoints leaves them."""
    cells = out / "results" / "covtype" / "cells"
    return [f"{path.name} is left over" for path in cells.iterdir() if path.is_dir()]


def _check_bench(out: Path) -> None:
    from paper.bench.store import Store

    problems = Store(out / "results", "covtype").read().problems
    assert not problems, problems[0]


def _select_outcome(out: Path) -> object:
    return _hash(out / "core.parquet")


TARGETS = {
    "select": Target(_rows, _select(), _select_outcome, _check_select),
    "select-workers": Target(_rows, _select("--workers", "2"), _select_outcome, _check_select, reference=_select()),
    "fit": Target(_rows, _fit, lambda out: _hash(out / "model.json"), _check_fit),
    "train": Target(lambda data: None, _train, _train_outcome, _check_train),
    "bench": Target(_forest, _bench, _bench_outcome, _check_bench, is_paper=True, notes=_bench_notes),
    "ray": Target(_rows, _select("--engine", "ray", "--workers", "2"), _select_outcome, _check_select, is_forked=False),
}


def record(folder: Path, name: str, seed: int, found: Found) -> None:
    """Add the counts of a command to ``kills.json``, and write the table of all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kills.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    kept[name] = {**asdict(found), "seconds": round(found.seconds, 2), "seed": seed, "when": when}
    kept[name]["version"] = __version__
    path.write_text(json.dumps(kept, indent=1) + "\n")
    lines = [
        "# Kills",
        "",
        "Written by `python tools/kill_test.py NAME ... --kills N --record paper/results/faults`. SIGKILL at moments",
        "that are uniform over an undisturbed run; restarted until it ends; the result compared with the undisturbed.",
        "",
        "| command | kills | starts after a kill | results compared | problems | undisturbed run | when |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for key, each in kept.items():
        counts = [each[part] for part in ("kills", "restarts", "compared")]
        cells = [key, *counts, len(each["problems"]), f"{each['seconds']} s", each["when"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    (folder / "kills.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """Run the campaigns that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(TARGETS))
    parser.add_argument("--kills", type=int, default=100, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="a folder for the counts")
    chosen = parser.parse_args()
    code = 0
    for module in IMPORTED:
        importlib.import_module(module)
    for name in chosen.names:
        with tempfile.TemporaryDirectory(prefix="coresift-kill-") as folder:
            found = campaign(TARGETS[name], chosen.kills, chosen.seed, Path(folder))
        print(
            f"{name}: {found.kills} kills, {found.restarts} starts after a kill, {found.compared} results compared, "
            f"{len(found.problems)} problems (undisturbed: {found.seconds:.2f} s)",
            flush=True,
        )
        for line in (*found.problems[:20], *found.notes[:5]):
            print(f"  {line}", flush=True)
        code |= bool(found.problems)
        if chosen.record is not None:
            record(chosen.record, name, chosen.seed, found)
    return code


if __name__ == "__main__":
    sys.exit(main())
