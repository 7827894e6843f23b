"""What it costs to draw by the norms that training saw: pairs of runs beside uniform redraws, one after the other.

``CORESIFT_DATA=DIR python -m paper benchmark recorder-cost`` prints medians of ratios of processor time. Three minutes.
Set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from coresift.cli.app import Settings
from coresift.data import load_dataset
from coresift.selection import AdaptiveCoreset, AdaptiveRandom
from coresift.training import build_model, train

from .measure import data_dir, markdown

CASES = (("covtype", "mlp", 0.01, 40, 7), ("covtype", "mlp", 0.05, 8, 7), ("mnist", "lenet", 0.01, 20, 5))


class Recorded(AdaptiveRandom):
    """Uniform redraws that ask for norms and do not use them."""

    reuses_norms = True


def seconds(data: Any, model: str, strategy: Any, budget: float, epochs: int, seed: int) -> tuple[float, float]:
    """Of selection and of training."""
    network = build_model(model, n_classes=data.n_classes, input_shape=data.input_shape, seed=0)
    options = {"epochs": epochs, "select_every": 1, "seed": seed, "device": "cpu", "clock": "cpu"}
    found = train(network, data, strategy, budget, **options).seconds
    return found.selection, found.training


def recorder_cost(settings: Settings) -> None:
    """Time draws by the norms that training saw, in pairs with uniform redraws."""
    torch.set_num_threads(1)
    head = ["data", "budget", "recording, share of training", "draw, share of training", "all, over uniform redraws"]
    rows = []
    for name, model, budget, epochs, pairs in CASES:
        data = load_dataset(name, data_dir())
        ratios = []
        for seed in range(pairs):
            uniform, recorded, seen = (
                seconds(data, model, strategy, budget, epochs, seed)
                for strategy in (AdaptiveRandom(), Recorded(), AdaptiveCoreset(scores="seen"))
            )
            ratios.append((recorded[1] / uniform[1] - 1, seen[0] / uniform[1], sum(seen) / sum(uniform)))
        recording, drawing, both = np.median(ratios, axis=0)
        rows.append([name, f"{100 * budget:g} %", f"{recording:.1%}", f"{drawing:.1%}", f"{both:.2f}"])
    settings.out.print("\n".join(markdown(head, rows)), soft_wrap=True)
