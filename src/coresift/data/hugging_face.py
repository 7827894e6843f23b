"""Data sets of Hugging Face's ``datasets``, used through their interface: the package is not needed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..rows.images import Image, in_bytes, middle
from .splits import DatasetSplits
from .user_sets import Options, from_arrays

_LABELS = ("label", "labels", "target", "fine_label")
_TEST_PARTS = ("test", "validation", "valid", "val")


def is_hugging_face(data: Any) -> bool:
    """Whether this looks like a ``Dataset`` or a ``DatasetDict``; the package is not imported."""
    one = next(iter(data.values()), None) if isinstance(data, Mapping) else data
    return all(hasattr(one, name) for name in ("column_names", "features", "__getitem__", "__len__"))


def from_hugging_face(data: Any, test: Any, options: Options) -> DatasetSplits:
    """A ``Dataset``, with a second one as ``test`` or split here; or a ``DatasetDict`` with ``train`` and ``test``."""
    if isinstance(data, Mapping):
        if "train" not in data:
            raise InvalidInputError(f"the data set has the parts {', '.join(data)}; 'train' is needed.")
        if test is None:
            test = next((data[part] for part in _TEST_PARTS if part in data), None)
        data = data["train"]
    there = data.column_names
    if options.label is not None and options.label not in there:
        raise InvalidInputError(f"label = {options.label!r}: there are the columns {', '.join(there)}.")
    label = options.label or next((name for name in _LABELS if name in there), None)
    if label is None:
        text = f"label is missing: none of the columns {', '.join(there)} is called {', '.join(_LABELS)}."
        raise InvalidInputError(text)
    columns, are_images = _inputs(data, label)
    if test is not None and (lacking := {label, *columns} - set(test.column_names)):
        raise InvalidInputError(f"the test part has no column {', '.join(map(repr, sorted(lacking)))}.")

    def read(part: Any) -> tuple[np.ndarray, np.ndarray]:
        if are_images:
            return _images(part, columns[0], options.image_size), _column(part, label)
        try:
            x = [_column(part, name) for name in columns]
        except ValueError as error:
            raise InvalidInputError(f"the lists of column {columns[0]!r} differ in length ({error}).") from error
        return x[0] if x[0].ndim > 1 else np.column_stack(x), _column(part, label)

    info = getattr(getattr(data, "info", None), "dataset_name", None)
    classes = getattr(data.features[label], "names", None)
    names = None if classes is None else tuple(map(str, classes))
    pairs = read(data), None if test is None else read(test)
    return from_arrays(str(info or "hugging-face"), *pairs, options, names)


def _inputs(data: Any, label: str) -> tuple[list[str], bool]:
    if len(data) == 0:
        raise InvalidInputError("the data set has no rows.")
    first = {name: data[0][name] for name in data.column_names if name != label}
    images = [name for name, value in first.items() if hasattr(value, "convert") and hasattr(value, "resize")]
    if len(images) > 1:
        raise InvalidInputError(f"there are images in the columns {', '.join(images)}; keep one of them.")
    if images:
        return images, True
    arrays = {name: np.asarray(value) for name, value in first.items()}
    numeric = [name for name, array in arrays.items() if array.dtype.kind in "fiub"]
    columns = [name for name in numeric if arrays[name].ndim == 0] or numeric
    if columns and (arrays[columns[0]].ndim == 0 or len(columns) == 1):
        return columns, False
    text = "one column of images, columns of numbers or one of lists of numbers is needed"
    raise InvalidInputError(f"{text}; there are {', '.join(first) or 'none'} beside {label!r}.")


def _images(data: Any, column: str, size: int | None) -> np.ndarray:
    bilinear = Image.Resampling.BILINEAR
    first = in_bytes(data[0][column], "image 0")
    mode = "L" if first.mode in ("1", "L") else "RGB"
    width, height = first.size if size is None else (size, size)
    pixels = np.empty((len(data), len(mode), height, width), dtype=np.uint8)
    for row in range(len(data)):
        image = in_bytes(data[row][column], f"image {row}").convert(mode)
        if size is not None:
            image = image.resize((size, size), bilinear, box=middle(1.0, *image.size)[0])
        elif image.size != first.size:
            text = f"image {row} has {image.width}x{image.height} pixels, the first {width}x{height}"
            raise InvalidInputError(f"{text}; give image_size to resize them.")
        pixels[row] = np.asarray(image).reshape(height, width, -1).transpose(2, 0, 1)
    return pixels


def _column(data: Any, name: str) -> np.ndarray:
    values = data[name]
    return np.asarray(values if hasattr(values, "dtype") else list(values))
