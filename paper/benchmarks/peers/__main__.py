"""``python -m paper benchmark peers [--data-dir D] [--quick]``: measure what is missing, write page and figure."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported, and for the processes that are started

HERE = Path(__file__).parent
FIGURES = HERE.parents[1] / "docs" / "figures"


def main(arguments: list[str]) -> int:
    """Read the options and run."""
    from paper.benchmarks.peers import data, report, running
    from paper.benchmarks.peers.methods import METHODS

    parser = argparse.ArgumentParser(prog="python -m paper benchmark peers", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, help="folder that has mnist/ and covtype/; without it these are left out"
    )
    parser.add_argument("--quick", action="store_true", help="two small data sets, into --out only")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of processor time for one choice")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of runs.jsonl, RESULTS.md and the figure, instead of those of this repository",
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--cases", nargs="+", help="names of data sets, all by default")
    options = parser.parse_args(arguments)
    out = options.out or (Path("build/peers") if options.quick else HERE)
    out.mkdir(parents=True, exist_ok=True)
    cases = data.QUICK if options.quick else data.CASES
    if options.cases:
        cases = [case for case in cases if case.name in options.cases]
    log = running.Log(out / "runs.jsonl")
    running.run(
        cases,
        log,
        data_dir=options.data_dir,
        limit=options.limit,
        methods=options.methods,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    report.write(log.records, out, figures=FIGURES if out == HERE else out)
    print(f"written to {out / 'RESULTS.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
