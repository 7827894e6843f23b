"""IDX files: what was written is read, and what is damaged is refused with the name of the file."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from coresift import InvalidInputError
from coresift.data import read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    code = CODES[array.dtype.newbyteorder("=").str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda code: hnp.arrays(code, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
)


@given(array=arrays, compress=st.booleans())
def test_reading_gives_back_what_was_written(
    array: np.ndarray, compress: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if compress else "a")
    path.write_bytes(gzip.compress(idx_bytes(array), mtime=0) if compress else idx_bytes(array))
    found = read_idx(path)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


IMAGES = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a", b"", "begins with nothing"),
        ("a", IMAGES[:3], "not an IDX file"),
        ("a", b"\x1f\x8b\x08\x03" + IMAGES[4:], "not an IDX file: it begins with 1f 8b 08 03"),
        ("a", b"\0\0\x07\x03" + IMAGES[4:], "not an IDX file"),
        ("a", b"\0\0\x08\0", "not an IDX file"),
        ("a", IMAGES[:10], "cut off within its header"),
        ("a", IMAGES[:-1], r"24 bytes, but 23 follow"),
        ("a", IMAGES + b"x", r"24 bytes, but more follow"),
        (
            "a",
            b"\0\0\x08\x03" + b"\xff" * 12,
            "but [0-9,]+ (can )?follow",
        ),  # announces 2^96 bytes: nothing is allocated
        ("a.gz", IMAGES, "damaged or cut off"),
        ("a.gz", gzip.compress(IMAGES, mtime=0)[:-9], "damaged or cut off"),
        ("a.gz", gzip.compress(IMAGES, mtime=0)[:15] + b"\0" * 8, "damaged or cut off"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        read_idx(tmp_path / name)
    assert str(error.value).startswith(str(tmp_path / name))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nosuch\.gz: no such file"):
        read_idx(tmp_path / "nosuch.gz")
