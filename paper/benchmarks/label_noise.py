"""Wrong labels: what draws by gradients do when a fifth of the training labels are random.

``python -m paper benchmark label-noise`` trains a perceptron on a tenth of scikit-learn's digits at a time, and writes
``paper/results/label-noise.md``. Two minutes. Test labels are left as they are. Set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import numpy as np
import torch

from coresift.cli.app import Settings
from coresift.data import load_dataset
from coresift.selection import AdaptiveCoreset, AdaptiveRandom, Strategy
from coresift.training import build_model, train

from ..bench.statistics import mean_and_deviation
from ..bench.store import RESULTS
from .measure import markdown

SEEDS, EPOCHS, BUDGET, WRONG = range(8), 80, 0.1, 0.2
STRATEGIES: dict[str, Strategy] = {
    "uniform": AdaptiveRandom(),
    "`AdaptiveCoreset()`": AdaptiveCoreset(),
    "`AdaptiveCoreset(correction=1)`": AdaptiveCoreset(correction=1.0),
    '`AdaptiveCoreset(scores="seen")`': AdaptiveCoreset(scores="seen"),
    '`AdaptiveCoreset(scores="seen", correction=1)`': AdaptiveCoreset(scores="seen", correction=1.0),
}


def accuracy(strategy: Strategy, every: int, wrong: float, seed: int) -> float:
    """On the test set, in %, after training on labels of which a share is drawn at random."""
    data = load_dataset("digits")
    x, y = np.asarray(data.train.x), np.array(data.train.y)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(y))[: round(wrong * len(y))]
    y[chosen] = rng.integers(data.n_classes, size=len(chosen))
    model = build_model("mlp", n_classes=data.n_classes, input_shape=data.input_shape, seed=seed, width=64)
    options = {"epochs": EPOCHS, "select_every": every, "seed": seed, "lr": 0.03, "device": "cpu"}
    test = (np.asarray(data.test.x), np.asarray(data.test.y))
    result = train(model, (x, y), strategy, BUDGET, test=test, **options)
    assert result.test is not None
    return 100 * result.test["accuracy"]


def table() -> list[str]:
    """Mean and deviation over the seeds."""
    cases = [(wrong, every) for every in (1, 20) for wrong in (0.0, WRONG)]
    head = ["draw", *(f"R = {every}, {100 * wrong:g} % wrong" for wrong, every in cases)]
    rows = []
    for name, strategy in STRATEGIES.items():
        row = [name]
        for wrong, every in cases:
            found = [accuracy(strategy, every, wrong, seed) for seed in SEEDS]
            mean, deviation = mean_and_deviation(found)
            row.append(f"{mean:.1f} ± {deviation:.1f}")
        rows.append(row)
    return markdown(head, rows)


def label_noise(settings: Settings) -> None:
    """Train on wrong labels, and write the table."""
    torch.set_num_threads(1)
    about = (
        f"Test accuracy in %, mean ± deviation over {len(SEEDS)} seeds. Digits, perceptron of width 64, {EPOCHS} "
        f"epochs on {100 * BUDGET:g} % of the samples, drawn anew every R epochs; the labels of that share of the "
        "training samples are random."
    )
    text = "\n".join(["# Wrong labels", "", "`python -m paper benchmark label-noise`", "", about, "", *table(), ""])
    (RESULTS / "label-noise.md").write_text(text, encoding="utf-8")
    settings.out.print(text, markup=False, soft_wrap=True)
