"""What a strategy may ask for when it selects: computed when asked, kept, and accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from .._containers import as_numpy, n_rows
from .._errors import InvalidInputError
from .._validation import check_choice, check_count
from .gradients import Gradients, Validation
from .inputs import Indices, batch_of, class_positions, flattened, has_fractions, principal
from .losses import Kind, kind_of, with_class_numbers
from .torch_tensors import as_tensor, load_torch

if TYPE_CHECKING:
    import torch

_EMBEDDINGS = ("raw", "pca")
SEEN = "norms that training saw"


@dataclass
class Cost:
    """How often something was computed, over how many samples, and for how long."""

    calls: int = 0
    samples: int = 0
    seconds: float = 0.0


class SelectionContext:
    """The data, the model and the moment of a selection.

    Nothing is computed before a strategy asks for it, and nothing twice. What depends on the data alone (features,
    fitted sensitivities) is kept for the whole run; what depends on the model is kept until :meth:`at` makes the
    context of the next moment. NumPy arrays come out, whatever went in.

    Parameters
    ----------
    X : array, tensor, sparse matrix, frame, or map-style data set
        The training samples. Items of a data set may be ``x`` or ``(x, y)``.
    y : array or tensor of n, optional
        Labels (integers from 0 on, where a model is used) or regression targets.
    model : torch.nn.Module, optional
        Any. It is run in evaluation mode and left as it was: modes, batch-norm statistics, random state,
        ``requires_grad`` and gradients.
    loss : str or callable, default "cross_entropy"
        "cross_entropy", "mse", "l1", "huber", "bce" (with logits), a loss module, or a function of outputs and targets
        to one loss per sample.
    layer : str, optional
        Name of the linear layer whose gradients are used; by default the one that runs last.
    X_val, y_val : optional
        The validation split, for strategies that look at it.
    epoch : int, default 0
    n_epochs : int, optional
        Length of the run that was asked for; a warm start needs it.
    seed : int, default 0
        Of what is drawn once for the whole run: a fixed subset, the cells of a bound. Never of a redraw.
    batch_size : int, default 512
        Of the forward passes.
    transform : callable, optional
        Applied to each batch of inputs before the model.
    gradients, validation : Gradients (or a flat (n, p) array), Validation, optional
        Given instead of a model: from another framework, say.

    Attributes
    ----------
    costs : dict of str to Cost
        What was computed so far in this run, and how long it took.
    rows : array of int
        Where the samples of this context stand in the data that the run began with.
    sizes : array of float
        How many samples each item stands for: ones, unless the items are mini-batches.
    class_output : int or None
        In the part of one class: the output of the model that belongs to it.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift.selection import RBF, SelectionContext
    >>> context = SelectionContext(np.random.default_rng(0).normal(size=(200, 3)))
    >>> RBF().select(context, 0.1, np.random.default_rng(1)).size
    20
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        model: torch.nn.Module | None = None,
        loss: Any = "cross_entropy",
        layer: str | None = None,
        X_val: Any = None,
        y_val: Any = None,
        epoch: int = 0,
        n_epochs: int | None = None,
        seed: int = 0,
        batch_size: int = 512,
        transform: Callable[[Any], Any] | None = None,
        gradients: Any = None,
        validation: Validation | None = None,
    ) -> None:
        self._X, self._y, self._X_val, self._y_val = X, y, X_val, y_val
        n_samples = n_rows(X)
        if y is not None and n_rows(y) != n_samples:
            raise InvalidInputError(
                f"y has {n_rows(y)} entries, but X has {n_samples} rows; they must be equal."
            )
        if isinstance(gradients, np.ndarray):
            gradients = Gradients(gradients)
        if gradients is not None and len(gradients) != n_samples:
            raise InvalidInputError(
                f"gradients has {len(gradients)} rows, but X has {n_samples}; they must be equal."
            )
        if gradients is not None and not gradients.is_finite():
            raise InvalidInputError("gradients contain NaN or infinity; they must be finite.")
        self.rows: Indices = np.arange(n_samples)
        self._is_whole = True
        self.sizes: NDArray[np.float64] = np.ones(n_samples)
        self.model = model
        self.loss = loss
        self.layer = layer
        self.epoch = check_count(epoch, "epoch", 0)
        self.n_epochs = n_epochs if n_epochs is None else check_count(n_epochs, "n_epochs")
        self.select_every: int | None = None  # epochs between two selections, where a training loop tells it
        self.class_output: int | None = None
        self.costs: dict[str, Cost] = {}
        self._seed = check_count(seed, "seed", 0)
        self._path: tuple[int, ...] = ()  # numbers of the classes on the way to this part
        self._batch_size = check_count(batch_size, "batch_size")
        self._transform = transform
        self._given = (gradients, validation)
        self._kept: dict[Any, Any] = {}  # of the data: lives as long as the run
        self._root_kept = self._kept
        self._now: dict[Any, Any] = {}  # of the model at this moment

    def __repr__(self) -> str:
        return f"SelectionContext({self.n_samples:,} samples, epoch={self.epoch})"

    @property
    def n_samples(self) -> int:
        """How many items there are to select from."""
        return len(self.rows)

    def at(self, epoch: int, model: torch.nn.Module | None = None) -> Self:
        """The context of a later moment: the same data and accounts, nothing known of the model."""
        later = self._copy()
        later.epoch = check_count(epoch, "epoch", 0)
        later.model = self.model if model is None else model
        later._now = {}
        return later

    def fixed_rng(self, tag: int, seed: int | None = None) -> np.random.Generator:
        """A generator that is the same whenever it is asked for in a run: of draws that are made once and kept."""
        # NumPy takes (s, t) and (s, t, 0) for the same seed: parts count from 1
        path = (place + 1 for place in self._path)
        return np.random.default_rng((self._seed if seed is None else seed, tag, *path))

    def kept(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Compute something that depends on the data alone, once in a run. A key may be the strategy itself."""
        return _once(self._kept, key, compute)

    @property
    def labels(self) -> NDArray[Any]:
        """The labels or targets, (n, ...)."""
        if self._y is None:
            raise InvalidInputError("this strategy needs labels: give the context y.")
        whole = _once(self._root_kept, "labels", lambda: as_numpy(self._y))
        return whole if self._is_whole else whole[self.rows]

    @property
    def has_classes(self) -> bool:
        """Whether the labels are classes and no targets of a regression, as far as they and the loss tell."""
        return kind_of(self.loss) is not Kind.NUMBERS and not has_fractions(self.labels)

    def record(self, rows: Indices, norms: NDArray[np.floating[Any]]) -> None:
        """Note how long the gradients of some samples were when training last met them.

        ``rows`` count from 0 in the data that the run began with. :func:`coresift.training.train` calls it where a
        strategy asks for it (``reuses_norms``); in a loop of your own any numbers will do that are proportional to
        the norms, such as those of ``softmax - onehot``.
        """
        n = n_rows(self._X)
        rows, norms = as_numpy(rows), as_numpy(norms)
        if rows.shape != norms.shape or rows.ndim != 1:
            raise InvalidInputError(
                f"rows of shape {rows.shape} and norms of shape {norms.shape}: one norm for each row is needed."
            )
        if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= n):
            raise InvalidInputError(f"rows must be integers from 0 to {n - 1}.")
        if norms.dtype.kind not in "iuf" or (norms < 0).any():
            raise InvalidInputError("norms must be numbers of at least 0, or NaN where they are not known.")
        table = _once(self._root_kept, SEEN, lambda: np.full(n, np.nan, dtype=np.float32))
        known = np.isfinite(norms)
        table[rows[known]] = norms[known]

    def seen(self) -> NDArray[np.float32] | None:
        """The norms that were noted last, NaN for samples that training has not met; None if it told nothing."""
        table = self._root_kept.get(SEEN)
        return None if table is None else table[self.rows]

    def classes(self) -> dict[Any, Indices]:
        """The positions of each class, in the order of the labels."""
        return self.kept("classes", lambda: class_positions(self.labels))

    def parts(self) -> Iterator[tuple[Indices, Self]]:
        """Positions and context of each class. What is kept for a class stays kept from one selection to the next."""
        for number, (label, positions) in enumerate(self.classes().items()):
            part = self._copy()
            part.rows = self.rows[positions]
            part.sizes = self.sizes[positions]
            part._is_whole = False
            part._kept = self.kept(("part", number), dict)
            part._path = (*self._path, number)
            part.class_output = label if isinstance(label, int) and label >= 0 else None
            part._now = {}
            if "gradients" in self._now:
                part._now["gradients"] = self._now["gradients"].take(positions)
            if "validation" in self._now:
                part._now["validation"] = self._now["validation"]
            yield positions, part

    def batches(self, groups: Sequence[Indices]) -> BatchContext:
        """The context whose items are groups of samples."""
        return BatchContext(self, groups)

    def features(self, embedding: Any = "raw", n_components: int = 50) -> Any:
        """A matrix of the inputs: (n, d), dense or sparse.

        Parameters
        ----------
        embedding : "raw", "pca", array of n rows, or callable
            The inputs flattened; their first principal components; anything given; a function of the inputs.
            Computed once for the whole data, also when the context is a part of them.
        n_components : int
            Of "pca".
        """
        if not callable(embedding) and isinstance(embedding, str):
            check_choice(embedding, "features", _EMBEDDINGS)
        key = (
            ("features", embedding, n_components if embedding == "pca" else 0)
            if isinstance(embedding, str)
            else ("features", id(embedding))
        )
        whole, _ = _once(
            self._root_kept, key, lambda: (self._embedded(embedding, n_components), embedding)
        )  # with the embedding beside it, its id is not given to another
        return whole if self._is_whole else whole[self.rows]

    def gradients(self, *, bias_only: bool = False, output: int | None = None) -> Gradients:
        """Last-layer gradients of the samples at the current model; of the bias only, or of one output, if so asked."""
        given, _ = self._given

        def compute() -> Gradients:
            if given is not None:
                return given if self._is_whole else given.take(self.rows)
            with self.accounted("gradients", self.n_samples):
                return self._pass(self._X, self._y, self.rows).gradients

        found: Gradients = _once(self._now, "gradients", compute)
        if output is not None and found.inputs is not None and output < found.shape[0]:
            found = found.of_output(output)
        return found.of_bias() if bias_only else found

    def validation(self) -> Validation:
        """The validation loss as a function of the last layer of the current model."""
        if self._given[1] is not None:
            return self._given[1]
        if self._X_val is None:
            raise InvalidInputError(
                "this strategy needs a validation split: give the context X_val and y_val, usually 10 % set aside from "
                "the training data."
            )

        def compute() -> Validation:
            from .hooks import validation_of

            n = n_rows(self._X_val)
            with self.accounted("validation gradients", n):
                return validation_of(self._pass(self._X_val, self._y_val, np.arange(n)), self.loss)

        return _once(self._now, "validation", compute)

    @contextmanager
    def accounted(self, name: str, samples: int) -> Iterator[None]:
        """Add what happens inside to the accounts."""
        start = time.perf_counter()
        try:
            yield
        finally:
            cost = self.costs.setdefault(name, Cost())
            cost.calls += 1
            cost.samples += samples
            cost.seconds += time.perf_counter() - start

    def _copy(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def _embedded(self, embedding: Any, n_components: int) -> Any:
        n_samples = n_rows(self._X)
        with self.accounted("features", n_samples):
            if isinstance(embedding, str):
                found = flattened(self._X)
                if embedding == "pca":
                    found = principal(found, n_components)
            else:
                found = embedding(self._X) if callable(embedding) else embedding
                found = flattened(found)
        if found.shape[0] != n_samples:
            raise InvalidInputError(
                f"features has {found.shape[0]} rows, but X has {n_samples}; they must be equal."
            )
        return found

    def _pass(self, X: Any, y: Any, rows: Indices) -> Any:
        from .hooks import device_of, layer_pass

        torch = load_torch()
        model = self.model
        if model is None:
            raise InvalidInputError("this strategy needs gradients: give the context a model (or gradients).")
        first = next(model.parameters(), None)
        device, kind = device_of(model), torch.get_default_dtype() if first is None else first.dtype

        def batches() -> Iterator[tuple[Any, Any]]:
            for start in range(0, len(rows), self._batch_size):
                chosen = rows[start : start + self._batch_size]
                x, target = batch_of(X, y, chosen)
                x = as_tensor(x, "X")
                x = x.to(device, kind) if x.is_floating_point() else x.to(device)
                if self._transform is not None:
                    x = self._transform(x)
                target = with_class_numbers(as_tensor(target, "y"), self.loss)
                yield x, target.to(device, kind) if target.is_floating_point() else target.to(device)

        return layer_pass(model, batches, self.loss, self.layer)


class BatchContext(SelectionContext):
    """Groups of samples as items: gradients and features are means, ``sizes`` counts members, labels there are none."""

    def __init__(self, samples: SelectionContext, groups: Sequence[Indices]) -> None:
        vars(self).update(vars(samples))
        self._samples, self._groups = samples, groups
        self.rows = np.arange(len(groups))
        self.sizes = np.array([samples.sizes[group].sum() for group in groups])
        self._kept, self._now = {}, {}

    @property
    def labels(self) -> NDArray[Any]:
        """Mini-batches have none."""
        raise InvalidInputError(
            "a mini-batch has no class: write PerClass(PerBatch(...)), not PerBatch(PerClass(...))."
        )

    def features(self, embedding: Any = "raw", n_components: int = 50) -> Any:
        """Means of the members' features."""
        whole = self._samples.features(embedding, n_components)
        return np.stack([np.asarray(whole[group].mean(axis=0)).ravel() for group in self._groups])

    def gradients(self, *, bias_only: bool = False, output: int | None = None) -> Gradients:
        """Means of the members' gradients."""
        return _once(
            self._now,
            ("gradients", bias_only, output),
            lambda: self._samples.gradients(bias_only=bias_only, output=output).means(self._groups),
        )

    def seen(self) -> NDArray[np.float32] | None:
        """Means over the members that were met."""
        norms = self._samples.seen()
        if norms is None:
            return None
        met = (group[np.isfinite(norms[group])] for group in self._groups)
        return np.array([norms[group].mean() if len(group) else np.nan for group in met], dtype=np.float32)

    def validation(self) -> Validation:
        """That of the samples."""
        return self._samples.validation()


def _once(kept: dict[Any, Any], key: Any, compute: Callable[[], Any]) -> Any:
    if key not in kept:
        kept[key] = compute()
    return kept[key]
