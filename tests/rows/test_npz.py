"""Arrays of files that announce more than they hold, or other things than numbers."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from coresift import InvalidInputError
from coresift.rows.arrays import find_matrix, open_arrays
from tools.fuzz_files.hostile import npy_header

ARRAYS = hnp.arrays(
    st.sampled_from(["f4", "f8", "i2", "u1", "?", "U3", ">f8"]), hnp.array_shapes(max_dims=3, max_side=4)
)


@pytest.mark.slow
@given(array=ARRAYS, packed=st.booleans(), fortran=st.booleans())
def test_reading_gives_back_what_numpy_wrote(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool, fortran: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    if fortran:
        array = np.asfortranarray(array)
    (np.savez_compressed if packed else np.savez)(folder / "a.npz", one=array, two=np.zeros(2))
    with open_arrays(folder / "a.npz") as members:
        assert members.names == ["one", "two"]
        assert "one" in members.names
        assert members.ndim("one") == array.ndim
        found = members["one"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    np.save(folder / "a.npy", array)
    stored = find_matrix(folder / "a.npy")
    assert (stored.shape, stored.dtype) == (array.shape, array.dtype)
    if array.ndim == 2:
        for first, last in ((0, len(array)), (len(array) - 1, len(array)), (0, 1)):
            np.testing.assert_array_equal(stored.read(first, last - first), array[first:last])


def archive(path: Path, member: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("X.npy", member)
    return path


def described(shape: str, descr: str = "'<f8'") -> bytes:
    return npy_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (described("(1000000000000, 3)") + bytes(24), "announces 24,000,000,000,000 bytes"),
        (described("(1, 3)") + bytes(32), "announces 24 bytes.*but 32 follow"),
        (described("(-1, 3)") + bytes(24), "damaged|cannot be read"),
        (described("(1, 3)", "'|O'") + bytes(24), "Python objects"),
        (described("(1, 3)", "[('a', '<f8')]") + bytes(24), "cannot be read"),
        (described("(1, 3)", "'|V8'") + bytes(24), "cannot be read"),
        (npy_header("[" * 5000), "damaged"),
        (b"\x93NUMPY\x03\0" + bytes(99), "version"),
        (b"words", "damaged"),
    ],
)
def test_headers_that_are_not_believed(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = archive(tmp_path / "a.npz", content)
    with pytest.raises(InvalidInputError, match=complaint) as error, open_arrays(path) as members:
        members["X"]
    assert str(error.value).startswith(str(path))
    if "but 32" not in complaint:  # a .npy file may be longer than it says
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"a\.npy: "):
            find_matrix(tmp_path / "a.npy")


def test_what_is_packed_is_limited(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros(100_000))
    with open_arrays(tmp_path / "a.npz") as members:
        assert members["X"].sum() == 0
    with (
        pytest.raises(InvalidInputError, match=r"has 800,128 bytes; at most [0-9,]+ are allowed"),
        open_arrays(tmp_path / "a.npz", is_packed=False) as members,
    ):
        members["X"]


def test_a_wrong_checksum_of_a_member_is_noticed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.arange(10.0))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    at = content.index(np.arange(10.0).tobytes()) + 79
    content[at] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidInputError, match="CRC"), open_arrays(tmp_path / "a.npz") as members:
        members["X"]


def test_other_names_and_missing_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros(1))
    with pytest.raises(InvalidInputError, match="holds no array 'Y'"), open_arrays(tmp_path / "a.npz") as m:
        m["Y"]
    with pytest.raises(FileNotFoundError), open_arrays(tmp_path / "nosuch.npz"):
        pass
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((0, 3)))
    (tmp_path / "empty.npy").write_bytes(buffer.getvalue())
    assert find_matrix(tmp_path / "empty.npy").shape == (0, 3)
