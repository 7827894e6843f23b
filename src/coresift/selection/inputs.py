"""Samples in any container: as matrices for the strategies, as batches of tensors for a model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._containers import take_rows
from .._errors import InvalidInputError, InvalidTypeError, MissingExtraError
from .._validation import as_numpy, check_count

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


def load_torch() -> Any:
    """Import torch, or say what to install. Called inside functions: without gradients, torch is not needed."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("gradients of a model need PyTorch: pip install 'coresift[train]'") from error
    return torch


def as_tensor(values: Any, what: str) -> Any:
    """Convert numbers in any container to a tensor."""
    torch = load_torch()
    if isinstance(values, torch.Tensor):
        return values
    array = as_numpy(values)
    if array.dtype.kind not in "biufc":
        raise InvalidInputError(
            f"{what} holds {array.dtype}, and the model needs numbers. Convert text labels to numbers with "
            "numpy.unique(y, return_inverse=True)[1]."
        )
    return torch.as_tensor(np.require(array, requirements=["W"]))  # torch warns about read-only memory


def has_fractions(labels: NDArray[Any]) -> bool:
    """Whether some labels, one per sample, are not whole numbers and hence not classes."""
    return labels.ndim == 1 and labels.dtype.kind == "f" and bool(np.any(labels % 1 != 0))


def flattened(X: Any) -> Any:
    """Flatten inputs to a matrix (n, d): sparse matrices as CSR, items of a data set stacked."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    if _is_dataset(X):
        X = np.stack([as_numpy(_input_of(X[i])).ravel() for i in range(len(X))])
    array = as_numpy(X)
    if array.ndim == 0 or len(array) == 0:
        raise InvalidInputError("X has no rows.")
    return array.reshape(len(array), -1)


def principal(matrix: Any, n_components: int) -> NDArray[Any]:
    """Project onto the first principal components."""
    from sklearn.decomposition import PCA

    n_components = check_count(n_components, "n_components")
    if isinstance(matrix, np.ndarray):
        pca = PCA(min(n_components, *matrix.shape), random_state=0)
    else:  # the solver for sparse matrices finds one component less
        pca = PCA(min(n_components, min(matrix.shape) - 1), svd_solver="arpack", random_state=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 in the explained variance where all rows are equal
        return pca.fit_transform(matrix)


def dense_centred(matrix: Any) -> Floats:
    """Features as a dense matrix about their mean: squares of large numbers would lose the distances."""
    found = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
    if not np.isfinite(found).all():
        raise InvalidInputError("features contain NaN or infinity; distances need finite numbers.")
    return found - found.mean(axis=0)


def class_positions(labels: NDArray[Any]) -> dict[Any, Indices]:
    """Positions of each class, in the order of the labels."""
    if labels.ndim != 1:
        raise InvalidInputError(f"labels have shape {labels.shape}; per-class selection needs one label per sample.")
    found, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(numbers, kind="stable")
    return dict(zip(found.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True))


def batch_of(X: Any, y: Any, rows: Indices) -> tuple[Any, Any]:
    """Inputs and targets of some rows of arrays, or of a data set, whose items may include targets."""
    if not _is_dataset(X):
        if y is None:
            raise InvalidInputError("gradients need labels: give the context y (and y_val).")
        return take_rows(X, rows), take_rows(y, rows)
    from torch.utils.data import default_collate

    items = [X[int(row)] for row in rows]
    inputs = default_collate([_input_of(item) for item in items])
    if y is not None:
        return inputs, take_rows(y, rows)
    if not isinstance(items[0], tuple | list) or len(items[0]) < 2:
        raise InvalidTypeError("the items of the data set have no target: give the context y.")
    return inputs, default_collate([item[1] for item in items])


def _is_dataset(X: Any) -> bool:
    if hasattr(X, "shape") or isinstance(X, tuple):
        return False
    if not isinstance(X, list):
        return True
    first = X[0] if X else None
    return isinstance(first, tuple) and len(first) == 2 and hasattr(first[0], "shape")


def _input_of(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) else item
