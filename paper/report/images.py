"""Pixels as PNG in the text of a page, with the standard library alone."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from coresift._errors import InvalidInputError

_GREY, _COLOUR = 0, 2  # colour types of the PNG specification


def png(image: np.ndarray) -> bytes:
    """A (c, h, w) image of bytes, grey or in colour, as a PNG file."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3):
        raise InvalidInputError(
            f"image = {image.dtype} of shape {image.shape} must be uint8 of shape (1, h, w) or (3, h, w)."
        )
    channels, height, width = image.shape
    lines = image.transpose(1, 2, 0).reshape(height, width * channels)
    filtered = np.concatenate(
        [np.zeros((height, 1), np.uint8), lines], axis=1
    )  # filter 0: each line as it is
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if channels == 1 else _COLOUR, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def data_uri(image: np.ndarray) -> str:
    """The image as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")
