"""Image files: as rows of pixels, or decoded for training. Pillow is an extra."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._imports import Late
from .._validation import naming
from .rows import Block, Fingerprint, Piece, Rows, encode_labels, fingerprint

Image: Any = Late("PIL.Image", "io", "an image file")

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
DEFAULT_SIZE = 32
_PER_PIECE = 256
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
_ATTEMPTS = 10

Box = tuple[float, float, float, float]  # left, upper, right, lower
Crop = Callable[[int, int], tuple[Box, bool]]  # from width and height: the part to keep, whether to mirror


class ImageRows(Rows):
    """Images as rows: resized to ``size`` by ``size`` pixels in three colours, divided by 255, in float32."""

    def __init__(self, paths: Sequence[str], root: str, name: str, size: int, with_labels: bool) -> None:
        self._resampling = Image.Resampling.BOX
        self.name, self.names, self.files = name, None, list(paths)
        self.n, self.size = len(paths), size
        self.d, self.dtype = 3 * size * size, np.dtype(np.float32)
        self.file_starts = np.arange(self.n, dtype=np.int64)
        self.pieces = [Piece(at, 0, 0, at, min(_PER_PIECE, self.n - at)) for at in range(0, self.n, _PER_PIECE)]
        self.has_labels, self._root = with_labels, root

    def read(self, piece: Piece) -> Iterator[Block]:
        for first in range(piece.start, piece.start + piece.n_rows, self.read_rows):
            last = min(first + self.read_rows, piece.start + piece.n_rows)
            yield self._block(first, self.files[first:last])

    def take(self, indices: np.ndarray) -> Block:
        return self._block(0, [self.files[i] for i in indices])

    def fingerprints(self) -> list[Fingerprint]:
        return [fingerprint(file, 0) for file in self.files]

    def where(self, row: int) -> str:
        return self.files[row]

    def _block(self, start: int, paths: Sequence[str]) -> Block:
        X = np.empty((len(paths), self.d), dtype=np.float32)
        for row, path in zip(X, paths, strict=True):
            with opened_image(path) as image:
                small = in_bytes(image, path).convert("RGB").resize((self.size, self.size), self._resampling)
                row[:] = np.asarray(small, dtype=np.float32).reshape(-1) / np.float32(255.0)
        labels = encode_labels(np.array([self._folder(path) for path in paths]), "folder") if self.has_labels else None
        return Block(start, X, np.ones(len(X)), labels)

    def _folder(self, path: str) -> str:
        folder, *below = Path(path).relative_to(self._root).parts
        if not below:
            raise InvalidInputError(f"{path}: is not in a folder of its own, which would be its label.")
        return folder


@contextmanager
def opened_image(path: str) -> Iterator[Any]:
    """Open an image with Pillow; errors name the file. Images of more than 89 million pixels are refused."""
    with naming(Path(path), "damaged, or not an image"), Image.open(path) as image:
        if image.width * image.height > (most := Image.MAX_IMAGE_PIXELS or math.inf):
            raise InvalidInputError(f"{image.width} x {image.height} pixels; at most {most:,} are read.")
        yield image


def in_bytes(image: Any, name: str) -> Any:
    """Convert 16 bits per pixel to 8; Pillow would make everything above 255 white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise InvalidInputError(f"{name}: pixels of 32 bits (mode {image.mode}); save it with 8 or 16 bits.")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")  # Pillow warns of a palette with transparency otherwise
    return image


def decode(path: str, size: int, crop: Crop) -> np.ndarray:
    """The part of an image that ``crop`` names, as (3, size, size) uint8."""
    with opened_image(path) as image:
        width, height = image.size
        box, mirror = crop(width, height)
        # JPEG files are decoded at a fraction of their size if the box still has ``size`` pixels on each side
        sides = max(box[2] - box[0], 1), max(box[3] - box[1], 1)
        image.draft("RGB", (math.ceil(width * size / sides[0]), math.ceil(height * size / sides[1])))
        across, down = image.size[0] / width, image.size[1] / height
        box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
        small = in_bytes(image, path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(small, dtype=np.uint8).transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[:, :, ::-1] if mirror else pixels)


def cut(pixels: np.ndarray, size: int, crop: Crop) -> np.ndarray:
    """The part of decoded pixels (3, h, w) that ``crop`` names, as (3, size, size) uint8."""
    (left, upper, right, lower), mirror = crop(pixels.shape[2], pixels.shape[1])
    if (right - left, lower - upper, left % 1, upper % 1) == (size, size, 0, 0):
        part = pixels[:, int(upper) : int(lower), int(left) : int(right)]
    else:
        image = Image.fromarray(pixels.transpose(1, 2, 0))
        box = (left, upper, right, lower)
        part = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box)).transpose(2, 0, 1)
    return np.array(part[:, :, ::-1] if mirror else part, order="C")


def middle(share: float, width: int, height: int) -> tuple[Box, bool]:
    """The square in the middle whose side is this share of the shorter side."""
    side = min(width, height) * share
    left, upper = (width - side) / 2, (height - side) / 2
    return (left, upper, left + side, upper + side), False


def random_resized_crop(rng: np.random.Generator, width: int, height: int) -> tuple[Box, bool]:
    """A random part of 8 to 100 % of the area with a ratio between 3:4 and 4:3, mirrored half of the time."""
    mirror = bool(rng.random() < 0.5)
    for _ in range(_ATTEMPTS):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left, upper = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return (left, upper, min(left + w, width), min(upper + h, height)), mirror
    return middle(1.0, width, height)[0], mirror
