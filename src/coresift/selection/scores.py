"""Samples chosen by scores of one short training of a copy of the model, made once in a run, shared, and saved."""

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import check_count, check_numbers, check_positive
from ..coresets.files import write_npz, write_whole
from ..rows.arrays import array_names, read_arrays
from .context import SelectionContext
from .gradients import called, check_trainable, device_of, only_tensor, own_randomness, softmax_residuals
from .inputs import Floats, Indices, torch
from .keeping import Chosen, Kept
from .losses import Kind, kind_of, per_sample_loss
from .strategy import setting
from .wrappers import even_counts

SCORES = ("el2n", "grand", "forgetting", "margin", "entropy", "least-confidence", "aum", "distance")
LOW_IS_HARD = ("margin", "aum")
_PROXY = 7  # separates the stream of the proxy's training from others of the same seed
_BATCH = 8, 128  # a fiftieth of the rows, within these
KEEP = ("hard", "easy", "ccs", "moderate")
_TIES = 8  # separates the stream that breaks ties from others of the same seed


@dataclass(frozen=True, eq=False, kw_only=True)
class ByScore(Kept):
    r"""The samples that a score of a short training chooses; each weighs n / budget.

    Let h be the hardness of a sample: its score, or minus it for ``margin`` and ``aum``.

    * ``"hard"``, ``"easy"``: the largest, or the smallest h.
    * ``"ccs"``: coverage-centric selection (Zheng et al., ICLR 2023). The share ``cut`` of the hardest samples, which
      may have wrong labels, is left out. The range of h of the others is cut into 50 equal intervals; the budget is
      split among these as evenly as their sizes allow, and drawn uniformly within each.
    * ``"moderate"``: the smallest :math:`|h - \mathrm{median}(h)|` (Xia et al., ICLR 2023, with the score "distance").

    Ties are broken at random, by the seed of the run.

    Parameters
    ----------
    score : str, default "el2n"
        One of the names in :class:`Scores`.
    keep : {"hard", "easy", "ccs", "moderate"}, default "hard"
    cut : float in [0, 1), default 0.1
        Less is cut where the budget would not be left otherwise.
    scores : Scores or path, optional
        Scores of all samples, such as those of a longer training; by default :func:`proxy_scores` of the context.
    """

    score: str = setting("el2n", choices=SCORES)
    keep: str = setting("hard", choices=KEEP)
    cut: float = setting(0.1, at_least=0.0, below=1.0)
    scores: Any = None

    @property
    def name(self) -> str:
        return self.score if self.keep == "hard" else f"{self.score}-{self.keep}"

    def _chosen(self, context: SelectionContext, size: int, include: Indices) -> Chosen:
        hard = self._hardness(context).astype(np.float64)
        rng = context.fixed_rng(_TIES)
        return np.concatenate((include, ranked(hard, size, self.keep, rng, self.cut, include))), None

    def _hardness(self, context: SelectionContext) -> NDArray[np.float32]:
        if context.is_batched:
            raise InvalidInputError("scores belong to samples: PerBatch has no use for them.")
        found = self.scores
        if found is None:
            found = proxy_scores(context)
        elif isinstance(found, str | os.PathLike):
            found = Scores.load(found)
        elif not isinstance(found, Scores):
            raise InvalidTypeError(f"scores = {found!r:.60} must be Scores, or the path of a file of scores.")
        return context.aligned(found.hardness(self.score), "scores")[context.rows]


def ranked(
    hard: Floats, size: int, keep: str, rng: Generator, cut: float = 0.1, include: Any = (), n_strata: int = 50
) -> Indices:
    """Positions of values that make ``size`` with those to ``include``, by one of the rules of :class:`ByScore`."""
    key = {"hard": -hard, "easy": hard, "ccs": -hard, "moderate": np.abs(hard - np.median(hard))}[keep]
    order = np.lexsort((rng.permutation(len(hard)), key))
    if keep == "ccs":
        order = order[min(int(cut * len(hard)), len(hard) - size) :]
    left, size = order[~np.isin(order, include)], size - len(include)
    if keep != "ccs" or size == 0:
        return left[:size]
    left = rng.permutation(left)
    low, high = float(hard[left].min()), float(hard[left].max())
    width = (high - low) / n_strata or 1.0
    strata = np.minimum((hard[left] - low) / width, n_strata - 1).astype(np.int64)
    counts = even_counts(size, np.bincount(strata, minlength=n_strata), rng)
    by_stratum = np.argsort(strata, kind="stable")
    starts = np.searchsorted(strata[by_stratum], np.arange(n_strata))
    rank = np.arange(len(left)) - starts[strata[by_stratum]]
    return left[by_stratum[rank < counts[strata[by_stratum]]]]


@dataclass(frozen=True, eq=False)
class Scores:
    r"""Scores of n samples: ``columns`` by name, as float32. With logits z, :math:`p = \mathrm{softmax}(z)`, label y:

    * ``el2n``: :math:`|p - e_y|_2` (Paul, Ganguli and Dziugaite, 2021); for numbers the norm of the residual.
    * ``grand``: the norm of the gradient (the same paper) in the last layer, :math:`|p - e_y| \sqrt{|h|^2 + 1}`. The
      paper takes all parameters, which needs a backward pass for each sample.
    * ``margin``: :math:`p_{(1)} - p_{(2)}`; ``entropy``: :math:`-\sum_c p_c \ln p_c`; ``least-confidence``:
      :math:`1 - p_{(1)}` (Coleman et al., 2020).
    * ``distance``: from the last layer's input h to its mean over the class (Xia et al., 2023).
    * ``forgetting``: how often the sample was predicted wrongly right after it was predicted correctly (Toneva et al.,
      2019); the number of epochs, more than can be counted, if it was never predicted correctly.
    * ``aum``: mean of :math:`z_y - \max_{c \ne y} z_c` over the epochs (Pleiss et al., 2020).

    The last two are recorded in training, when a sample is used; the others after it, in evaluation mode. A small
    margin or AUM is hard; of the others, large values are. For regression there are the first two alone.

    Examples
    --------
    >>> import tempfile
    >>> scores = Scores({"el2n": np.array([0.1, 1.2], dtype=np.float32)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scores.save(Path(folder) / "scores.npz")
    ...     Scores.load(Path(folder) / "scores.npz")["el2n"]
    array([0.1, 1.2], dtype=float32)
    """

    columns: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        found = [check_numbers(each, name) for name, each in self.columns.items()]
        if not found or any(
            each.ndim != 1 or len(each) != len(found[0]) or not np.isfinite(each).all() for each in found
        ):
            raise InvalidInputError("scores must be finite, one number for each sample.")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        if name not in self.columns:
            raise InvalidInputError(f"there is no score {name!r}, only {', '.join(self.columns)}: it needs classes.")
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def hardness(self, name: str) -> NDArray[np.float32]:
        """Scores ``name`` with a sign that makes the hard samples those with large values."""
        return -self[name] if name in LOW_IS_HARD else self[name]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.npz`` file ``path`` with an array for each score."""
        write_whole(Path(path), lambda file: write_npz(file, {}, self.columns))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file ``path`` that :meth:`save` wrote."""
        names = [name for name in array_names(Path(path)) if name in SCORES]
        if not names:
            raise InvalidInputError(f"{path} holds none of {', '.join(SCORES)}.")
        found = [each.astype(np.float32) for each in read_arrays(Path(path), *names)]
        try:
            return cls(dict(zip(names, found, strict=True)))
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None


def proxy_scores(context: SelectionContext, epochs: int = 5, lr: float = 1e-3, fresh: bool = True) -> Scores:
    """Scores of all data of the ``context``'s run, from a copy of the model trained for some ``epochs``; computed once.

    Adam with the learning rate ``lr`` and batches of a fiftieth of the rows (8 to 128), without augmentation. With
    ``fresh`` the layers that are trained start anew, from the seed of the run: the epoch does not matter.

    >>> import torch
    >>> x, y = np.eye(4, dtype=np.float32).repeat(10, axis=0), np.arange(4).repeat(10)
    >>> context = SelectionContext(x, y, model=torch.nn.Linear(4, 4), loss="cross_entropy")
    >>> proxy_scores(context)["el2n"].shape
    (40,)
    """
    check_count(epochs, "epochs")
    check_positive(lr, "lr")
    whole = context.whole()
    return whole.kept(("scores", epochs, lr, fresh), lambda: _scored(whole, epochs, lr, fresh))


def _scored(context: SelectionContext, epochs: int, lr: float, fresh: bool) -> Scores:
    n = context.n_samples
    if context.forward is not None:
        raise InvalidInputError("scores need a copy of the model, which forward= does not call: pass scores= instead.")
    rng = context.fixed_rng(_PROXY)
    proxy = copy.deepcopy(context.needed_model)
    check_trainable(proxy.parameters())
    compute, size = per_sample_loss(context.loss), min(_BATCH[1], max(_BATCH[0], n // 50))
    dynamics = Dynamics(n)
    own = own_randomness(device_of(proxy), int(rng.integers(2**62)))
    with context.accounted("scores", (epochs + 1) * n), own, torch.enable_grad():
        if fresh:
            _restart(proxy)
        proxy.train()
        optimizer = torch.optim.Adam([each for each in proxy.parameters() if each.requires_grad], lr=lr)
        for _ in range(epochs):
            # no batch of one row, which batch norms refuse
            for part in np.array_split(rng.permutation(n), max(1, n // size)):
                ((x, y),) = context.batches(part, len(part))
                outputs = only_tensor(called(proxy, x))
                optimizer.zero_grad()
                compute(outputs, y).mean().backward()
                optimizer.step()
                if (known := _classified(outputs, y, context.loss)) is not None:
                    dynamics.update(part, *known)
        found = context.derived(model=proxy).layer_pass()
    columns = {"el2n": np.linalg.norm(found.gradients.residuals, axis=1), "grand": np.sqrt(found.gradients.sq_norms())}
    if (known := _classified(torch.as_tensor(found.outputs), found.targets, context.loss)) is not None:
        features = found.outputs if found.gradients.inputs is None else found.gradients.inputs
        columns |= prediction_scores(*known) | class_distances(features, known[1]) | dynamics.scores()
    return Scores({name: np.asarray(values, dtype=np.float32) for name, values in columns.items()})


def _restart(model: Any) -> None:
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None) if own else None)
        if all(each.requires_grad for each in own) and callable(reset):
            reset()
        elif any(each.requires_grad for each in own):
            what = name or type(module).__name__
            logger.warning("scores: %s starts from its present weights, as it has no reset_parameters.", what)


def _classified(outputs: Any, targets: Any, loss: Any) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Logits (n, C) and labels; None if the task is not to tell classes apart. One output of a BCE means two logits."""
    logits, labels = outputs.detach().float().cpu().numpy(), targets.cpu().numpy()
    if kind_of(loss) is Kind.SWITCHES and logits.size == len(logits) == labels.size:
        logits, labels = np.column_stack((np.zeros(len(logits)), logits.ravel())), labels.ravel().astype(np.int64)
    if kind_of(loss) is Kind.NUMBERS or logits.ndim != 2 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return None if logits.shape[1] < 2 or labels.min() < 0 or labels.max() >= logits.shape[1] else (logits, labels)


class Dynamics:
    """Count forgetting events and sum margins while a model is trained."""

    def __init__(self, n: int) -> None:
        self.margins, self.met, self.forgotten = np.zeros(n), np.zeros(n), np.zeros(n)
        self.was_right, self.was_ever = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)

    def update(self, rows: NDArray[np.int64], logits: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Record the logits (b, C) of a step."""
        margins = label_margins(logits, labels)
        is_right = margins > 0
        self.margins[rows] += margins
        self.met[rows] += 1
        self.forgotten[rows] += self.was_right[rows] & ~is_right
        self.was_right[rows] = is_right
        self.was_ever[rows] |= is_right

    def scores(self) -> dict[str, NDArray[Any]]:
        """The scores ``forgetting`` and ``aum``."""
        counts = np.where(self.was_ever, self.forgotten, self.met)
        return {"forgetting": counts, "aum": self.margins / np.maximum(self.met, 1)}


def label_margins(logits: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
    """The logit of the label minus the largest other one."""
    rows, others = np.arange(len(labels)), np.array(logits, dtype=np.float64)
    own = others[rows, labels]
    others[rows, labels] = -np.inf
    return own - others.max(axis=1)


def prediction_scores(logits: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The scores that follow from the logits of a trained model."""
    residuals = softmax_residuals(logits.astype(np.float64), labels)
    chances = residuals.copy()
    chances[np.arange(len(labels)), labels] += 1.0
    top = np.partition(chances, -2, axis=1)[:, -2:]
    logs = np.log(np.maximum(chances, np.finfo(np.float64).tiny))
    return {
        "el2n": np.linalg.norm(residuals, axis=1),
        "margin": top[:, 1] - top[:, 0],
        "entropy": -(chances * logs).sum(axis=1),
        "least-confidence": 1.0 - top[:, 1],
    }


def class_distances(features: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The distance of each row to the mean of its class."""
    found = np.empty(len(features))
    for label in np.unique(labels):
        own = features[labels == label].astype(np.float64)
        found[labels == label] = np.linalg.norm(own - own.mean(axis=0), axis=1)
    return {"distance": found}
