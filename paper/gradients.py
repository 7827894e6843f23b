r"""Do coresets approximate gradients? The paper's claim, measured on networks while they learn.

Let :math:`g_i` be the gradient of the loss of sample i by all parameters. The full gradient is :math:`G = \sum_i
g_i`. A subset with weights estimates it by :math:`\hat G = \sum_{j \in S} w_j g_j`, and the error is :math:`|\hat G -
G| / |G|`. Weight decay, which needs no samples, is left out. Subsets of most methods know nothing of the network, so
the same ones serve all networks and moments.

Two errors are known beforehand, from the norms of the :math:`g_i`. Of m samples drawn uniformly without replacement,

.. math:: E|\hat G - G|^2 = \frac{n^2}{m}\Big(1 - \frac{m}{n}\Big) \frac{1}{n-1} \sum_i |g_i - G/n|^2,

and of m independent draws with probabilities p, :math:`E|\hat G - G|^2 = (\sum_i |g_i|^2/p_i - |G|^2)/m`. What is
measured must lie there.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coresift import __version__
from coresift._errors import InvalidInputError
from coresift._validation import check_budget, check_choice, check_count
from coresift.core.budgets import class_budgets
from coresift.core.draw import DrawTable
from coresift.coresets import RBFCoreset
from coresift.coresets.uniform import uniform_coreset
from coresift.data import DatasetSplits, load_dataset

from .sample_gradients import BATCH, gradient_norms, weighted_gradient

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

DATASETS = ("mnist", "digits")
MODELS = ("lenet", "mlp")
MOMENTS = ("start", "middle", "end")
BUDGETS = (0.01, 0.03, 0.05, 0.1, 0.2, 0.3)
METHODS = ("uniform", "uniform per class", "paper", "ours", "ours refined", "gradient norms")
_LARGEST_REFINED = 1000  # choosing more points well takes minutes
_TINY = 1e-300  # an estimate of no gradient at all has no direction
_SMALLEST_NORM = 1e-6  # over the mean norm: samples of no gradient can be drawn, and weigh nothing in the sum


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    models: Sequence[str] = MODELS
    budgets: Sequence[float] = BUDGETS
    n_draws: int = 5  # at 30 %, more of smaller subsets
    n_refined: int = 3  # draws of "ours refined", which are slow and hardly differ
    epochs: int = 10
    seed: int = 0

    def checked(self, n_samples: int) -> Plan:
        """Validate for a number of samples, and return self."""
        for model in self.models:
            check_choice(model, "model", MODELS)
        for name in ("n_draws", "n_refined", "epochs"):
            check_count(getattr(self, name), name)
        check_count(self.seed, "seed", 0)
        if not self.budgets:
            raise InvalidInputError("budgets is empty: give at least one fraction, such as 0.01.")
        for budget in self.budgets:
            if isinstance(budget, int) or not 0 < budget < 1:
                raise InvalidInputError(f"budget = {budget} must be a fraction above 0 and below 1.")
            if check_budget(budget, n_samples, "budget") >= n_samples:
                raise InvalidInputError(f"budget = {budget} is all of the {n_samples} samples.")
        return self

    def draws(self, method: str, budget: float, n_samples: int) -> int:
        """Number of subsets to draw; up to five times more of small ones, which are cheap and vary."""
        if method != "ours refined":
            return self.n_draws * min(5, max(1, int(0.25 / budget)))
        is_small = check_budget(budget, n_samples) <= _LARGEST_REFINED
        return min(self.n_refined, self.n_draws) if is_small else 0

    def n_steps(self, n_samples: int) -> int:
        """Number of calls of ``on_step`` by :func:`measure`."""
        each = sum(self.draws(method, budget, n_samples) for method in METHODS for budget in self.budgets)
        return len(self.models) * len(MOMENTS) * each


@dataclass(frozen=True)
class Measurement:
    """One subset at one moment of one network: a row of the table. What belongs to the moment is repeated."""

    dataset: str
    n_samples: int
    n_features: int
    model: str
    n_parameters: int
    moment: str
    epoch: int
    epochs: int
    loss: float
    accuracy: float  # on the samples themselves, as the loss
    gradient_norm: float  # of the mean gradient
    deviation: float  # root mean square distance of a sample's gradient from it
    method: str
    budget: float
    size: int  # samples asked for
    n_points: int  # distinct samples
    seed: int
    error: float  # |estimate - full| / |full|
    normalized_error: float  # of the estimate with weights that sum to n, as a batch of a training loop has them
    cosine: float  # of the angle between estimate and full gradient
    expected: float  # root mean square of the error by the formula, nan where there is none
    version: str


@dataclass(frozen=True, eq=False)
class _Moment:
    """Gradients of all samples at fixed weights of a network."""

    full: torch.Tensor  # (P,) the sum of the gradients
    norms: np.ndarray  # (n,) of the gradient of each sample
    loss: float
    accuracy: float

    @property
    def full_norm(self) -> float:
        return float(self.full.norm())

    @property
    def scatter(self) -> float:
        """The sum of the squared distances of the samples' gradients from their mean."""
        return float((self.norms**2).sum() - self.full_norm**2 / len(self.norms))

    def expected(self, method: str, size: int, probabilities: np.ndarray) -> float:
        """Root mean square of the relative error, where there is a formula."""
        n = len(self.norms)
        if method == "uniform":
            square = n**2 / size * (1.0 - size / n) * self.scatter / (n - 1)
        elif method == "paper":
            square = float((self.norms**2 / probabilities).sum() - self.full_norm**2) / size
        else:
            return float("nan")
        return float(np.sqrt(max(square, 0.0))) / self.full_norm


@dataclass(frozen=True, eq=False)
class _Subset:
    method: str
    budget: float
    size: int
    seed: int
    rows: np.ndarray
    weights: np.ndarray


def load(dataset: str, data_dir: Any, max_rows: int, seed: int) -> DatasetSplits:
    """Load a data set of images, with at most ``max_rows`` training samples, drawn without replacement."""
    check_choice(dataset, "dataset", DATASETS)
    check_count(max_rows, "rows", 2)
    splits = load_dataset(dataset, data_dir)
    n = len(splits.train)
    if n <= max_rows:
        return splits
    rows = np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False))
    return replace(splits, train=splits.train.take(rows))


def measure(splits: DatasetSplits, plan: Plan, on_step: Callable[[], None] = lambda: None) -> Iterator[Measurement]:
    """Yield every method at every budget, for every network at three moments of training."""
    import torch

    from coresift.training import normalize

    plan = plan.checked(len(splits.train))
    X = splits.train.x  # type: ignore[union-attr]
    features = X.reshape(len(X), -1)
    blind, probabilities = _subsets_of_the_inputs(features, splits.train.y, plan)
    inputs = normalize(torch.tensor(X), splits.mean, splits.std)
    targets = torch.tensor(splits.train.y)
    for name in plan.models:
        for moment, epoch, model in _moments(name, splits, plan):
            at = _look(model, inputs, targets)
            logger.info("%s, %s: accuracy %.3f, |G|/n %.3g", name, moment, at.accuracy, at.full_norm / len(X))
            for subset in (*blind, *_by_norms(at.norms, plan)):
                estimate = weighted_gradient(model, inputs, targets, subset.rows, subset.weights)
                scaled = estimate * (len(X) / subset.weights.sum())
                on_step()
                yield Measurement(
                    dataset=splits.name,
                    n_samples=len(X),
                    n_features=features.shape[1],
                    model=name,
                    n_parameters=len(at.full),
                    moment=moment,
                    epoch=epoch,
                    epochs=plan.epochs,
                    loss=at.loss,
                    accuracy=at.accuracy,
                    gradient_norm=at.full_norm / len(X),
                    deviation=float(np.sqrt(at.scatter / len(X))),
                    method=subset.method,
                    budget=subset.budget,
                    size=subset.size,
                    n_points=len(subset.rows),
                    seed=subset.seed,
                    error=float((estimate - at.full).norm()) / at.full_norm,
                    normalized_error=float((scaled - at.full).norm()) / at.full_norm,
                    cosine=float(estimate @ at.full) / max(float(estimate.norm()) * at.full_norm, _TINY),
                    expected=at.expected(subset.method, subset.size, probabilities),
                    version=__version__,
                )


def _subsets_of_the_inputs(X: np.ndarray, y: np.ndarray, plan: Plan) -> tuple[list[_Subset], np.ndarray]:
    """Subsets of the methods that ignore the network, and the paper's probabilities of a draw."""
    n = len(X)
    ours = RBFCoreset(random_state=plan.seed).fit(X)  # as the strategy RBF of the stored runs, which draws by keys
    paper = RBFCoreset(bound="paper", random_state=plan.seed).fit(X)

    def drawn(method: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        if method == "uniform":
            core = uniform_coreset(n, size, seed)
            return core.indices, core.weights
        if method == "uniform per class":
            return _per_class(y, size, np.random.default_rng(seed))
        if method == "paper":
            core = paper.sample(size, method="iid", random_state=seed)
        else:
            core = ours.sample(size, method="keys", random_state=seed, refine=method == "ours refined")
        return core.indices, core.weights

    found = []
    for budget in plan.budgets:
        size = check_budget(budget, n)
        for method in METHODS[:-1]:
            for seed in range(plan.seed, plan.seed + plan.draws(method, budget, n)):
                found.append(_Subset(method, budget, size, seed, *drawn(method, size, seed)))
    return found, paper.sensitivities_ / paper.sensitivities_.sum()


def _per_class(y: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Uniform within each class, as many of each as it has of the data, each for as many as its class has to a draw."""
    labels, counts = np.unique(y, return_counts=True)
    shares = class_budgets(counts, size, min_per_class=min(1, size // len(labels)))
    rows, weights = [], []
    for label, count, share in zip(labels, counts, shares, strict=True):
        rows.append(rng.choice(np.flatnonzero(y == label), share, replace=False))
        weights.append(np.full(share, count / max(share, 1)))
    return np.concatenate(rows), np.concatenate(weights)


def _by_norms(norms: np.ndarray, plan: Plan) -> Iterator[_Subset]:
    """Draws by the norm of each sample's gradient at this moment: the least possible variance of one draw."""
    n = len(norms)
    scores = np.maximum(norms, _SMALLEST_NORM * norms.mean())
    table = DrawTable(scores, np.ones(n))
    for budget in plan.budgets:
        size = check_budget(budget, n)
        for seed in range(plan.seed, plan.seed + plan.draws("gradient norms", budget, n)):
            draw = table.keys(size, seed)
            yield _Subset("gradient norms", budget, size, seed, draw.indices, draw.weights)


def _moments(name: str, splits: DatasetSplits, plan: Plan) -> Iterator[tuple[str, int, torch.nn.Module]]:
    """A network before training, after half of the epochs and after all, trained on all samples as the paper does."""
    from coresift.training import build_model, train

    model = build_model(name, n_classes=splits.n_classes, input_shape=splits.input_shape, seed=plan.seed)
    yield "start", 0, model
    half = max(1, plan.epochs // 2)
    kept: dict[str, Any] = {}

    def on_epoch(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == half:
            kept["middle"] = copy.deepcopy(model)

    train(model, splits, "full", 1.0, epochs=plan.epochs, seed=plan.seed, device="cpu", on_epoch=on_epoch)
    yield "middle", half, kept["middle"]
    yield "end", plan.epochs, model


def _look(model: torch.nn.Module, inputs: Any, targets: Any) -> _Moment:
    import torch
    from torch.nn import functional

    n = len(inputs)
    full = weighted_gradient(model, inputs, targets, np.arange(n), np.ones(n))
    loss, hits = 0.0, 0
    with torch.no_grad():
        for x, y in zip(torch.split(inputs, BATCH), torch.split(targets, BATCH), strict=True):
            outputs = model(x)
            loss += float(functional.cross_entropy(outputs, y, reduction="sum"))
            hits += int((outputs.argmax(1) == y).sum())
    return _Moment(full, gradient_norms(model, inputs, targets), loss / n, hits / n)


def expected_seconds(n_samples: int, plan: Plan) -> float:
    """Estimate the time of :func:`measure` on one core: fits and refined draws, training, passes, subsets."""
    n = n_samples
    counts = {(m, b): plan.draws(m, b, n) for m in METHODS for b in plan.budgets}
    refined = sum(count for (method, _), count in counts.items() if method == "ours refined")
    drawn = sum(count * budget * n for (_, budget), count in counts.items())
    once = 5.0 + 7e-4 * n + refined * (1.0 + 2.5e-8 * n**2)
    each = len(MOMENTS) * (5e-4 * n + 1e-4 * drawn) + 2e-4 * n * plan.epochs
    return once + len(plan.models) * each
