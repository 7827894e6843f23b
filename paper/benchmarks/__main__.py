"""``python -m paper benchmark NAME``: run benchmarks by name, or all of them."""

from __future__ import annotations

import os
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

from paper.benchmarks import certificates, foundation, load, scale, selection, training
from paper.benchmarks._measure import PAGE, store

BENCHMARKS = {
    "foundation": foundation.run,
    "certificates": certificates.run,
    "selection": selection.run,
    "scale": scale.run,
    "training": training.run,
    "load": load.run,
}


def main(names: list[str]) -> int:
    """Run what is named."""
    unknown = sorted(set(names) - BENCHMARKS.keys())
    if unknown:
        sys.stderr.write(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    for name in names or BENCHMARKS:
        sys.stderr.write(f"{name} ...\n")
        store(name, BENCHMARKS[name]())
    sys.stderr.write(f"written to {PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
