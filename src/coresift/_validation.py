"""Checks of all input, made once, at the edge; scikit-learn, slow to import, is imported where arrays are checked."""

import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import CoresiftError, InvalidInputError, InvalidTypeError
from ._threads import SCIKIT_LEARN
from .core.points import Matrix, is_sparse, row_slices

LARGEST_MAGNITUDE = 1e300  # differences of larger numbers overflow
MUST_BE_FINITE = f"; entries must be finite and at most {LARGEST_MAGNITUDE:g}. Drop or impute such rows."
LARGEST_COUNT = 2**63 - 1
LARGEST_TARGET = 1e140  # squares of targets times weights must have a finite sum
LARGEST_RATIO = 1e70  # of a length to the bandwidth: fourth powers occur (squares of lifted points)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def check_features(X: Any, *, estimator: Any = None, finite: bool = True, name: str = "X") -> Matrix:
    """Return a two-dimensional float32 or float64 array or CSR matrix without NaN or infinity.

    Float arrays are not copied; lists, frames and integers become float64. With ``finite=False`` a pass looks for NaN.
    """
    from sklearn.utils.validation import check_array

    try:
        if X is None or isinstance(X, (str, bytes)):
            raise InvalidTypeError(f"{name} is {X!r:.60}; it must be an array or a frame (open_rows reads files).")
        X = without_graph(X)
        _check_columns(X, name)
        array = np.asarray(X) if isinstance(X, (list, tuple)) else X
        if isinstance(array, np.ndarray) and array.ndim != 2:  # scikit-learn would print the whole array
            hint = " Reshape your data with X.reshape(-1, 1) if it has one column." if array.ndim == 1 else ""
            text = f"{name} has shape {array.shape}. Expected 2D array, got {array.ndim}D array instead.{hint}"
            raise InvalidInputError(text)
        _check_kind(array, name)
        dtypes = (np.float64, np.float32)
        with SCIKIT_LEARN, np.errstate(invalid="ignore"):  # signalling NaN
            checked = check_array(X, accept_sparse="csr", dtype=dtypes, ensure_all_finite=False, estimator=estimator)
    except CoresiftError:
        raise
    except TypeError as error:
        raise InvalidTypeError(f"{name}: {error}") from error
    except ValueError as error:  # of complex numbers scikit-learn prints the array as well
        raise InvalidInputError(f"{name}: {str(error).partition(chr(10))[0]}") from error
    if is_sparse(checked):
        from scipy.sparse import csr_array

        checked = csr_array(checked)
        if not checked.has_canonical_format:
            checked = checked.copy()  # duplicates are summed in place: not in the caller's arrays
            checked.sum_duplicates()
    if finite:
        check_finite(checked, X, name)
    return checked


def record_features(estimator: Any, X: Any) -> None:
    """Let scikit-learn record the number of features seen in ``fit``, and their names."""
    from sklearn.utils.validation import validate_data

    try:
        validate_data(estimator, X, skip_check_array=True)
    except TypeError as error:
        raise InvalidTypeError(f"X: {error}") from error


def _check_columns(X: Any, name: str) -> None:
    """Name the columns of a pandas frame that do not hold numbers."""
    if not hasattr(X, "iloc") or not hasattr(X, "dtypes") or not hasattr(X, "columns"):
        return
    if len(X.columns) == 0:
        raise InvalidInputError(f"{name} has no columns.")
    for column, dtype in zip(X.columns, X.dtypes, strict=False):
        if getattr(dtype, "kind", "O") in "OmMUS":
            try:
                np.asarray(X[column], dtype=np.float64)
            except (TypeError, ValueError):
                text = f"{name} has a column {column!r} of type {dtype}; columns must hold numbers: drop or encode it."
                raise InvalidTypeError(text) from None


def _check_kind(values: Any, name: str) -> None:
    """Refuse strings and dates, which NumPy would turn into numbers."""
    if getattr(getattr(values, "dtype", None), "kind", "f") in "USmM":
        raise InvalidTypeError(f"{name} has entries of type {values.dtype}; they must be numbers.")


def check_finite(X: Matrix, given: Any = None, name: str = "X") -> None:
    """Raise at the first NaN, infinity or too large number; ``given`` may know the columns' names."""
    if (bad := first_bad_value(X)) is None:
        return
    row, column, value = bad
    names = getattr(given, "columns", None)
    label = f" ({names[column]!r})" if names is not None else ""
    raise InvalidInputError(f"{name} contains {bad_value(value)} in column {column}{label}, row {row}{MUST_BE_FINITE}")


def first_bad_value(X: Matrix) -> tuple[int, int, float] | None:
    """Return row, column and value of the first NaN, infinity or number too large to be subtracted."""
    if isinstance(X, np.ndarray):
        for rows in row_slices(X.shape[0], X.itemsize * X.shape[1]):
            # extremes are NaN or infinite exactly when an entry is, and cost no temporary
            high, low = float(X[rows].max()), float(X[rows].min())
            if not (high <= LARGEST_MAGNITUDE and low >= -LARGEST_MAGNITUDE):
                row, column = np.unravel_index(_not_finite(X[rows])[0], X[rows].shape)
                return rows.start + int(row), int(column), float(X[rows][row, column])
    elif len(bad := _not_finite(X.data)) > 0:
        at = int(bad[0])
        return int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at]), float(X.data[at])
    return None


def bad_value(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}"


def _not_finite(values: np.ndarray) -> np.ndarray:
    """Return the flat positions of NaN, infinity and numbers too large to be subtracted."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = np.abs(values.astype(np.float64, copy=False))
    return np.flatnonzero(~(wide <= LARGEST_MAGNITUDE))


def without_graph(values: Any) -> Any:
    """Return a tensor on the CPU, detached, in a type that NumPy has; anything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return values.float() if str(values.dtype) == "torch.bfloat16" else values


def as_numpy(values: Any) -> np.ndarray:
    """Convert to an array; tensors may be on any device."""
    return np.asarray(without_graph(values))


def check_numbers(values: Any, name: str) -> np.ndarray:
    """Return a fresh float64 array of any shape, from anything that holds real numbers."""
    try:
        given = as_numpy(values)
        if given.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        _check_kind(given, name)
        with np.errstate(invalid="ignore"):  # signalling NaN
            return np.array(given, dtype=np.float64)
    except CoresiftError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"{name} must be numbers: {error}") from error


def check_vector(values: Any, name: str) -> np.ndarray:
    return _one_dimensional(check_numbers(values, name), name)


def _one_dimensional(values: np.ndarray, name: str) -> np.ndarray:
    if values.ndim != 1:
        raise InvalidInputError(f"{name} has shape {values.shape}; it must be one-dimensional.")
    return values


def check_length(length: int, n_samples: int, name: str, of: str = "X") -> None:
    if length != n_samples:
        raise InvalidInputError(f"{name} has length {length}, but {of} has {n_samples} rows; they must be equal.")


def check_weights(sample_weight: Any, n_samples: int) -> np.ndarray:
    """Return float64 weights: finite, non-negative, not all zero, one for each row; ones if None."""
    if sample_weight is None:
        return np.ones(n_samples)
    weights = check_numbers(sample_weight, name := "sample_weight")
    if weights.ndim == 0:
        weights = np.full(n_samples, float(weights))
    check_length(len(_one_dimensional(weights, name)), n_samples, name)
    _check_not_negative(weights, name)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not 0 < total <= LARGEST_MAGNITUDE:
        raise InvalidInputError(f"{name} sums to {total:g}; not all may be zero, at most {LARGEST_MAGNITUDE:g}.")
    return weights


def _check_not_negative(weights: np.ndarray, name: str) -> None:
    if not (weights.min(initial=0.0) >= 0 and np.isfinite(weights).all()):
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        first = f"{name}[{bad[0]}] = {weights[bad[0]]:g}"
        raise InvalidInputError(f"{first}; weights must be finite and not negative ({len(bad)} are not).")


def check_chosen(indices: Any, weights: Any, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted, distinct row numbers in [0, n_samples) as int64, and their weights; O(m) if sorted."""
    try:
        rows = np.asarray(indices)
    except ValueError:  # a ragged list
        raise InvalidTypeError("indices must be integers in one dimension.") from None
    _one_dimensional(rows, "indices")
    if rows.dtype.kind not in "iu" and rows.size:
        raise InvalidTypeError(f"indices has type {rows.dtype}; it must hold integers.")
    values = check_vector(weights, "weights")
    if values.size != rows.size:
        raise InvalidInputError(f"indices has length {rows.size}, weights {values.size}; they must be equal.")
    _check_not_negative(values, "weights")
    if rows.size and (rows.min() < 0 or rows.max() >= n_samples):
        text = f"indices run from {rows.min()} to {rows.max()}"
        raise InvalidInputError(f"{text}; they must be from 0 to n_samples - 1 = {n_samples - 1}.")
    rows = rows.astype(np.int64)
    if not (rows[1:] > rows[:-1]).all():
        order = np.argsort(rows)
        rows, values = rows[order], values[order]
        if (twice := rows[1:][rows[1:] == rows[:-1]]).size:
            raise InvalidInputError(f"indices hold row {twice[0]} more than once; they must be distinct.")
    return rows, values


def check_targets(y: Any, n_samples: int, name: str = "y") -> np.ndarray:
    """Return float64 targets of shape (n, K): finite numbers, one or K for each row."""
    targets = check_numbers(y, name)
    if targets.ndim not in (1, 2) or targets.size == 0:
        raise InvalidInputError(f"{name} has shape {targets.shape}; it must be ({n_samples},) or ({n_samples}, K).")
    check_length(len(targets), n_samples, name)
    targets = targets.reshape(n_samples, -1)
    bad = np.argwhere(~(np.abs(targets) <= LARGEST_TARGET))
    if len(bad) > 0:
        text = f"{name} contains {bad_value(targets[tuple(bad[0])])} in row {bad[0][0]}; every entry must be finite"
        raise InvalidInputError(f"{text} and at most {LARGEST_TARGET:g} in magnitude ({len(bad)} are not).")
    return targets


def check_budget(size: Any, n_samples: int, name: str = "size") -> int:
    """Return a number of points, given an integer from 1 to n or a fraction in (0, 1] of n, rounded up."""
    if not _is_a(Real, size):
        raise InvalidTypeError(f"{name} = {size!r} must be a number: a count of points, or a fraction of them.")
    if isinstance(size, Integral):
        if not 1 <= int(size) <= n_samples:
            known = f", {n_samples}" if n_samples < 2**53 else ""  # options are checked before rows are counted
            text = f"{name} = {size} must be between 1 and the number of samples{known}. An integer counts points"
            raise InvalidInputError(f"{text}; for a share of the data pass a fraction such as 0.05.")
        return int(size)
    if not 0 < float(size) <= 1:
        raise InvalidInputError(f"{name} = {size} must be above 0 and at most 1; to count points pass an integer.")
    # 0.07 * 100 is a little above 7 in floats, and means 7; so is the float32 nearest to 0.07
    kind = np.asarray(size).dtype
    slack = 2.0 * float(np.finfo(kind).eps) if kind in (np.float32, np.float16) else 1e-12
    return max(1, int(np.ceil(float(size) * n_samples * (1.0 - slack))))


def parse_budget(budget: Any, n_rows: int) -> int:
    """A number of rows from ``"5%"``, ``"0.05"``, ``"1000"``, or a number."""
    if isinstance(budget, str):
        text = budget.strip().replace("_", "")
        if re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+", text):  # 1,000,000; elsewhere a comma may mean a point
            text = text.replace(",", "")
        try:
            budget = int(text) if re.fullmatch(r"[+-]?\d+", text) else share(text)
        except (ValueError, ArithmeticError):
            wanted = "a number of rows, a fraction such as 0.05 or a percentage such as 5%"
            raise InvalidInputError(f"budget = {budget!r} must be {wanted}.") from None
    return check_budget(budget, n_rows, "budget")


def share(text: str) -> float:
    """A share from ``"5%"`` or ``"0.05"``; 0.7% is the float 0.007, which 0.7 / 100 is not."""
    return float(Decimal(text[:-1]) / 100) if text.endswith("%") else float(text)


def parse_bytes(text: Any, name: str) -> float:
    """A number of bytes from ``"2GB"``, ``"500M"``, or a number."""
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]?)i?b?\s*", str(text).lower())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise InvalidInputError(f"{name} = {text!r} must be a size such as 500MB or 4GB.")
    return value


def _is_a(kind: type, value: Any) -> bool:
    """Return whether a value is a number of this kind; True and False are not numbers."""
    return isinstance(value, kind) and not isinstance(value, (bool, np.bool_))


_LIMITS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


def check_number(value: Any, name: str, **limits: float) -> float:
    """Return a real number within limits, any of ``above``, ``at_least``, ``below``, ``at_most``; never NaN."""
    text = " and ".join(f"{word} {limit:g}" for word, limit in limits.items()).replace("_", " ")
    if not _is_a(Real, value):
        raise InvalidTypeError(f"{name} = {value!r} must be a number {text}.")
    number = float(value)
    if not all(_LIMITS[word](number, limit) for word, limit in limits.items()):
        raise InvalidInputError(f"{name} = {value!r} must be {text}.")
    return number


def check_positive(value: Any, name: str, *, at_most: float = LARGEST_MAGNITUDE) -> float:
    return check_number(value, name, above=0.0, at_most=at_most)


def check_probability(value: Any, name: str) -> float:
    return check_number(value, name, above=0.0, below=1.0)


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    if not _is_a(Integral, value):
        raise InvalidTypeError(f"{name} = {value!r} must be an integer of at least {minimum}.")
    if value < minimum:
        raise InvalidInputError(f"{name} = {value} must be at least {minimum}.")
    if value > LARGEST_COUNT and name not in ("seed", "random_state", "n_queries"):
        raise InvalidInputError(f"{name} = {str(value)[:20]}... must be below 2**63.")
    return int(value)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} = {value!r} is not one of {', '.join(map(repr, choices))}.")
    return value


def check_bool(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidTypeError(f"{name} = {value!r:.60} must be True or False.")
    return bool(value)


def check_instance(value: Any, name: str, kind: type, *, optional: bool = False) -> Any:
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"{kind.__name__} or None" if optional else kind.__name__
        raise InvalidTypeError(f"{name} = {value!r:.60} must be of type {wanted}.")
    return value


def check_generator(random_state: Any, name: str = "random_state") -> np.random.Generator:
    """Return a Generator for None, an integer, a Generator or a RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(0, 2**32, size=4, dtype=np.uint32)
    elif _is_a(Integral, random_state) and random_state >= 0:
        random_state = int(random_state)
    elif random_state is not None and not isinstance(random_state, np.random.Generator):
        raise InvalidInputError(f"{name} = {random_state!r} must be None, an integer of at least 0 or a Generator.")
    return np.random.default_rng(random_state)


def check_seed(random_state: Any, fallback: np.random.Generator) -> int:
    """Return an integer seed: the one given, or one drawn from the given generator or ``fallback``."""
    if _is_a(Integral, random_state) and random_state >= 0:
        return int(random_state)
    generator = fallback if random_state is None else check_generator(random_state)
    return int(generator.integers(2**63))


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Turn a reader's errors into our own, with the name of the file in front."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        raise error if text.startswith(str(path)) else InvalidInputError(f"{path}: {text}") from None
    except CoresiftError:
        raise
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file") from None
    except UnicodeEncodeError:
        raise InvalidInputError(f"{path}: the name is not UTF-8; rename the file.") from None
    except PermissionError:
        raise InvalidInputError(f"{path}: may not be read") from None
    except MemoryError as error:
        raise InvalidInputError(f"{path}: does not fit into memory ({error})") from error
    except Exception as error:  # readers may raise anything on a damaged file
        short = " ".join(str(error).split())[:300]
        raise InvalidInputError(f"{path}: {what} ({type(error).__name__}: {short})") from error
