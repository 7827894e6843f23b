"""Rows with a response: what a linear model is fitted to, from arrays, frames or files, and passes over them."""

from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from .._errors import InvalidInputError
from .._validation import LARGEST_MAGNITUDE, LARGEST_TARGET, as_numpy, bad_value, check_positive
from ..core.linear import LinearProblem, LossSums, weighted_gram
from ..core.linear_losses import Huber, LinearLoss, Logistic, Multinomial, Poisson, Squared, SquaredHinge
from ..core.points import float_rows
from ..rows.rows import BadRow, Block, Rows, check_block, recode
from .bounds import label_numbers
from .fitting import Runner, given_rows

S = TypeVar("S", bound=LossSums)
MOST_CLASSES = 1000
LARGEST_ALPHA = 1e100
_FOR_NUMBERS = "For numbers use a loss for targets, such as 'squared'."
_LARGEST_COLUMN = 1e140  # products of two columns and a weight must have finite sums


def loss_named(name: str, n_classes: int = 0, threshold: float | None = None) -> LinearLoss:
    """The loss called ``name``, for classes or (``n_classes`` 0) targets."""
    if name == "squared_hinge" and n_classes > 2:
        advice = "fit each class against the rest, or take the logistic loss"
        raise InvalidInputError(f"the squared_hinge loss takes two classes, but there are {n_classes}; {advice}.")
    if name == "logistic" and n_classes > 2:
        return Multinomial(n_classes)
    if name == "huber":
        return Huber(check_positive(threshold, "threshold"))
    scalar: tuple[LinearLoss, ...] = (Logistic(), Squared(), SquaredHinge(), Poisson())
    return next(loss for loss in scalar if loss.name == name)


@dataclass(frozen=True)
class Response:
    """What is predicted: classes in ascending order, or targets."""

    classes: np.ndarray | None = None
    numbers: dict[Any, int] | None = None  # of the labels of the rows
    factors: np.ndarray | None = None  # of the weights of the rows of each class
    signed: bool = False  # classes as the targets -1 and 1

    def of(self, block: Block) -> np.ndarray:
        """(b,) numbers of classes, or targets."""
        found = block.targets if self.numbers is None else label_numbers(block, self.numbers)
        assert found is not None
        return found


class ColumnMoments:
    """Weighted mean and variance of each column, the mass of each label, the least target; ``with_gram``, more."""

    def __init__(self, d: int, with_gram: bool = False) -> None:
        self.mass, self.mean, self.scatter = 0.0, np.zeros(d), np.zeros(d)
        self.gram = np.zeros((d, d)) if with_gram else None  # about the means or, for sparse rows, as they are
        self.n_rows = 0  # of positive weight
        self.labels: dict[Any, int] = {}
        self.label_mass, self.label_rows = np.zeros(0), np.zeros(0)
        self.least_target = np.inf
        self.is_sparse = False

    def update(self, block: Block) -> None:
        """Add a block of rows; refuse what is not finite or too large to be squared."""
        check_block(block)
        w, X = block.weights, float_rows(block.X)
        self.is_sparse = not isinstance(X, np.ndarray)
        if block.labels is not None:
            codes = recode(block.labels.names, self.labels)[block.labels.codes]
            self._grow_labels()
            self.label_mass += np.bincount(codes, w, len(self.labels))
            self.label_rows += np.bincount(codes, w > 0, len(self.labels))
        if block.targets is not None:
            self.least_target = min(self.least_target, float(block.targets[w > 0].min(initial=np.inf)))
        check_magnitude(block)
        mass = float(w.sum())
        if mass == 0:
            return
        mean = np.asarray(w @ X, dtype=np.float64) / mass
        centred = X if self.is_sparse else X - mean
        gram = None if self.gram is None else weighted_gram(centred, w)
        if not isinstance(X, np.ndarray):
            scatter = np.maximum(w @ X.multiply(X).tocsr() - mass * mean**2, 0.0)
        else:
            scatter = w @ np.square(centred) if gram is None else gram.diagonal()
        self._add(mass, mean, scatter, gram, int(np.count_nonzero(w)))

    def merge(self, other: Self) -> None:
        to = recode(other.labels, self.labels)
        self._grow_labels()
        self.label_mass[to] += other.label_mass
        self.label_rows[to] += other.label_rows
        self.least_target = min(self.least_target, other.least_target)
        self.is_sparse |= other.is_sparse
        if other.mass > 0:
            self._add(other.mass, other.mean, other.scatter, other.gram, other.n_rows)

    def _grow_labels(self) -> None:
        more = (0, len(self.labels) - len(self.label_mass))
        self.label_mass, self.label_rows = np.pad(self.label_mass, more), np.pad(self.label_rows, more)

    def _add(self, mass: float, mean: np.ndarray, scatter: np.ndarray, gram: np.ndarray | None, n_rows: int) -> None:
        share, way = mass / (self.mass + mass), mean - self.mean
        between = (1.0 - share) * mass * way
        self.scatter += scatter + between * way
        if self.gram is not None and gram is not None:
            self.gram += gram if self.is_sparse else gram + np.outer(between, way)
        self.mean += share * way
        self.mass += mass
        self.n_rows += n_rows


def check_magnitude(block: Block) -> None:
    """Refuse numbers whose products would overflow."""
    X = block.X
    data = X if isinstance(X, np.ndarray) else X.data
    largest = max(float(data.max(initial=0.0)), -float(data.min(initial=0.0)))
    if not largest <= _LARGEST_COLUMN:
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        row, column = np.argwhere(np.abs(dense) > _LARGEST_COLUMN)[0]
        advice = f"; sums of squares take at most {_LARGEST_COLUMN:g}. Scale the column."
        raise BadRow(bad_value(float(dense[row, column])), block.start + int(row), int(column), advice)
    if block.targets is not None and (large := np.flatnonzero(np.abs(block.targets) > LARGEST_TARGET)).size:
        what = f"the target {block.targets[large[0]]:g}"
        raise BadRow(what, block.start + int(large[0]), None, f"; at most {LARGEST_TARGET:g} is possible.")
    largest = max(largest, 1.0, 0.0 if block.targets is None else float(np.abs(block.targets).max(initial=0.0)))
    if (mass := float(block.weights.sum())) > LARGEST_MAGNITUDE / largest / largest:
        text = f"sample_weight sums to {mass:g}, which times the square of the largest entry, {largest:g}, is above"
        raise InvalidInputError(f"{text} {LARGEST_MAGNITUDE:g}. Divide the weights by a constant.")


@dataclass
class LinearRows:
    """Rows that a linear model is fitted to: their passes, response and moments."""

    runner: Runner
    response: Response
    moments: ColumnMoments

    def problem(
        self, loss: LinearLoss, alpha: float, *, fit_intercept: bool = True, intercept_penalty: float = 0.0
    ) -> LinearProblem:
        """The problem of fitting ``loss``, in columns of mean 0 (if they can be shifted) and variance 1."""
        mean, variance = self.moments.mean, self.moments.scatter / self.moments.mass
        is_shifted = fit_intercept and intercept_penalty == 0.0 and not self.moments.is_sparse
        square = variance if is_shifted else variance + mean**2
        # a column that is constant but for rounding has no spread: it is left as it is
        is_plain = square <= 1e-24 * mean**2 if is_shifted else square == 0.0
        spread = np.sqrt(np.where(is_plain | (square == 0.0), 1.0, square))
        return LinearProblem(loss, alpha, mean * is_shifted, spread, fit_intercept, intercept_penalty)

    def loss(self, name: str, threshold: float | None = None) -> LinearLoss:
        if name == "poisson" and (least := self.moments.least_target) < 0:
            raise InvalidInputError(f"the poisson loss takes counts; the smallest target is {least:g}, below 0.")
        return loss_named(name, 0 if self.response.classes is None else len(self.response.classes), threshold)

    def by_class(self, sums: np.ndarray) -> np.ndarray:
        """(K,) sums of each class, such as its mass, from those of each label."""
        numbers = self.response.numbers or {}
        return np.bincount([numbers[name] for name in self.moments.labels], sums)

    def run(self, label: str, *sums: S) -> list[S]:
        """One pass: ``sums`` of the same problem over all rows."""
        return self.runner.run(label, SumsPass(self.response, list(sums))).sums

    def gram(self, problem: LinearProblem) -> np.ndarray:
        """The weighted Gram matrix in the columns of a problem, without a pass; the survey must have summed it."""
        moments, offset = self.moments, (self.moments.mean - problem.shift) / problem.spread
        assert moments.gram is not None
        gram = moments.gram / problem.spread / problem.spread[:, None]
        gram += 0.0 if moments.is_sparse else moments.mass * np.outer(offset, offset)
        if not problem.fit_intercept:
            return gram
        edge = moments.mass * offset[:, None]
        return np.block([[gram, edge], [edge.T, np.full((1, 1), moments.mass)]])

    def least_squares(self, problem: LinearProblem) -> LossSums:
        """Sums of squares at zero; their Hessian is the Gram matrix of the columns."""
        squares = replace(problem, loss=Squared())
        return self.run("least squares", LossSums(squares, np.zeros((1, problem.n_columns))))[0]


@dataclass
class SumsPass(Generic[S]):
    """The pass of :meth:`LinearRows.run`."""

    response: Response
    sums: list[S]

    def update(self, block: Block) -> None:
        y, weights = self.response.of(block), block.weights
        if self.response.factors is not None:
            weights = weights * self.response.factors[y]
        y = 2.0 * y - 1.0 if self.response.signed else y
        self.sums[0].add(block.X, y, weights, *self.sums[1:])

    def merge(self, other: Self) -> None:
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine.merge(theirs)


def linear_rows(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    is_classifier: bool,
    estimator: BaseEstimator | None = None,
    runner: Runner | None = None,
    most_columns: int = 0,
) -> LinearRows:
    """Open and survey rows with a response, in one pass; the Gram matrix of up to ``most_columns`` columns as well."""
    classes, labels, what = None, None, "label" if is_classifier else "target"
    if not isinstance(X, Rows) and (is_classifier or y is None):
        (classes, labels), y = check_labels(y), None
    rows = given_rows(X, sample_weight, estimator=estimator, y=y, labels=labels)
    if not (rows.has_labels if is_classifier else rows.has_targets):
        raise InvalidInputError(f"{rows.name}: there is no {what}; name its column with open_rows(..., {what}=...).")
    runner = runner or Runner(rows)
    moments = runner.run("columns", ColumnMoments(rows.d, rows.d <= most_columns))
    if not moments.mass > 0:
        raise InvalidInputError(f"{rows.name}: the weights are all zero.")
    if not is_classifier:
        return LinearRows(runner, Response(), moments)
    present = [name for name, number in moments.labels.items() if moments.label_mass[number] > 0]
    if odd := [name for name in present if isinstance(name, float) and not name.is_integer()]:
        text = f"{rows.name}: the label has values such as {odd[0]:g}, which are not classes."
        raise InvalidInputError(f"{text} {_FOR_NUMBERS}")
    names = sorted(present, key=str if len({type(name) for name in present}) > 1 else None)
    if len(names) < 2:
        only = names[0] if classes is None else classes.tolist()[names[0]]
        raise InvalidInputError(f"{rows.name}: the label is always {only!r}: 1 class, but at least 2 are needed.")
    if len(names) > MOST_CLASSES:
        text = f"{rows.name}: the label has {len(names):,} different values, more than the {MOST_CLASSES:,} classes"
        raise InvalidInputError(f"{text} that are possible. {_FOR_NUMBERS}")
    numbers = {name: i for i, name in enumerate(names)} | dict.fromkeys(set(moments.labels) - set(names), 0)
    found = np.array(names) if classes is None else classes[names]
    return LinearRows(runner, Response(found, numbers), moments)


def check_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes in ascending order, and the number of the class of each row."""
    if y is None:
        raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
    given = as_numpy(y)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise InvalidInputError(f"y has shape {given.shape}: one label a row is needed.")
    if given.dtype.kind == "f":
        if not np.isfinite(given).all():
            raise InvalidInputError(f"y contains NaN or infinity, first in row {np.argmin(np.isfinite(given))}.")
        if (given != np.floor(given)).any():
            raise InvalidInputError("y: Unknown label type: continuous. For such numbers use a loss for targets.")
    elif given.dtype.kind == "O":
        if any(value is None or value != value for value in given):
            raise InvalidInputError("y has missing values; drop such rows.")
        if len({type(value) for value in given}) > 1:
            given = given.astype(str)
    classes, codes = np.unique(given, return_inverse=True)
    return classes, codes.reshape(-1)
