"""Search of hyper-parameters of networks on a ladder of subsets, with warm starts between its steps."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import nn

from .._errors import DivergedError, InvalidInputError
from .._progress import logger
from .._validation import parse_budget
from ..core.racing import Fidelity, rank_agreement, survivors
from ..coresets.search import candidates_of
from ..selection.gradients import own_randomness
from .loop import train
from .options import TrainOptions

_KEPT = 3  # at most a third of the candidates goes on
_OWN = {"strategy", "budget", "epochs", "seed", "val_fraction", "eval_every"}  # arguments of the search


@dataclass(frozen=True)
class NetworkSearch:
    """The result of a search: ``best_params`` had ``best_score`` in the last step, to which ``model`` was trained.

    ``records`` has step, budget, params and score (NaN if training diverged) of each candidate and step; ``fidelity``
    is as in :class:`coresift.CoresetSearchCV`, without errors: there is one validation set.

    >>> data = torch.eye(2).repeat(99, 1), torch.arange(198) % 2
    >>> found = search_networks(lambda: nn.Linear(2, 2), {"lr": [0.1]}, data)
    >>> found.best_params, found.best_score
    ({'lr': 0.1}, 1.0)
    """

    best_params: dict[str, Any]
    best_score: float
    model: nn.Module
    records: list[dict[str, Any]]
    fidelity: list[Fidelity]


def search_networks(
    build: Callable[..., nn.Module],
    params: Any,
    data: Any,
    *,
    ladder: Sequence[int | float | str] = (0.03, 0.1, 0.3),
    epochs: int = 20,
    strategy: Any = "random",
    n_iter: int | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
    on_step: Callable[[dict[str, Any]], bool | None] | None = None,
    **options: Any,
) -> NetworkSearch:
    """Search hyper-parameters of networks: all candidates on few samples, the best third of them on more.

    A candidate begins a step with the weights that it ended the last one with. All have the same samples and seed.

    Parameters
    ----------
    build : callable
        Returns a new network; called with those of ``params`` that are not options of :func:`train`.
    params : dict or list of dicts
        Values to try, as in ``ParameterGrid``; with ``n_iter``, lists or distributions. Options of :func:`train` such
        as ``lr`` and ``batch_size``, and arguments of ``build``.
    data : as in :func:`train`
    ladder, epochs : increasing budgets, int
        Fractions of the training samples, numbers of samples, or percentages; epochs in each step.
    strategy : str or Strategy, default "random"
        How samples are chosen. With the default each subset is part of the next larger one.
    n_iter, seed : int
        Number of candidates to draw from ``params``, by default all combinations; random seed.
    val_fraction : float
        Fraction of the training samples that candidates are compared on: by accuracy, or by the root mean square error.
    on_step : callable, optional
        Called with each record. A true result stops the candidate, so that a tuner may prune it.
    **options
        Other options of :func:`train`, the same for all candidates.

    Examples
    --------
    >>> X = torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
    >>> found = search_networks(lambda: nn.Linear(4, 2), {"lr": [1e-6, 0.1]}, (X, (X[:, 0] > 0).long()), epochs=5)
    >>> found.best_params
    {'lr': 0.1}
    """
    names = {each.name for each in fields(TrainOptions)}
    candidates = candidates_of(params, n_iter, seed)
    if taken := sorted(_OWN.intersection(itertools.chain(*candidates))):
        raise InvalidInputError(f"params has {', '.join(taken)}, which the search sets itself.")
    shared = {"strategy": strategy, "epochs": epochs, "val_fraction": val_fraction, "eval_every": epochs, "seed": seed}
    runs: list[tuple[dict[str, Any], nn.Module]] = []
    for one in candidates:
        with own_randomness(torch.device("cpu"), seed):
            runs.append((one, build(**{name: one[name] for name in one if name not in names})))
    records: list[dict[str, Any]] = []
    fidelity: list[Fidelity] = []
    before = np.zeros((len(runs), 1))
    counts = [parse_budget(budget, 1 << 40) for budget in ladder]  # of that many samples, to compare budgets
    if not counts or any(small >= large for small, large in itertools.pairwise(counts)):
        how = "must be increasing budgets, all of them fractions or all of them numbers, such as (0.03, 0.1, 0.3)"
        raise InvalidInputError(f"ladder = {ladder!r:.60} {how}.")
    for step, budget in enumerate(ladder):
        scores, stopped = np.empty((len(runs), 1)), []
        for k, (chosen, model) in enumerate(runs):
            mine = {name: value for name, value in chosen.items() if name in names}
            scores[k] = score = _score(model, data, **(options | mine | shared | {"budget": budget}))
            records.append({"step": step, "budget": budget, "params": chosen, "score": score})
            logger.info("search: step %d, %s: %.4g", step + 1, chosen, score)
            stopped.append(on_step is not None and bool(on_step(records[-1])))
        if step > 0:
            fidelity.append(rank_agreement(step - 1, before, scores))
        leading = survivors(scores, ceil(len(runs) / _KEPT))
        best, best_score = runs[leading[0]], float(scores[leading[0], 0])
        kept = [int(k) for k in np.sort(leading) if not stopped[k]]
        runs, before = [runs[k] for k in kept], scores[kept]
        if not runs:
            break
    return NetworkSearch(best[0], best_score, best[1], records, fidelity)


def _score(model: nn.Module, data: Any, **settings: Any) -> float:
    """Train further, and return the accuracy on the validation samples, or the negative error of a regression."""
    try:
        last = train(model, data, **settings).history[-1]
    except DivergedError:
        return np.nan
    if "val_accuracy" in last:
        return float(last["val_accuracy"])
    return -float(last["val_rmse"] if "val_rmse" in last else last["val_loss"])
