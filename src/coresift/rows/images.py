"""Images in folders as rows of pixels; the folder that an image is in is its label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .image_files import in_bytes, need_pillow, opened_image
from .rows import Block, Labels, Piece, Rows

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
DEFAULT_SIZE = 32
_PER_PIECE = 256


class ImageRows(Rows):
    """Images as rows: resized to ``size`` by ``size`` pixels in three colours, divided by 255, in float32."""

    def __init__(self, paths: Sequence[Path], root: Path, name: str, size: int, with_labels: bool) -> None:
        need_pillow("image folders")
        self.name, self.names = name, None
        self.files = [str(path) for path in paths]
        self.n, self.size = len(paths), size
        self.d, self.dtype = 3 * size * size, np.dtype(np.float32)
        self.file_starts = np.arange(self.n, dtype=np.int64)
        self.pieces = [
            Piece(first, 0, 0, first, min(_PER_PIECE, self.n - first))
            for first in range(0, self.n, _PER_PIECE)
        ]
        self.has_labels = with_labels
        self._root = root

    def read(self, piece: Piece) -> Iterator[Block]:
        """Read the images of a piece, in order."""
        for first in range(piece.start, piece.start + piece.n_rows, self.chunk_rows):
            last = min(first + self.chunk_rows, piece.start + piece.n_rows)
            yield self._block(first, self.files[first:last])

    def take(self, indices: np.ndarray) -> Block:
        """The images ``indices``, in that order, as a block of their own; no others are read."""
        return self._block(0, [self.files[i] for i in indices])

    def _block(self, start: int, paths: Sequence[str]) -> Block:
        X = np.stack([self._pixels(path) for path in paths])
        return Block(start, X, np.ones(len(X)), self._labels(paths) if self.has_labels else None)

    def where(self, row: int) -> str:
        """The file of the image."""
        return self.files[row]

    def _labels(self, paths: Sequence[str]) -> Labels:
        names: dict[str, int] = {}
        folders = [Path(path).relative_to(self._root).parts[:-1] for path in paths]
        for path, folder in zip(paths, folders, strict=True):
            if not folder:
                raise InvalidInputError(f"{path}: is not in a folder of its own, which would be its label.")
        codes = [names.setdefault(folder[0], len(names)) for folder in folders]
        return Labels(np.array(codes), list(names))

    def _pixels(self, path: str) -> np.ndarray:
        from PIL import Image

        with opened_image(path) as image:
            small: Any = (
                in_bytes(image, path).convert("RGB").resize((self.size, self.size), Image.Resampling.BOX)
            )
            return np.asarray(small, dtype=np.float32).reshape(-1) / np.float32(255.0)
