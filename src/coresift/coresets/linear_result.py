"""A linear model as a value: fitted to a few rows of data of any size, its predictions, and its JSON file."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from .._errors import InvalidInputError
from .._progress import OnPass
from .._threads import one_thread
from .._validation import check_choice, check_finite, check_number, naming
from ..core.duality import ModelCertificate, percent
from ..rows.columns import column_names, pa
from ..rows.engines import OnRows, open_engine
from ..rows.opening import open_rows
from ..rows.preparation import Preparation
from ..rows.rows import BadRow, Block, Rows, check_block
from ..rows.tables import csv, parquet
from .coreset import Coreset, Value
from .files import as_plain, check_types, from_plain, run_record, stamped, verified, write_whole
from .fit_options import FitOptions, plan_fit
from .fitting import Runner
from .linear_coreset import LinearCoreset
from .linear_rows import loss_named
from .options import CLASSIFIERS, LINEAR_LOSSES, Plan

_VERSION = 1
_POOR = 0.01  # relative excess above which advice is due
_ROWS_PER_COEFFICIENT = 50  # from which on calibration gains reliably


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(Value):
    """A linear model, with coefficients in the units of the data; :func:`coresift.fit_model` makes one.

    Parameters
    ----------
    coef, intercept : (1, d) and (1,) arrays, or (K, d) and (K,) for K > 2 classes
        Positive scores ``coef . x + intercept`` mean the second of two classes.
    loss, alpha, threshold : str, float, float or None
        As in :class:`LinearCoreset`.
    classes, names : (K,) array or None, list of str or None
        Integers or strings, in ascending order, None for a regression; names of the columns, if they have names.
    size, n_samples, run : int or None, int or None, dict
        Rows that the model was fitted to, of how many; and what repeats the fit, such as the seed.
    objective, certificate : float or None, ModelCertificate or None
        Mean loss over all rows plus penalty, and how far it is above the least possible, at most.

    Examples
    --------
    >>> LinearModel(np.array([[2.0, 0.0]]), np.array([1.0]), "squared", 1e-4).predict([[3.0, 9.0]])
    array([7.])
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    loss: str
    alpha: float
    _: KW_ONLY
    threshold: float | None = None
    classes: np.ndarray | None = None
    names: list[str] | None = None
    size: int | None = None
    n_samples: int | None = None
    objective: float | None = None
    certificate: ModelCertificate | None = None
    run: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.loss, "loss", LINEAR_LOSSES)
        check_number(self.alpha, "alpha", at_least=0.0)
        coef, intercept = (np.array(values, dtype=np.float64) for values in (self.coef, self.intercept))
        classes = None if self.classes is None else np.array(self.classes)
        n_classes = 0 if classes is None else len(classes)
        if (self.loss in CLASSIFIERS) != (n_classes >= 2):
            raise InvalidInputError(f"loss = {self.loss!r} does not go with {n_classes} classes.")
        n_outputs = loss_named(self.loss, n_classes, self.threshold).n_outputs
        if coef.ndim != 2 or len(coef) != n_outputs or intercept.shape != (n_outputs,) or coef.shape[1] == 0:
            shapes = f"coef has shape {coef.shape} and intercept {intercept.shape}"
            raise InvalidInputError(f"{shapes}; {n_outputs} rows of coefficients and as many intercepts are needed.")
        if self.names is not None and len(self.names) != coef.shape[1]:
            raise InvalidInputError(f"{len(self.names)} names, but {coef.shape[1]} coefficients.")
        check_finite(coef, name="coef")
        check_finite(intercept[None], name="intercept")
        self._assign(coef=coef, intercept=intercept, classes=classes)

    def __repr__(self) -> str:
        about = [f"loss={self.loss!r}", f"alpha={self.alpha:g}", f"{self.coef.shape[1]} columns"]
        if self.certificate is not None and np.isfinite(self.certificate.relative):
            about.append(f"at most {percent(self.certificate.relative)} above the best")
        return f"LinearModel({', '.join(about)})"

    @cached_property
    def preparation(self) -> Preparation | None:
        """What turns the columns of a table into those of the model; ``coef`` and ``names`` are of its features."""
        found = self.run.get("preparation")
        return None if found is None else Preparation.from_dict(found)

    def open(self, data: Any, *, label: str | None = None, weight: str | None = None) -> Rows:
        """Open ``data`` with the model's columns, found by name; ``label`` and ``weight`` name further ones."""
        options: dict[str, Any] = {"weight": weight, "target" if self.classes is None else "label": label}
        options["preparation"] = self.preparation
        first = data[0] if isinstance(data, list | tuple) and data else data
        is_path = isinstance(first, str | os.PathLike)
        suffix = Path(first).suffix.lower() if is_path else ""
        if is_path and suffix != ".npy" and self.run.get("embedding") is not None:
            options["embedding"] = self.run["embedding"]
        elif suffix not in (".npy", ".npz") and (is_path or hasattr(data, "files") or column_names(data) is not None):
            options["columns"] = self.names if self.preparation is None else None
        return open_rows(data, **options, image_size=self.run.get("image_size") or 32)

    def _scores(self, rows: Rows) -> Iterator[tuple[Block, np.ndarray]]:
        """Blocks of rows and their scores of shape (b, 1) or (b, K); columns are found by name if they have names."""
        d, places = self.coef.shape[1], None
        if self.names is not None and rows.names is not None and rows.names != self.names:
            if missing := [name for name in self.names if name not in rows.names]:
                raise InvalidInputError(f"{rows.name}: no column {missing[0]!r}, which the model was fitted to.")
            places = [rows.names.index(name) for name in self.names]
        elif rows.d != d:
            raise InvalidInputError(f"{rows.name}: {rows.d} columns, but the model was fitted to {d}.")
        for block in rows.blocks():
            try:
                check_block(block)
            except BadRow as bad:
                raise rows.explain(bad) from None
            X = block.X if places is None else block.X[:, places]
            yield block, X @ self.coef.T + self.intercept

    def _outcomes(self, z: np.ndarray) -> np.ndarray:
        if self.classes is None:
            return np.exp(z[:, 0]) if self.loss == "poisson" else z[:, 0]
        return self.classes[z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(np.int64)]

    def _probabilities(self, z: np.ndarray) -> np.ndarray:
        return softmax(z, axis=1) if z.shape[1] > 1 else expit(np.column_stack([-z, z]))

    def predict(self, X: Any) -> np.ndarray:
        """Predict classes (or the mean of targets) for an array, a frame, a sparse matrix, a path or ``Rows``."""
        return np.concatenate([self._outcomes(z) for _, z in self._scores(self.open(X))])

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, K) probabilities of the classes; a logistic regression only."""
        if self.loss != "logistic":
            raise InvalidInputError(f"loss = {self.loss!r} gives no probabilities; loss='logistic' does.")
        return np.concatenate([self._probabilities(z) for _, z in self._scores(self.open(X))])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as strict JSON can hold it."""
        return {f.name: as_plain(getattr(self, f.name)) for f in fields(self)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON file ``path`` with a checksum, complete or not at all."""
        text = json.dumps(json.loads(stamped("model", _VERSION, self.as_dict(), {})), indent=1)
        write_whole(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file ``path`` that :meth:`save` wrote; refuse any other with a message that names it."""
        with naming(Path(path), "not a model file, or damaged"), Path(path).open("rb") as file:
            if (start := file.read(1)) != b"{":
                raise InvalidInputError("not a model file")
            header = verified((start + file.read()).decode(), "model", _VERSION, {})
            about = from_plain({f.name: header[f.name] for f in fields(cls)})
            check_types(cls, {**about, "certificate": None})
            if about["certificate"] is not None:
                check_types(ModelCertificate, about["certificate"])
                about["certificate"] = ModelCertificate(**about["certificate"])
            return cls(**about)


def predicted(model: LinearModel, rows: Rows, on_rows: OnRows = lambda _: None) -> Iterator[dict[str, np.ndarray]]:
    """Yield row numbers, predictions and, for a logistic regression, probabilities of the classes, block by block."""
    for block, z in model._scores(rows):
        part = {"row": np.arange(block.start, block.start + block.n), "prediction": model._outcomes(z)}
        if model.loss == "logistic" and model.classes is not None:
            columns = zip(model.classes, model._probabilities(z).T, strict=True)
            part |= {f"probability_{name}": values for name, values in columns}
        yield part
        on_rows(block.n)
    rows.check_unchanged()


def write_predictions(parts: Iterator[dict[str, np.ndarray]], file: IO[bytes], suffix: str) -> None:
    """Write to ``.parquet``, ``.csv`` or, without probabilities, ``.npy``."""
    if suffix == ".npy":
        np.lib.format.write_array(file, np.concatenate([part["prediction"] for part in parts]), allow_pickle=False)
        return
    first = pa.table(next(parts))
    with (csv.CSVWriter if suffix == ".csv" else parquet.ParquetWriter)(file, first.schema) as writer:
        writer.write_table(first)
        for part in parts:
            writer.write_table(pa.table(part))


@dataclass(frozen=True)
class LinearFit:
    """A linear model, and the rows that it was fitted to."""

    coreset: Coreset
    model: LinearModel
    n_rounds: int
    """Rounds of calibration that were kept."""
    seconds: dict[str, float]

    def lines(self) -> list[str]:
        model, core = self.model, self.coreset
        rounds = f"calibrated in {self.n_rounds} round{'s' if self.n_rounds > 1 else ''}"
        how = rounds if self.n_rounds else "as drawn"
        text = [f"Fitted: {model.loss} loss, {core.size:,} of {core.n_samples:,} rows, weights {how}."]
        if model.objective is not None:
            text.append(f"Loss over all rows, with penalty: {model.objective:.6g}.")
        if model.certificate is not None:
            text.append(f"Guaranteed: {model.certificate}")
            if model.certificate.relative > _POOR and core.size < (few := _ROWS_PER_COEFFICIENT * model.coef.size):
                text.append(f"More rows give a closer fit: {few:,} are {_ROWS_PER_COEFFICIENT} for each coefficient.")
        return text

    def times(self) -> list[str]:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return [f"{sum(self.seconds.values()):.1f} s in passes: {parts}."]

    def as_dict(self) -> dict[str, Any]:
        return {**self.model.as_dict(), "n_rounds": self.n_rounds, "seconds": self.seconds}


def open_labelled(data: Any, options: FitOptions, label: str | None, **names: Any) -> Rows:
    """Open data for a model: ``label`` names the classes, or the targets of a regression."""
    what = "label" if options.model in CLASSIFIERS else "target"
    return open_rows(data, **{what: label, **names}, engine=options.engine, workers=options.workers)


def fit_model(
    data: Any,
    budget: str | int | float = "10%",
    *,
    label: str,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = 32,
    preparation: Preparation | str | None = "auto",
    on_pass: OnPass | None = None,
    **options: Any,
) -> LinearModel:
    """Return a linear model fitted to a few well-chosen rows of files or a frame, with a bound on its excess loss.

    For arrays see :class:`LinearCoreset` and :class:`CoresetClassifier`.

    Parameters
    ----------
    data, columns, embedding, weight, filesystem, image_size
        What to read; see :func:`open_rows`.
    budget, preparation, on_pass
        As in :func:`select`. The model keeps the preparation, and applies it to what it predicts.
    label : str
        The column of the classes or, for "squared", "poisson" and "huber", of the targets.
    **options
        ``model``, ``alpha``, ``threshold`` and ``fit_intercept``, as in :class:`LinearCoreset` (where the model is
        called loss); ``calibrate`` and ``certify`` (True); ``seed`` (0), ``workers``, ``engine`` and ``max_memory``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from coresift import fit_model
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=["a", "b", "c"])
    >>> table["y"] = np.where(rng.random(20_000) < 1 / (1 + np.exp(2 - table["a"])), "yes", "no")
    >>> model = fit_model(table, 500, label="y")
    >>> model.certificate.relative < 1e-3
    True
    >>> model.predict(table[:2])
    array(['no', 'no'], dtype='<U3')
    """
    asked = FitOptions(budget=budget, **options)
    names = {"columns": columns, "embedding": embedding, "weight": weight, "filesystem": filesystem}
    names |= {"image_size": image_size, "preparation": preparation, "on_pass": on_pass}
    rows = open_labelled(data, asked, label, **names)
    return run_fit(plan_fit(rows, asked), on_pass=on_pass).model


def run_fit(made: Plan[FitOptions], *, on_pass: OnPass | None = None) -> LinearFit:
    """Do what was planned: choose rows, fit and certify."""
    rows, options = made.rows, made.options
    chooser = LinearCoreset(
        options.model, alpha=options.alpha, fit_intercept=options.fit_intercept, threshold=options.threshold
    )
    with open_engine(options.engine, rows, options.workers) as engine, one_thread():
        runner = Runner(rows, engine, on_pass)
        chooser.fit_rows(runner=runner)
        core = chooser.sample(
            int(made.budget or 0), calibrate=options.calibrate, tolerance=options.tolerance, random_state=options.seed
        )
        certificate = chooser.certified(tolerance=options.tolerance) if options.certify else None
    model = LinearModel(
        *chooser.model_,
        options.model,
        options.alpha,
        threshold=options.threshold,
        classes=getattr(chooser, "classes_", None),
        names=rows.names,
        size=core.size,
        n_samples=rows.n,
        objective=chooser.objective_ if certificate is None else certificate.objective,
        certificate=certificate,
        run=run_record(made),
    )
    return LinearFit(core, model, chooser.n_rounds_, dict(runner.seconds))
