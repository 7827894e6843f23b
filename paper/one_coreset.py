"""One coreset for all networks: sensitivities are fitted once, and several networks train on draws from them.

The sensitivities know the inputs and nothing of a model, so their cost is shared by all networks that are trained on
the data. Beside them stand uniform draws, which cost nothing to begin with, redrawn as often.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from coresift import __version__
from coresift._errors import InvalidInputError
from coresift._validation import check_choice, check_count, parse_budget
from coresift.core.draw import DrawTable
from coresift.coresets.coreset import Coreset
from coresift.coresets.files import write_whole
from coresift.data import DatasetSplits
from coresift.selection import RBF, AdaptiveRandom, Random, SelectionContext, Selector

logger = logging.getLogger(__name__)

DATASETS = ("mnist", "digits")
VECTOR = "sensitivities.npz"


@dataclass(frozen=True)
class Network:
    """A network of :func:`coresift.training.build_model`, and for how long it is trained."""

    model: str
    epochs: int
    width: int | None = None

    @property
    def title(self) -> str:
        """For tables."""
        name = {"lenet": "LeNet-5", "mlp": "MLP", "resnet18": "ResNet-18"}.get(self.model, self.model)
        return name if self.width is None else f"{name}, width {self.width}"

    @property
    def key(self) -> str:
        """For names of folders."""
        return self.model if self.width is None else f"{self.model}-{self.width}"


def networks(epochs: int = 200, resnet_epochs: int = 30) -> tuple[Network, ...]:
    """LeNet-5, a perceptron, and a ResNet-18 an eighth as wide as usual: a scale-down, as are its epochs."""
    return (
        Network("lenet", check_count(epochs, "epochs")),
        Network("mlp", epochs),
        Network("resnet18", check_count(resnet_epochs, "resnet_epochs"), width=8),
    )


@dataclass(frozen=True)
class Method:
    """A way to choose, and how often: every so many epochs, or once (0)."""

    strategy: str
    every: int

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.strategy}, fixed" if self.every == 0 else f"{self.strategy}, R = {self.every}"


METHODS = (
    Method("RANDOM", 0),
    Method("RBF", 0),
    Method("ADAPTIVE-RANDOM", 20),
    Method("RBF", 20),
    Method("ADAPTIVE-RANDOM", 1),
    Method("RBF", 1),
)


@dataclass(frozen=True)
class Plan:
    """What to run: every network with every method and every seed."""

    networks: tuple[Network, ...] = field(default_factory=networks)
    budget: int | float | str = "1%"
    n_seeds: int = 2
    seed: int = 0

    @property
    def seeds(self) -> range:
        """Of the runs."""
        return range(self.seed, self.seed + self.n_seeds)

    @property
    def n_runs(self) -> int:
        """How many networks are trained."""
        return len(self.networks) * len(METHODS) * self.n_seeds


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """The vector that is fitted once, and what it cost."""

    values: np.ndarray
    bound: str
    seconds: float

    @property
    def total(self) -> float:
        """Their sum."""
        return float(self.values.sum())

    @property
    def uniform_factor(self) -> float:
        """Largest over mean: 1 means that the draw is uniform."""
        return float(self.values.max() / self.values.mean())


@dataclass(frozen=True)
class Run:
    """One network that was trained; seconds by the processor's clock, selection without the fit."""

    network: str
    model: str
    epochs: int
    method: str
    strategy: str
    every: int
    seed: int
    accuracy: float
    selection: float
    training: float


@dataclass(frozen=True)
class Line:
    """A network and a method: a line of the table."""

    network: str
    epochs: int
    method: str
    accuracy: float
    lowest: float
    highest: float
    n_seeds: int
    selection: float  # of one run, with the fit where this network pays for it
    training: float  # of one run


@dataclass(frozen=True)
class Outcome:
    """Everything that a report needs."""

    dataset: str
    n_samples: int
    size: int
    bound: str
    total_sensitivity: float
    uniform_factor: float
    fit_seconds: float
    runs: list[Run]
    version: str = __version__

    @property
    def lines(self) -> list[Line]:
        """Means over the seeds, in the order of the plan; the first network pays for the fit, the others do not."""
        order = list(dict.fromkeys((run.network, run.method) for run in self.runs))
        return [self._line(network, method) for network, method in order]

    def _line(self, network: str, method: str) -> Line:
        runs = [run for run in self.runs if (run.network, run.method) == (network, method)]
        accuracies = [run.accuracy for run in runs]
        pays = runs[0].strategy == "RBF" and network == self.runs[0].network
        return Line(
            network=network,
            epochs=runs[0].epochs,
            method=method,
            accuracy=fmean(accuracies),
            lowest=min(accuracies),
            highest=max(accuracies),
            n_seeds=len(runs),
            selection=fmean(run.selection for run in runs) + (self.fit_seconds if pays else 0.0),
            training=fmean(run.training for run in runs),
        )


@dataclass(frozen=True, eq=False)
class Drawn(Selector):
    """Draws by sensitivities that are there already: what the strategy RBF does once it has fitted its own."""

    values: np.ndarray = field(repr=False)
    checksum: str = field(init=False)  # a run is not continued with other sensitivities
    table: DrawTable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.values)
        scores = np.maximum(self.values, 1.0 / n)  # the floor that every draw of an estimator has
        table = DrawTable(scores, np.ones(n))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "checksum", f"{zlib.crc32(np.ascontiguousarray(self.values).data):08x}")

    @property
    def name(self) -> str:
        """As that of the strategy that fits."""
        return "rbf"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        n = context.n_samples
        if n != len(self.values):
            raise InvalidInputError(f"the sensitivities are of {len(self.values)} samples, but there are {n}.")
        rows, weights, _ = self.table.draw(size, "keys", rng)
        return Coreset(rows, weights, n, method=self.name, total_weight=float(n))


def fit(data: DatasetSplits, seed: int) -> Sensitivities:
    """The sensitivities as the strategy RBF fits them, and the processor's time."""
    from coresift.coresets import RBFCoreset

    X = data.train.x.reshape(len(data.train), -1)  # type: ignore[union-attr]
    settings = RBF()
    start = time.process_time()
    found = RBFCoreset(
        settings.radius,
        bandwidth=settings.bandwidth,
        bound=settings.bound,
        n_cells=settings.n_cells,
        max_exact=settings.max_exact,
        random_state=seed,
    ).fit(X)
    return Sensitivities(found.sensitivities_, found.bound_, time.process_time() - start)


def fit_or_read(data: DatasetSplits, seed: int, folder: Path) -> Sensitivities:
    """The vector of this folder; fitted, and kept there, if there is none."""
    path = folder / VECTOR
    if path.exists():
        try:
            with np.load(path, allow_pickle=False) as kept:
                found = Sensitivities(kept["values"], str(kept["bound"]), float(kept["seconds"]))
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInputError(
                f"{path}: cannot be read, or is damaged ({error}); remove it to fit again."
            ) from error
        if found.values.shape != (len(data.train),):
            raise InvalidInputError(
                f"{path}: holds {found.values.shape} sensitivities, but {data.name} has {len(data.train)} samples; "
                "choose another folder."
            )
        return found
    found = fit(data, seed)
    write_whole(
        path,
        lambda file: np.savez(file, values=found.values, bound=np.array(found.bound), seconds=np.array(found.seconds)),
    )
    return found


def measure(data: DatasetSplits, plan: Plan, folder: Path, on_run: Callable[[Run], None] = lambda run: None) -> Outcome:
    """Fit once, then train every network with every method and seed; what is finished in ``folder`` is only read.

    Parameters
    ----------
    data : DatasetSplits
        Images in memory, of classes.
    plan : Plan
    folder : path
        Each run has a folder of its own in it (:func:`coresift.training.train`), and goes on after a kill.
    on_run : callable, optional
        Called with each run that is finished.
    """
    check_choice(data.name, "dataset", DATASETS)
    check_count(plan.n_seeds, "seeds")
    size = parse_budget(plan.budget, len(data.train))
    folder.mkdir(parents=True, exist_ok=True)
    shared = fit_or_read(data, plan.seed, folder)
    drawn = Drawn(shared.values)
    logger.info("fitted once, bound %r: %.1f s", shared.bound, shared.seconds)
    runs = []
    for network in plan.networks:
        for method in METHODS:
            for seed in plan.seeds:
                runs.append(_run(data, network, method, seed, size, drawn, folder / "runs"))
                on_run(runs[-1])
    return Outcome(
        dataset=data.name,
        n_samples=len(data.train),
        size=size,
        bound=shared.bound,
        total_sensitivity=shared.total,
        uniform_factor=shared.uniform_factor,
        fit_seconds=shared.seconds,
        runs=runs,
    )


def _run(data: DatasetSplits, network: Network, method: Method, seed: int, size: int, drawn: Drawn, runs: Path) -> Run:
    from coresift.training import build_model, train

    strategies: dict[str, Selector] = {"RANDOM": Random(), "ADAPTIVE-RANDOM": AdaptiveRandom(), "RBF": drawn}
    model = build_model(
        network.model, n_classes=data.n_classes, input_shape=data.input_shape, width=network.width, seed=seed
    )
    found = train(
        model,
        data,
        strategies[method.strategy],
        size,
        epochs=network.epochs,
        select_every=method.every or network.epochs,
        seed=seed,
        device="cpu",  # one clock for all
        out=runs / f"{network.key}-{method.strategy.lower()}-{method.every}-{seed}",
        clock="cpu",
    )
    assert found.test is not None
    return Run(
        network=network.title,
        model=network.model,
        epochs=network.epochs,
        method=method.title,
        strategy=method.strategy,
        every=method.every,
        seed=seed,
        accuracy=found.test["accuracy"],
        selection=found.seconds.selection,
        training=found.seconds.training,
    )
