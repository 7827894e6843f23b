"""What a strategy may ask for when it selects: computed on demand, cached, and accounted for."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import as_numpy, check_choice, check_count, check_features, check_finite, check_length
from ..coresets.covering import in_units, principal
from ..rows.columns import n_rows
from .gradients import Gradients, LayerPass, Validation, as_accepted, device_of, layer_pass, validation_of
from .inputs import Indices, as_tensor, batches_of, class_positions, flattened, is_dataset, torch, unwrapped
from .losses import Kind, kind_of, with_class_numbers
from .seen import Seen

_EMBEDDINGS, _N_COMPONENTS = ("raw", "pca"), 50  # for twice as many columns: the copy is at most half of the data
_CPU_BATCH = 256  # larger batches leave the cache: LeNet-5 takes a third more time per sample at 1,024


@dataclass
class Cost:
    """How often (``calls``) something was computed, on how many ``samples``, and how many ``seconds`` it took.

    >>> Cost(calls=2, samples=1000, seconds=0.5).samples
    1000
    """

    calls: int = 0
    samples: int = 0
    seconds: float = 0.0


class SelectionContext:
    """The data, the model and the moment of a selection.

    What a strategy asks for is computed once, as NumPy arrays. What depends on the data alone is kept for the run; what
    depends on the model, until :meth:`at` makes the next moment's context.

    Parameters
    ----------
    X, X_val : array, tensor, sparse matrix, frame, map-style data set, or a ``DataLoader`` over one
        The training samples, and the validation split for strategies that need it. Items of a data set are ``x``,
        ``(x, y)``, or mappings with "labels". Integers that the model does not accept are converted as in ``train``.
    y, y_val : array or tensor, optional
        Labels (integers from 0, if a model is used), (n,) or (n, 1), or regression targets.
    model, layer : torch.nn.Module, str, optional
        Runs in evaluation mode, and is left unchanged; the linear layer whose gradients are used, by default the last.
    loss : str or callable, default "cross_entropy"
        "cross_entropy", "mse", "l1", "huber", "bce" (with logits), a loss module, or a function of outputs and targets
        that returns one loss per sample.
    epoch, n_epochs, seed : int
        The moment, the length of the run if it is known, and a seed for what is drawn once in a run.
    batch_size, transform, forward, workers : optional
        For the forward passes. ``transform`` is applied to each batch of inputs; ``forward`` maps a batch, as the data
        set makes it, to outputs; ``workers`` processes read a data set, by default as many as in the ``DataLoader``.
    gradients, validation : Gradients (or a flat (n, p) array), Validation, optional
        Given instead of a model, for example from another framework.

    Attributes
    ----------
    costs : dict of str to Cost
        What was computed so far in this run.
    rows, sizes : arrays of int and of float
        Positions of the samples in the data of the run; samples per item: 1, unless items are mini-batches.
    numbers, n_given : array of int, int
        For each row of the run its number in the data that ``train`` got, before some were held out; their number.
    select_every, class_output : int or None
        Epochs between two selections, set by a training loop; in the context of one class, its model output.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift.selection import RBF, SelectionContext
    >>> context = SelectionContext(np.random.default_rng(0).normal(size=(200, 3)))
    >>> RBF().select(context, 0.1, np.random.default_rng(1)).size
    20
    """

    is_batched = False  # whether the items are mini-batches

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
        forward: Callable[[Any], Any] | None = None,
        workers: int | None = None,
        gradients: Any = None,
        validation: Validation | None = None,
    ) -> None:
        (X, reader), (X_val, reader_val) = unwrapped(X), unwrapped(X_val)
        n_samples = n_rows(X)
        if not n_samples or (X_val is not None and not n_rows(X_val)):
            raise InvalidInputError(f"{'X_val' if n_samples else 'X'} has no rows; at least 1 is needed.")
        if gradients is not None and not isinstance(gradients, Gradients):
            gradients = Gradients(as_numpy(gradients))
        if y is not None:
            check_length(n_rows(y), n_samples, "y")
        if X_val is not None and y_val is not None:
            check_length(n_rows(y_val), n_rows(X_val), "y_val", "X_val")
        if gradients is not None:
            check_length(len(gradients), n_samples, "gradients")
            if not gradients.is_finite():
                raise InvalidInputError("gradients contain NaN or infinity; they must be finite.")
        self._X, self._y = X, y
        self.rows: Indices = np.arange(n_samples)
        self.numbers, self.n_given = self.rows, n_samples
        self.sizes: NDArray[np.float64] = np.ones(n_samples)
        self.model, self.loss, self.layer = model, loss, layer
        self.epoch, self.first_epoch = check_count(epoch, "epoch", 0), 0  # the first on a subset, after a warm start
        self.n_epochs = n_epochs if n_epochs is None else check_count(n_epochs, "n_epochs")
        self.select_every: int | None = None
        self.class_output: int | None = None
        self.costs: dict[str, Cost] = {}
        self._seed = check_count(seed, "seed", 0)
        # numbers from 1 of the classes that lead to this part: NumPy treats (s, t) and (s, t, 0) as the same seed
        self._path: tuple[int, ...] = ()
        self._is_whole = True  # no part, such as the context of one class
        self._batch_size = check_count(batch_size, "batch_size")
        self._transform, self.forward = transform, forward
        self._collate = reader.get("collate")
        self._held_out = {"_X": X_val, "_y": y_val, "_collate": reader_val.get("collate", self._collate)}
        self._workers = reader.get("workers", 0) if workers is None else check_count(workers, "workers", 0)
        self._given = (gradients, validation)
        self._kept: dict[Any, Any] = {}  # depends on the data of this part; lives as long as the run
        self.shared: dict[Any, Any] = self._kept  # the same for the whole data, common to all parts
        self._now: dict[Any, Any] = {}  # depends on the model of this moment
        self.records = Seen(n_samples)  # of the data of the run, common to all parts

    def __repr__(self) -> str:
        return f"SelectionContext({self.n_samples:,} samples, epoch={self.epoch})"

    @property
    def n_samples(self) -> int:
        """Number of items to select from."""
        return len(self.rows)

    def at(self, epoch: int, model: torch.nn.Module | None = None) -> Self:
        """The context of a later ``epoch`` and ``model``: the same data and costs, but nothing known of the model."""
        model = self.model if model is None else model
        return self.derived(epoch=check_count(epoch, "epoch", 0), model=model, _now={})

    def derived(self, **changes: Any) -> Self:
        """A copy with ``changes`` of its attributes. It shares what is kept and the costs."""
        twin = copy.copy(self)
        vars(twin).update(changes)
        return twin

    def fixed_rng(self, tag: int) -> np.random.Generator:
        """A generator that is the same for a ``tag`` throughout a run, for draws that are made once and kept."""
        return np.random.default_rng((self._seed, tag, *self._path))

    def kept(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, which depends on the data alone, called once in a run for each ``key``."""
        return _once(self._kept, key, compute)

    def now(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, which depends on the model, called once at this moment for each ``key``."""
        return _once(self._now, key, compute)

    @property
    def has_arrays(self) -> bool:
        """Whether the samples are in an array, rather than items of a data set that would have to be read."""
        return not is_dataset(self._X)

    @property
    def has_labels(self) -> bool:
        """Whether y was given, for items that have labels."""
        return self._y is not None

    @property
    def labels(self) -> NDArray[Any]:
        """The labels or targets, (n, ...); (n,) if there is one column."""
        if self._y is None:
            raise InvalidInputError("this strategy needs labels: pass y= (labels= of train).")
        found = _once(self.shared, "labels", lambda: as_numpy(self._y))
        return self._own(found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found)

    @property
    def has_classes(self) -> bool:
        """Whether the labels are classes rather than regression targets, as far as they and the loss tell."""
        y = self.labels
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise InvalidInputError(f"y contains NaN or infinity in {np.sum(~np.isfinite(y))} labels: leave them out.")
        has_fractions = y.ndim == 1 and y.dtype.kind == "f" and bool(np.any(y % 1 != 0))
        return kind_of(self.loss) is not Kind.NUMBERS and not has_fractions

    def record(self, rows: Any, norms: Any = None, **columns: Any) -> None:
        """Record what training saw of the samples at ``rows`` of the run's data: ``norms``, and ``columns`` of `Seen`.

        Any numbers proportional to the gradient norms will do, such as the norms of ``softmax - onehot``.
        """
        self.records.record(rows, norms=norms, **columns)

    def seen(self, name: str = "norms") -> NDArray[Any] | None:
        """What was recorded last under ``name``, NaN for samples not met yet; None if nothing was recorded."""
        table = self.records.tables.get(name)
        return None if table is None or np.isnan(table).all() else table[self.rows]

    def restore(self, seed: int, tables: Mapping[str, NDArray[Any]]) -> None:
        """Go back to the ``seed`` and the records (``tables``) of a checkpoint."""
        self._seed = seed
        self.records.restore(tables)

    def classes(self) -> dict[Any, Indices]:
        """The positions of each class, in the order of the labels."""
        return self.kept("classes", lambda: class_positions(self.labels))

    def parts(self) -> Iterator[tuple[Indices, Self]]:
        """Positions and context of each class. What is kept for a class lasts from one selection to the next."""
        for number, (label, positions) in enumerate(self.classes().items()):
            now = dict(self._now)
            if "gradients" in now:
                now["gradients"] = now["gradients"].take(positions)
            part = self._part(positions, _kept=self.kept(("part", number), dict), _now=now)
            part._path = (*self._path, number + 1)
            part.class_output = int(label) if isinstance(label, int | float) and label >= 0 and label % 1 == 0 else None
            yield positions, part

    def features(self, embedding: Any = "raw") -> Any:
        """A matrix of the inputs, (n, d), dense or sparse; computed once for the whole data, even in a part of it.

        ``embedding`` is "raw", "pca" (50 principal components of more than 100 columns), n rows, or a function of X.
        """
        key: tuple[Any, ...] = ("features", id(embedding))
        if isinstance(embedding, str):
            check_choice(embedding, "features", _EMBEDDINGS)
            key = ("features", embedding)
        # the embedding is stored too, so that its id is not reused
        found, _ = _once(self.shared, key, lambda: (self._embedded(embedding), embedding))
        return self._own(found)

    @property
    def has_gradients(self) -> bool:
        """Whether there is a model, or gradients were given."""
        return self.model is not None or self._given[0] is not None

    @property
    def needed_model(self) -> torch.nn.Module:
        """The model; an error if there is none."""
        if self.model is None:
            raise InvalidInputError("the strategy needs a model: pass model= (or gradients=, if it uses nothing else).")
        if isinstance(self.model, str | type):
            raise InvalidTypeError(f"model = {self.model!r} must be a torch.nn.Module; build_model makes one by name.")
        return self.model

    def gradients(self, *, output: int | None = None) -> Gradients:
        """Last-layer gradients of the samples at the current model, or only those of one ``output``."""

        def compute() -> Gradients:
            if self._given[0] is not None:
                return self._given[0] if self._is_whole else self._given[0].take(self.rows)
            with self.accounted("gradients", self.n_samples):
                found = self.layer_pass()
                self._now["is hidden"] = not found.is_output
                return found.gradients

        found: Gradients = self.now("gradients", compute)
        if output is None or found.inputs is None or output >= found.shape[0] or self._now.get("is hidden"):
            return found
        return found.of_output(output)

    def gradients_of(self, positions: Indices) -> Gradients:
        """Gradients of the items at ``positions`` only, sliced from the cache if present."""
        if "gradients" in self._now:
            return self.gradients().take(positions)
        return self._pool(positions).gradients()

    def _pool(self, positions: Indices) -> Self:
        on_cpu = self.model is not None and all(each.device.type == "cpu" for each in self.model.parameters())
        size = min(self._batch_size, _CPU_BATCH) if on_cpu else self._batch_size
        return self._part(positions, _now={}, _batch_size=size)

    def validation(self) -> Validation:
        """The validation loss as a function of the last layer of the current model."""
        if self._given[1] is not None:
            return self._given[1]
        if (X := self._held_out["_X"]) is None:
            raise InvalidInputError("this strategy needs a validation split: give the context X_val and y_val.")

        def compute() -> Validation:
            n = n_rows(X)
            with self.accounted("validation gradients", n):
                held_out = self.derived(rows=np.arange(n), **self._held_out)
                return validation_of(held_out.layer_pass(), self.loss)

        return self.now("validation", compute)

    @contextmanager
    def accounted(self, name: str, samples: int) -> Iterator[None]:
        """Add the time spent inside, and the number of ``samples``, to the costs under ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            cost = self.costs.setdefault(name, Cost())
            cost.calls += 1
            cost.samples += samples
            cost.seconds += time.perf_counter() - start

    def _part(self, positions: Indices, **changes: Any) -> Self:
        return self.derived(rows=self.rows[positions], sizes=self.sizes[positions], _is_whole=False, **changes)

    def _own(self, whole: Any) -> Any:
        return whole if self._is_whole else whole[self.rows]

    def _embedded(self, embedding: Any) -> Any:
        with self.accounted("features", n_rows(self._X)):
            if isinstance(embedding, str):
                found = flattened(self._X, self._workers)
                if embedding == "pca" and found.shape[1] > 2 * _N_COMPONENTS:
                    X, unit = in_units(check_features(found))
                    found = unit * principal(X, _N_COMPONENTS)
            else:
                found = flattened(embedding(self._X) if callable(embedding) else embedding)
        if getattr(found, "dtype", np.dtype(object)).kind == "f":  # here, where rows have the caller's numbers
            check_finite(found, name="X" if isinstance(embedding, str) else "features")
        return self.aligned(found, "features")

    def aligned(self, values: Any, name: str) -> Any:
        """Return ``values``, called ``name`` in errors, without the rows that ``train`` held out if they have these."""
        n = n_rows(self._X)
        found = values[self.numbers] if values.shape[0] == self.n_given != n else values
        check_length(found.shape[0], n, name)
        return found

    def whole(self) -> Self:
        """The context of all data of the run; itself, unless it is that of a class."""
        if self._is_whole:
            return self
        rows = np.arange(n_rows(self._X))
        own = {"_kept": self.shared, "_now": {}, "_path": (), "_is_whole": True, "class_output": None}
        return self.derived(rows=rows, sizes=np.ones(len(rows)), **own)

    def layer_pass(self) -> LayerPass:
        """A pass of the model over the samples."""
        read = partial(self.batches, self.rows, self._batch_size)
        return layer_pass(self.needed_model, read, self.loss, self.layer, self.forward)

    def batches(self, rows: Indices, size: int) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of ``rows`` of the data, in batches of ``size``, on the device of the model."""
        model = self.needed_model
        device = device_of(model)
        kind = next((each.dtype for each in model.parameters()), torch.get_default_dtype())

        def placed(x: Any) -> Any:
            if isinstance(x, Mapping):
                return {key: placed(value) for key, value in x.items()}
            if isinstance(x, tuple | list) and self.forward is not None:  # a batch of any kind
                return type(x)(map(placed, x))
            tensor = as_tensor(x, "X")
            return tensor.to(device, kind) if tensor.is_floating_point() else tensor.to(device)

        how = {"collate": self._collate, "whole": self.forward is not None, "num_workers": self._workers}
        for x, target in batches_of(self._X, self._y, rows, size, **how):
            x = placed(x) if self._transform is None else self._transform(placed(x))
            if self._transform is None and self.forward is None:
                x = placed(as_accepted(x, model, _once(self.shared, "integers", dict)))
            yield x, placed(with_class_numbers(as_tensor(target, "y"), self.loss))


def _once(kept: dict[Any, Any], key: Any, compute: Callable[[], Any]) -> Any:
    if key not in kept:
        kept[key] = compute()
    return kept[key]
