"""Records of runs that never were, for the tests of what is made of records."""

import dataclasses
from typing import Any

from paper.bench.protocol import Protocol, Run, load_protocol


def small_protocol(seeds: int = 3) -> Protocol:
    methods = ["FULL", "RANDOM", "RBF", "RBF-WARM", "ADAPTIVE-RANDOM", "ADAPTIVE-RANDOM@1", "RBF@1"]
    return load_protocol("mnist").narrowed(methods, [0.01, 0.10], seeds)


def record(protocol: Protocol, cell: Run, **changes: Any) -> dict[str, Any]:
    """A record of a cell, with values that follow from it; ``accuracy`` and the like are replaced by ``changes``."""
    number = int(cell.id, 16)  # any function of the cell that looks random
    values = {
        "accuracy": round(0.9 + 0.09 * (number % 997) / 997, 4),
        "selection": 0.0 if cell.method in ("FULL", "RANDOM") else 2.0 + cell.seed,
        "training": 1000.0 * cell.budget + cell.seed,
        "clock": "cpu",
        "processor": "some processor",
    } | changes
    return {
        "id": cell.id,
        "cell": dataclasses.asdict(cell),
        "config": protocol.config,
        "test": {"accuracy": values["accuracy"], "macro_f1": values["accuracy"] / 2, "loss": 0.1},
        "seconds": {"selection": values["selection"], "training": values["training"], "evaluation": 500.0},
        "clock": values["clock"],
        "n_epochs": 200,
        "subset_size": max(1, round(60_000 * cell.budget)),
        "n_train": 60_000,
        "curve": [[200, values["accuracy"]]],
        "software": {"coresift": "0.1.0"},
        "machine": {"processor": values["processor"], "cores": 2, "threads": 1},
        "finished": "2026-11-16T00:12:00+00:00",
    }


def records(protocol: Protocol) -> list[dict[str, Any]]:
    return [record(protocol, cell) for cell in protocol.runs()]
