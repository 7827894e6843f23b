"""``python -m paper benchmark NAME``: run a benchmark, with one thread."""

from __future__ import annotations

import os

from coresift import __version__
from coresift.cli.app import lazy_app

from ..benchmarks import BENCHMARKS

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported, and for the processes that are started

benchmark = lazy_app(
    "python -m paper benchmark",
    __version__,
    "Run a benchmark by name.",
    {name: (f"paper.benchmarks.{name.replace('-', '_')}", line) for name, line in BENCHMARKS.items()},
)
