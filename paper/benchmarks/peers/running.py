"""Every case, every method, each in a process of its own; one line of JSON for what was found, as soon as it is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paper.benchmarks.measure import Log, Record
from paper.benchmarks.peers.child import read_subsets
from paper.benchmarks.peers.data import Case, Data
from paper.benchmarks.peers.methods import METHODS, Method
from paper.benchmarks.peers.quality import Reference, judged, reference

ROOT = Path(__file__).parents[3]
SEEDS = 3  # where a subset is cheap to make and to judge; else one
_CHEAP_PAIRS = 2e7
_HOPELESS = 2.0  # times the limit: what would take longer, by its time on smaller data, is not tried


def run(
    cases: Iterable[Case],
    log: Log,
    *,
    data_dir: Path | None,
    limit: float,
    methods: Iterable[str] = METHODS,
    say: Any = lambda text: None,
) -> None:
    """Measure what the log does not have."""
    for case in cases:
        missing = [
            (size, name)
            for size in case.sizes
            for name in methods
            if log.find(case=case.name, size=size, method=name) is None
        ]
        if not missing:
            continue
        data = case.load(data_dir)
        if data is None:
            say(f"{case.name}: no files; name their folder with --data-dir")
            continue
        _run_case(case, data, missing, log, limit, say)


def _run_case(case: Case, data: Data, missing: list[tuple[int, str]], log: Log, limit: float, say: Any) -> None:
    n, d = data.X.shape
    known = log.find(case=case.name, kind="data")
    ref = reference(data.X, known)
    if known is None:
        log.add(
            {
                "kind": "data",
                "case": case.name,
                "n": n,
                "d": d,
                "scale": ref.ball.scale,
                "square": ref.square,
                "square_error": ref.square_error,
                "floor": ref.floor,
                "certificate_processor": ref.processor,
            }
        )
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", data.X)
        np.save(Path(folder) / "labels.npy", data.y)
        for size, name in missing:
            about = {"case": case.name, "size": size, "method": name, "n": n, "d": d}
            record = log.add(about | _measured(about, data, ref, log, limit, Path(folder)))
            what = record.get("reason") or f"{record['processor']:.2f} s"
            say(f"{case.name}, m = {size}, {name}: {record['status']}, {what}")


def _measured(about: Record, data: Data, ref: Reference, log: Log, limit: float, folder: Path) -> Record:
    """Time, memory and quality; or why there are none."""
    method, n, size = METHODS[about["method"]], about["n"], about["size"]
    absent = [name for name in method.modules if importlib.util.find_spec(name.split(".")[0]) is None]
    if absent:
        return {"status": "absent", "reason": f"{method.package} is not installed"}
    reason = method.refusal(n) or _hopeless(method, about, log, limit)
    if reason is not None:
        return {"status": "not tried", "reason": reason}
    out = folder / "subset.npz"
    spec = {
        "rows": str(folder / "rows.npy"),
        "labels": str(folder / "labels.npy"),
        "method": about["method"],
        "size": size,
        "scale": ref.ball.scale,
        "n_seeds": SEEDS if n * size <= _CHEAP_PAIRS else 1,
        "limit": limit,
        "out": str(out),
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-m", "paper.benchmarks.peers.child", str(folder / "spec.json")],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"status": "too slow", "reason": f"more than {limit:g} s of processor time", "limit": limit}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"status": "failed", "reason": last[:300]}
    subsets, found = read_subsets(out)
    start = time.process_time()
    quality = {name: [judged(data, of_seed[name], ref) for of_seed in subsets] for name in found.pop("subsets")}
    found["judging_processor"] = time.process_time() - start
    if method.package is not None:
        found["version"] = importlib.metadata.version(method.package)
    return {"status": "ok", **found, "quality": quality}


def _hopeless(method: Method, about: Record, log: Log, limit: float) -> str | None:
    """Why it would be too slow, by what it took before; None if it may not be."""
    work = method.work(about["n"], about["d"], about["size"])
    expected = []
    for record in log.records:
        if record.get("method") != about["method"]:
            continue
        before = method.work(record["n"], record["d"], record["size"])
        where = f"{record['case']}, m = {record['size']:,}"
        if record["status"] == "too slow" and work >= before:
            return f"too slow already on {where}"
        if record["status"] == "ok" and method.is_quadratic:
            seconds = record["processor"]
            expected.append((seconds * work / before, f"by its {seconds:.1f} s on {where}"))
    if expected and min(expected)[0] > _HOPELESS * limit:  # by the kindest of them
        return f"some {min(expected)[0]:,.0f} s {min(expected)[1]}"
    return None
