"""Named data sets, from small files in the layout of the real ones."""

import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coresift import InvalidInputError
from paper.named import NAMES, find_file, load_named


def write_mnist(folder: Path, images: np.ndarray) -> None:
    folder.mkdir(parents=True)
    header = struct.pack(f">BBBB{images.ndim}I", 0, 0, 8, images.ndim, *images.shape)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes(), mtime=0))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    write_mnist(tmp_path / "mnist", rng.integers(0, 256, (30, 4, 4), dtype=np.uint8))
    X = rng.integers(0, 5, (40, 54)).astype(np.int16)
    X[:, 7] = 3
    (tmp_path / "covtype").mkdir()
    np.savez(tmp_path / "covtype" / "covtype_40.npz", X=X, y=np.arange(40) % 7 + 1)
    return tmp_path


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def load(name: str, data_dir: Path | None, max_rows: int = 1000, seed: int = 0):
    return load_named(name, data_dir, max_rows, np.random.default_rng(seed))


def test_digits_need_no_files() -> None:
    digits = load("digits", None, 2000)
    np.testing.assert_array_equal(digits.X, load_digits().data)
    assert digits.preparation == "all 1,797 rows; columns as they are"


def test_mnist_is_pixels_between_0_and_1(data_dir: Path) -> None:
    mnist = load("mnist", data_dir)
    with gzip.open(data_dir / "mnist" / "train-images-idx3-ubyte.gz") as file:
        raw = np.frombuffer(file.read()[16:], np.uint8).reshape(30, 16)
    np.testing.assert_array_equal(mnist.X, raw / 255)
    assert mnist.preparation == "all 30 rows; pixels over 255"


def test_covtype_is_standardised_without_constant_columns(data_dir: Path) -> None:
    covtype = load("covtype", data_dir)
    assert covtype.X.shape == (40, 53)
    np.testing.assert_allclose(covtype.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(covtype.X.std(axis=0), 1)
    assert covtype.preparation == "all 40 rows; columns to mean 0 and deviation 1, 1 constant ones left out"


@pytest.mark.parametrize("name", NAMES)
def test_a_subset_is_rows_of_the_data_chosen_by_the_seed(name: str, data_dir: Path) -> None:
    some, again, other = (load(name, data_dir, 20, seed) for seed in (0, 0, 1))
    assert len(some.X) == 20
    assert some.preparation.startswith("20 random rows of ")
    np.testing.assert_array_equal(some.X, again.X)
    assert not np.array_equal(some.X, other.X)
    if name != "covtype":  # which is standardised afterwards
        whole = {row.tobytes() for row in load(name, data_dir, 10**6).X}
        assert all(row.tobytes() in whole for row in some.X)
        assert len({row.tobytes() for row in some.X}) == 20


def test_what_is_missing_is_named(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'nosuch' is not one of digits, mnist, covtype"):
        load("nosuch", data_dir)
    with pytest.raises(InvalidInputError, match="'mnist' is read from files and needs a data folder"):
        load("mnist", None)
    with pytest.raises(InvalidInputError, match="nosuch: no such folder"):
        find_file("mnist", tmp_path / "nosuch")
    (data_dir / "mnist" / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(InvalidInputError, match=r"train-images-idx3-ubyte\.gz: no such file"):
        find_file("mnist", data_dir)
    (data_dir / "mnist").rmdir()
    with pytest.raises(InvalidInputError, match="mnist: no such folder"):
        find_file("mnist", data_dir)
    (data_dir / "covtype" / "covtype_2.npz").touch()
    with pytest.raises(InvalidInputError, match=r"one file covtype\*\.npz is needed there, 2 found"):
        find_file("covtype", data_dir)


def test_images_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", np.zeros((3, 4), np.uint8))
    with pytest.raises(InvalidInputError, match="bytes in three dimensions, these are uint8 in 2"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda path: np.savez(path, Y=np.ones((3, 54))), "holds no array 'X'"),
        (lambda path: np.savez(path, X=np.ones((3, 53))), r"shape \(3, 53\)"),
        (lambda path: np.savez(path, X=np.ones(54)), r"shape \(54,\)"),
        (lambda path: np.savez(path, X=np.full((3, 54), "a")), "columns of numbers"),
        (lambda path: np.savez(path, X=np.full((3, 54), None)), "damaged"),  # a pickle: never loaded
        (lambda path: path.write_bytes(b"nonsense"), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-50]), "damaged"),
        (lambda path: path.write_bytes(npy_bytes(np.ones((3, 54)))), "damaged"),
    ],
)
def test_a_damaged_covtype_is_refused(data_dir: Path, damage, complaint: str) -> None:
    path = data_dir / "covtype" / "covtype_40.npz"
    damage(path)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        load("covtype", data_dir)
    assert str(path) in str(error.value)
