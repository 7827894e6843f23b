"""Data sets of Hugging Face's ``datasets``, used through their interface: the package is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..rows.images import in_bytes, middle, need_pillow
from .splits import DatasetSplits
from .user_sets import Options, from_arrays

_LABELS = ("label", "labels", "target", "fine_label")
_TEST_PARTS = ("test", "validation", "valid", "val")


def is_hugging_face(data: Any) -> bool:
    """Whether this looks like a ``Dataset`` or a ``DatasetDict``; the package is not imported."""
    one = next(iter(data.values()), None) if isinstance(data, Mapping) else data
    return all(hasattr(one, name) for name in ("column_names", "features", "__getitem__", "__len__"))


def from_hugging_face(data: Any, test: Any, options: Options) -> DatasetSplits:
    """A ``Dataset``, with a second one as ``test`` or split here; or a ``DatasetDict`` with ``train`` and ``test``.

    The label is the column ``options.label``, or the one called label, labels, target or fine_label. Inputs are the
    only column of images, decoded into memory; else all columns of numbers, or the only column of lists of numbers.
    """
    if isinstance(data, Mapping):
        parts = dict(data)
        if "train" not in parts:
            raise InvalidInputError(f"the data set has the parts {', '.join(parts)}; 'train' is needed.")
        data = parts["train"]
        if test is None:
            test = next((parts[part] for part in _TEST_PARTS if part in parts), None)
    label = _label_of(data, options.label)
    image = _image_column(data, label)
    columns = [image] if image is not None else _feature_names(data, label)
    if test is not None and (lacking := {label, *columns} - set(test.column_names)):
        raise InvalidInputError(f"the test part has no column {', '.join(map(repr, sorted(lacking)))}.")

    def read(part: Any) -> tuple[np.ndarray, np.ndarray]:
        x = _numbers(part, columns) if image is None else _images(part, image, options.image_size)
        return x, _column(part, label)

    info = getattr(getattr(data, "info", None), "dataset_name", None)
    classes = getattr(data.features[label], "names", None)
    return from_arrays(
        str(info or "hugging-face"),
        read(data),
        None if test is None else read(test),
        options,
        None if classes is None else tuple(map(str, classes)),
    )


def _label_of(data: Any, wanted: str | None) -> str:
    columns: Sequence[str] = data.column_names
    listed = ", ".join(columns)
    if wanted is not None and wanted not in columns:
        raise InvalidInputError(f"label = {wanted!r}: there are the columns {listed}.")
    found = wanted or next((name for name in _LABELS if name in columns), None)
    if found is None:
        raise InvalidInputError(
            f"label is missing: none of the columns {listed} is called {', '.join(_LABELS)}."
        )
    return found


def _image_column(data: Any, label: str) -> str | None:
    """The only column whose first entry is a Pillow image."""
    if len(data) == 0:
        raise InvalidInputError("the data set has no rows.")
    first = data[0]
    found = [name for name in data.column_names if name != label and _is_image(first[name])]
    if len(found) > 1:
        raise InvalidInputError(f"there are images in the columns {', '.join(found)}; keep one of them.")
    return found[0] if found else None


def _is_image(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "resize") and hasattr(value, "mode")


def _images(data: Any, column: str, size: int | None) -> np.ndarray:
    """(n, c, h, w) uint8: one channel if the first image is grey, else three."""
    resampling = need_pillow().Resampling.BILINEAR
    pixels: np.ndarray | None = None
    mode = "RGB"
    for row in range(len(data)):
        image = in_bytes(data[row][column], f"image {row}")
        if pixels is None:
            mode = "L" if image.mode in ("1", "L") else "RGB"
            width, height = (size, size) if size is not None else image.size
            pixels = np.empty((len(data), len(mode), height, width), dtype=np.uint8)
        if size is not None:
            box, _ = middle(1.0)(*image.size)
            image = image.convert(mode).resize((size, size), resampling, box=box)
        elif (image.size[1], image.size[0]) != pixels.shape[2:]:
            raise InvalidInputError(
                f"image {row} has {image.size[0]}x{image.size[1]} pixels, the first {pixels.shape[3]}x"
                f"{pixels.shape[2]}; give image_size to resize them."
            )
        array = np.asarray(image.convert(mode))
        pixels[row] = array[None] if mode == "L" else array.transpose(2, 0, 1)
    assert pixels is not None
    return pixels


def _column(data: Any, name: str) -> np.ndarray:
    values = data[name]
    return np.asarray(values if hasattr(values, "dtype") else list(values))


def _numbers(data: Any, names: Sequence[str]) -> np.ndarray:
    """Columns of numbers side by side, or one column of lists of numbers."""
    if np.ndim(data[0][names[0]]) == 0:
        return np.column_stack([_column(data, name) for name in names])
    try:
        return _column(data, names[0])
    except ValueError as error:
        raise InvalidInputError(f"the lists of column {names[0]!r} differ in length ({error}).") from error


def _feature_names(data: Any, label: str) -> list[str]:
    """The columns of numbers, or else the only column of lists of numbers."""
    first = data[0]
    shapes = {name: np.asarray(first[name]) for name in data.column_names if name != label}
    numeric = {name: value.ndim for name, value in shapes.items() if value.dtype.kind in "fiub"}
    flat = [name for name, ndim in numeric.items() if ndim == 0]
    lists = [name for name, ndim in numeric.items() if ndim > 0]
    if flat or len(lists) == 1:
        return flat or lists
    raise InvalidInputError(
        f"one column of images, columns of numbers or one of lists of numbers is needed; there are "
        f"{', '.join(shapes) or 'none'} beside {label!r}."
    )
