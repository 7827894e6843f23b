"""One method on one array in a process of its own: ``python -m paper benchmark peers.child SPEC``, a JSON file.

The subset is written as ``.npz``, the seconds and the memory as JSON. The kernel ends the process when it has used its
seconds of processor time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from paper.benchmarks.measure import peak_resident_mb
from paper.benchmarks.peers.methods import METHODS, Method, Subset

_CHEAP_SECONDS = 4.0  # a first call this short is followed by others, of further seeds


def measured(
    method: Method, X: np.ndarray, y: np.ndarray, size: int, scale: float, n_seeds: int
) -> tuple[list[dict[str, Subset]], dict[str, Any]]:
    """The subsets of each seed, and what they took: the fastest call, since the first may compile or read files."""
    method.ready()
    labels = (y,) if method.reads_labels else ()
    before = peak_resident_mb()
    times: list[tuple[float, float]] = []
    subsets: list[dict[str, Subset]] = []
    while not times or (len(times) < n_seeds and times[0][0] < _CHEAP_SECONDS):
        processor, clock = time.process_time(), time.perf_counter()
        found = method.choose(X, size, scale, len(times), *labels)
        extra = [sum(each) for each in zip(*(subset.untimed for subset in found.values()), strict=True)]
        spent = time.process_time() - processor, time.perf_counter() - clock
        times.append((spent[0] - extra[0], spent[1] - extra[1]))
        subsets.append(found)
    fastest = min(times)
    return subsets[: None if method.is_random else 1], {
        "processor": fastest[0],
        "clock": fastest[1],
        "first_processor": times[0][0],
        "memory_mb": peak_resident_mb() - before,
        "peak_mb": peak_resident_mb(),
    }


def main(spec_file: str) -> int:
    """Run what the file says."""
    spec = json.loads(Path(spec_file).read_text())
    limit = int(spec["limit"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    X, y = (np.load(spec[name], allow_pickle=False) for name in ("rows", "labels"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, about their own future
        seeds, found = measured(METHODS[spec["method"]], X, y, spec["size"], spec["scale"], spec["n_seeds"])
    arrays = {
        f"{seed}/{name}/{field}": value
        for seed, subsets in enumerate(seeds)
        for name, subset in subsets.items()
        for field, value in vars(subset).items()
        if value is not None and field != "untimed"
    }
    np.savez(spec["out"], **arrays)
    found |= {"subsets": list(seeds[0]), "n_seeds": len(seeds)}
    Path(spec["out"]).with_suffix(".json").write_text(json.dumps(found))
    return 0


def read_subsets(path: Path) -> tuple[list[dict[str, Subset]], dict[str, Any]]:
    """What a child has written: the subsets of each seed, and what they took."""
    found = json.loads(path.with_suffix(".json").read_text())
    fields = ("weights", "indices", "positions", "groups")
    with np.load(path, allow_pickle=False) as arrays:
        subsets = [
            {
                name: Subset(
                    **{
                        field: arrays[f"{seed}/{name}/{field}"]
                        for field in fields
                        if f"{seed}/{name}/{field}" in arrays
                    }
                )
                for name in found["subsets"]
            }
            for seed in range(found["n_seeds"])
        ]
    return subsets, found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
