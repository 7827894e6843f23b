"""Data of the figures: rows of the data sets, chosen by a seed and prepared, from small files in the real layout."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coresift import InvalidInputError
from paper.figure_data import NAMES, Dataset, load_matrix
from tests.tiny_data import write_mnist


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_mnist(tmp_path / "mnist")
    X = np.random.default_rng(0).integers(0, 5, (40, 54)).astype(np.int16)
    X[:, 7] = 3
    (tmp_path / "covtype").mkdir()
    np.savez(tmp_path / "covtype" / "covtype_40.npz", X=X, y=np.arange(40) % 7 + 1)
    return tmp_path


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def load(name: str, data_dir: Path | None, max_rows: int = 1000, seed: int = 0) -> Dataset:
    return load_matrix(name, data_dir, max_rows, np.random.default_rng(seed))


def test_digits_need_no_files() -> None:
    digits = load("digits", None, 2000)
    np.testing.assert_array_equal(digits.X, load_digits().data)
    assert digits.preparation == "all 1,797 rows; columns as they are"


def test_mnist_is_training_pixels_between_0_and_1(data_dir: Path) -> None:
    mnist = load("mnist", data_dir)
    with gzip.open(data_dir / "mnist" / "train-images-idx3-ubyte.gz") as file:
        raw = np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 784)
    np.testing.assert_array_equal(mnist.X, raw / 255)
    assert mnist.preparation == f"all {len(raw)} rows; pixels over 255"


def test_covtype_is_standardised_without_constant_columns(data_dir: Path) -> None:
    covtype = load("covtype", data_dir)
    assert covtype.X.shape == (40, 53)
    np.testing.assert_allclose(covtype.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(covtype.X.std(axis=0), 1)
    assert covtype.preparation == "all 40 rows; columns to mean 0 and deviation 1, 1 constant ones left out"


def test_rows_are_those_of_the_committed_tables(data_dir: Path) -> None:
    """Drawn from the rows in the order of the file, by the first draw of the generator."""
    rows = np.sort(np.random.default_rng(3).choice(1797, 20, replace=False))
    np.testing.assert_array_equal(load("digits", None, 20, 3).X, load_digits().data[rows])
    raw = np.load(data_dir / "covtype" / "covtype_40.npz")["X"].astype(float)
    chosen = raw[np.sort(np.random.default_rng(3).choice(40, 20, replace=False))]
    chosen = chosen[:, chosen.min(axis=0) < chosen.max(axis=0)]
    expected = (chosen - chosen.mean(axis=0)) / chosen.std(axis=0)
    np.testing.assert_array_equal(load("covtype", data_dir, 20, 3).X, expected)


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


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda path: np.savez(path, Y=np.ones((3, 54))), "holds no array 'X'"),
        (lambda path: np.savez(path, X=np.ones((3, 53)), y=np.ones(3)), r"shape \(3, 53\)"),
        (lambda path: np.savez(path, X=np.ones(54), y=np.ones(54)), r"shape \(54,\)"),
        (lambda path: np.savez(path, X=np.full((3, 54), "a"), y=np.ones(3)), "columns of numbers"),
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
