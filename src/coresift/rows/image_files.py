"""Image files as arrays of bytes: the middle of an image, or a random part of it. Pillow is an extra."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError, MissingExtraError
from .._npz import naming

Box = tuple[float, float, float, float]  # left, upper, right, lower
Crop = Callable[
    [int, int], tuple[Box, bool]
]  # of width and height: the part to keep, and whether to mirror it

_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
_ATTEMPTS = 10


def need_pillow(what: str) -> Any:
    """The module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(f'{what} need Pillow: pip install "coresift[io]"') from error
    return Image


def decode(path: str, size: int, crop: Crop) -> np.ndarray:
    """An image file as (3, size, size) uint8, the part that ``crop`` names."""
    Image = need_pillow("image files")
    with opened_image(path) as image:
        width, height = image.size
        box, mirror = crop(width, height)
        # JPEG files are decoded at a fraction of their size where that is still larger than what is kept
        image.draft("RGB", _least_size(image.size, box, size))
        shrink = image.size[0] / width, image.size[1] / height
        box = (box[0] * shrink[0], box[1] * shrink[1], box[2] * shrink[0], box[3] * shrink[1])
        small = in_bytes(image, path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(small, dtype=np.uint8).transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[:, :, ::-1] if mirror else pixels)


def in_bytes(image: Any, name: str) -> Any:
    """An image of 16 bits a pixel as one of 8; Pillow would make everything above 255 white."""
    if image.mode.startswith("I;16"):
        return need_pillow("image files").fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise InvalidInputError(
            f"{name}: pixels of 32 bits (mode {image.mode}), whose range is not known; save it with 8 or 16 bits."
        )
    return image


@contextmanager
def opened_image(path: str) -> Iterator[Any]:
    """An image of Pillow. Whatever goes wrong while it is decoded is said with the name of the file.

    Pillow warns of odd metadata and palettes, which published photographs have: that is not heard. It warns of images
    of more than 89 million pixels too, which a file of a few kilobytes may hold: those are refused.
    """
    Image = need_pillow("image files")
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: no such file")
    with naming(Path(path), "damaged, or no image"):
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # until ``naming`` ends
        with Image.open(path) as image:
            yield image


def middle(share: float) -> Crop:
    """The square in the middle, of a side that is this share of the shorter one."""

    def crop(width: int, height: int) -> tuple[Box, bool]:
        side = min(width, height) * share
        left, upper = (width - side) / 2, (height - side) / 2
        return (left, upper, left + side, upper + side), False

    return crop


def random_resized_crop(rng: np.random.Generator) -> Crop:
    """A random part of 8 to 100 % of the area and of a ratio between 3:4 and 4:3, mirrored half of the time."""

    def crop(width: int, height: int) -> tuple[Box, bool]:
        mirror = bool(rng.random() < 0.5)
        for _ in range(_ATTEMPTS):
            area = width * height * rng.uniform(*_AREA)
            ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
            w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if w <= width and h <= height:
                left, upper = rng.uniform(0, width - w), rng.uniform(0, height - h)
                return (left, upper, min(left + w, width), min(upper + h, height)), mirror
        return middle(1.0)(width, height)[0], mirror

    return crop


def _least_size(image: tuple[int, int], box: Box, size: int) -> tuple[int, int]:
    """The size at which the box still has ``size`` pixels on each side."""
    return (
        math.ceil(image[0] * size / max(box[2] - box[0], 1)),
        math.ceil(image[1] * size / max(box[3] - box[1], 1)),
    )
