"""Named data sets for training, from small files in the layout of the real ones."""

import gzip
import io
import logging
import tarfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coresift import InvalidInputError
from coresift.data import DATASETS, ArrayDataset, DatasetSplits, LazyDataset, available_datasets, load_dataset
from coresift.data.splits import split_rows
from coresift.data.standard import CIFAR10, CIFAR100, PUBLISHED
from tests.tiny_data import MNIST, cifar_files, idx, write_files, write_images, write_mnist


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORESIFT_DATA_DIR", raising=False)


def write_archive(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for member in more:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def ready_for_tensors(splits: DatasetSplits) -> None:
    for part in (splits.train, splits.test):
        assert all(array.flags.writeable and array.flags.c_contiguous for array in (part.x, part.y))


def test_digits_are_whole_split_by_class_and_large() -> None:
    digits = load_dataset("digits")
    assert (len(digits.train), len(digits.test), digits.n_classes) == (1438, 359, 10)
    assert digits.input_shape == (1, 28, 28)
    assert digits.train.x.dtype == np.uint8
    assert digits.train.y.dtype == np.int64
    counts = np.bincount(load_digits().target)
    np.testing.assert_array_equal(np.bincount(digits.test.y), np.round(0.2 * counts))
    np.testing.assert_array_equal(np.bincount(digits.train.y) + np.bincount(digits.test.y), counts)
    values = digits.train.x / 255
    np.testing.assert_allclose([values.mean(), values.std()], [digits.mean[0], digits.std[0]], rtol=1e-9)


def test_a_digit_keeps_its_picture() -> None:
    digits, known = load_dataset("digits"), load_digits()
    train, _ = split_rows(known.target, "classification", 0.2, 0, "digits")
    near = np.rint(3.5 * np.arange(8) + 1.25).astype(int)  # where the middles of the 8 pixels come to lie among 28
    small = digits.train.x[:, 0][:, near][:, :, near] * (16 / 255)
    np.testing.assert_array_equal(digits.train.y, known.target[train])
    assert np.abs(small - known.images[train]).mean() < 0.5
    assert np.abs(small.transpose(0, 2, 1) - known.images[train]).mean() > 2  # as wrong images would be


@pytest.mark.slow
def test_the_split_follows_from_the_seed() -> None:
    first, again, other = (load_dataset("digits", seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.test.x, again.test.x)
    assert not np.array_equal(first.test.x, other.test.x)
    assert len(load_dataset("digits", test_fraction=0.5).test) == pytest.approx(1797 / 2, abs=5)
    rows = {row.tobytes() for row in first.train.x}
    assert sum(row.tobytes() in rows for row in first.test.x) < 3  # parts share no sample (a few digits occur twice)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_mnist_is_read_as_written(tmp_path: Path, compress: bool, folder: str, caplog) -> None:
    arrays = write_mnist(tmp_path / folder, compress=compress)
    mnist = load_dataset("mnist", tmp_path)
    for part, (images, labels) in zip((mnist.train, mnist.test), (arrays[:2], arrays[2:]), strict=True):
        assert isinstance(part, ArrayDataset)
        assert part.x.dtype == np.uint8
        assert part.y.dtype == np.int64
        np.testing.assert_array_equal(part.x[:, 0], images)
        np.testing.assert_array_equal(part.y, labels)
    assert (mnist.mean, mnist.std, mnist.n_classes) == ((0.1307,), (0.3081,), 10)
    assert (mnist.input_shape, mnist.augmentation, mnist.task) == ((1, 28, 28), None, "classification")
    ready_for_tensors(mnist)
    assert "not the whole data set" in caplog.text  # 30 images are not 60,000, and this is said


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist_has_its_own_files_statistics_and_classes(tmp_path: Path, folder: str, caplog) -> None:
    digits, arrays = write_mnist(tmp_path / "mnist", n=(20, 10)), write_mnist(tmp_path / folder)
    fashion, mnist = load_dataset("fashion-mnist", tmp_path), load_dataset("mnist", tmp_path)
    for part, (images, labels) in zip((fashion.train, fashion.test), (arrays[:2], arrays[2:]), strict=True):
        np.testing.assert_array_equal(part.x[:, 0], images)
        np.testing.assert_array_equal(part.y, labels)
    np.testing.assert_array_equal(mnist.train.x[:, 0], digits[0])
    assert (fashion.name, fashion.mean, fashion.std, fashion.n_classes) == ("fashion-mnist", (0.286,), (0.353,), 10)
    assert (fashion.input_shape, fashion.augmentation, fashion.task) == ((1, 28, 28), None, "classification")
    assert fashion.class_names == (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    assert mnist.class_names == tuple("0123456789")
    ready_for_tensors(fashion)
    assert "fashion-mnist: 30 + 12 samples, but 60000 + 10000 are published" in caplog.text


@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
def test_files_of_mnist_are_not_taken_for_fashion_mnist(tmp_path: Path, folder: str) -> None:
    """The four files have the same names."""
    write_mnist(tmp_path / folder)
    with pytest.raises(InvalidInputError, match=r"train-images-idx3-ubyte\.gz, .* missing"):
        load_dataset("fashion-mnist", tmp_path)


def test_no_two_published_files_share_an_address_or_a_checksum() -> None:
    files = [file for known in PUBLISHED.values() for file in known["downloads"]]
    for values in ([file.checksum for file in files], [url for file in files for url in file.urls]):
        assert len(set(values)) == len(values) >= len(files)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        (0, gzip.compress(idx(np.zeros((30, 28, 28), np.uint8)), mtime=0)[:-40], "damaged or cut off"),
        (0, gzip.compress(idx(np.zeros((30, 28, 28), np.uint8))[:-1], mtime=0), "announces"),
        (0, gzip.compress(b"\0\0\x07\x03" + b"\0" * 12, mtime=0), "not an IDX file"),
        (0, gzip.compress(idx(np.zeros((30, 27, 28), np.uint8)), mtime=0), r"\(n, 28, 28\) are needed"),
        (0, gzip.compress(idx(np.zeros(30, np.uint8)), mtime=0), r"\(n, 28, 28\) are needed"),
        (1, gzip.compress(idx(np.zeros((30, 1), np.uint8)), mtime=0), "one byte per image"),
        (1, gzip.compress(idx(np.zeros(29, np.uint8)), mtime=0), "29 labels, but .* has 30 images"),
        (3, gzip.compress(idx(np.full(12, 10, np.uint8)), mtime=0), "the label 10"),
        (2, b"", "begins with nothing|damaged"),
    ],
)
def test_a_bad_mnist_file_is_named(tmp_path: Path, name: str, file: int, content: bytes, complaint: str) -> None:
    write_mnist(tmp_path / name)
    path = tmp_path / name / (MNIST[file] + ".gz")
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        load_dataset(name, tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("layout", [CIFAR10, CIFAR100])
@pytest.mark.parametrize("place", ["folder", "files", "beside", "archive"])
def test_cifar_is_read_as_written(tmp_path: Path, layout, place: str) -> None:
    files, published = cifar_files(layout), PUBLISHED[layout.name]
    beside = published["folders"][2]
    if place == "archive":
        inside = {f"{beside}/{name}": content for name, content in files.items()}
        write_archive(tmp_path / layout.name / published["choices"][1][0], inside)
    else:
        folders = {"folder": f"{layout.name}/{beside}", "files": layout.name, "beside": beside}
        write_files(tmp_path / folders[place], files)
    before = sorted(tmp_path.rglob("*"))
    cifar = load_dataset(layout.name, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked
    content = b"".join(files[name] for name in layout.files[:-1])
    start, at = layout.label_bytes, 2 * layout.record  # the third record
    assert len(cifar.train) == 6 * len(layout.files[:-1])
    assert len(cifar.test) == 6
    assert cifar.train.y[2] == content[at + start - 1]
    # channels, rows, columns
    assert cifar.train.x[2, 1, 5, 7] == content[at + start + 1024 + 5 * 32 + 7]
    assert cifar.test.x[0, 0, 0, 0] == files[layout.files[-1]][start]
    assert (cifar.n_classes, cifar.augmentation) == (layout.n_classes, "crop-flip")
    assert cifar.class_names[-1] == f"class_{layout.n_classes - 1}"
    assert (cifar.train.x.dtype, cifar.train.y.dtype) == (np.uint8, np.int64)
    ready_for_tensors(cifar)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a whole number of records"),
        (b"\0" * 3072, "not a whole number of records of 3,073 bytes"),
        (b"\x80\x04" + b"\0" * 4000, "not a whole number of records"),  # a pickle: the python version
        (b"\x0a" + b"\0" * 3072, "the label 10; classes are 0 to 9"),
        (b"\0" * (3073 * 10_000 + 1), "longer than 30,730,000 bytes"),
    ],
)
def test_a_bad_cifar_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    write_files(folder, {**cifar_files(CIFAR10), "data_batch_3.bin": content})
    with pytest.raises(InvalidInputError, match=complaint) as error:
        load_dataset("cifar10", tmp_path)
    assert str(error.value).startswith(str(folder / "data_batch_3.bin"))


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, target
    return info


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (member("../evil"), "lead out"),
        (member("cifar/../../evil"), "lead out"),
        (member("/etc/evil"), "lead out"),
        (member("..\\evil"), "lead out"),
        (member("C:\\evil"), "lead out"),
        (member("data_batch_1.bin", tarfile.SYMTYPE, target="/etc/passwd"), "neither a file nor a folder"),
        (member("a", tarfile.LNKTYPE, target="b"), "neither a file nor a folder"),
        (member("a", tarfile.FIFOTYPE), "neither a file nor a folder"),
        (member("a", tarfile.CHRTYPE), "neither a file nor a folder"),
        (member("x/test_batch.bin", size=3073), "holds test_batch.bin twice"),
        (member("x/test_batch.bin", size=3073 * 10_000 + 1), "at most 30,730,000"),
    ],
)
def test_an_archive_with_bad_members_is_refused(tmp_path: Path, bad: tarfile.TarInfo, complaint: str) -> None:
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    write_archive(path, cifar_files(CIFAR10), bad)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        load_dataset("cifar10", tmp_path)
    assert str(path) in str(error.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cifar100" / "cifar-100-binary.tar.gz"
    files = cifar_files(CIFAR100)
    write_archive(path, files)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"nonsense", b"", whole[:20] + b"\0" * 50 + whole[70:]):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="damaged or cut off") as error:
            load_dataset("cifar100", tmp_path)
        assert str(path) in str(error.value)
    del files["test.bin"]
    write_archive(path, files)
    with pytest.raises(InvalidInputError, match=r"holds no test\.bin"):
        load_dataset("cifar100", tmp_path)


def write_covtype(folder: Path, n: int = 700) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 50, (n, 54)).astype(np.int16)
    X[:, 7] = 3
    y = rng.choice(np.arange(1, 8), n, p=[0.4, 0.4, 0.1, 0.04, 0.03, 0.02, 0.01])
    X[:, 0] = 10 * y
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "covtype_700.npz", X=X, y=y)
    return X, y


def test_covtype_is_split_by_class_and_standardised_by_its_training_part(tmp_path: Path) -> None:
    _, y = write_covtype(tmp_path / "covtype")
    covtype = load_dataset("covtype", tmp_path)
    x = covtype.train.x.astype(np.float64)
    assert covtype.train.x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(np.delete(x.std(axis=0), 7), 1, atol=1e-6)
    np.testing.assert_array_equal(x[:, 7], 0)
    assert np.abs(covtype.test.x.mean(axis=0)).max() > 1e-3  # the test part was not looked at
    counts = np.bincount(y - 1)
    np.testing.assert_array_equal(np.bincount(covtype.test.y, minlength=7), np.round(0.2 * counts))
    np.testing.assert_array_equal(np.bincount(covtype.train.y) + np.bincount(covtype.test.y, minlength=7), counts)
    assert "standardised with mean and deviation of the training part" in covtype.preparation
    for part in (covtype.train, covtype.test):  # rows keep their labels: the first column grows with them
        order = np.argsort(part.x[:, 0])
        assert np.all(np.diff(part.y[order]) >= 0)


def test_covtype_from_the_published_table(tmp_path: Path) -> None:
    X, y = write_covtype(tmp_path / "npz")
    text = "\n".join(",".join(map(str, [*row, label])) for row, label in zip(X, y, strict=True)).encode()
    (tmp_path / "covtype").mkdir()
    (tmp_path / "covtype" / "covtype.data.gz").write_bytes(gzip.compress(text, mtime=0))
    (table, npz) = load_dataset("covtype", tmp_path), load_dataset("covtype", tmp_path / "npz")
    np.testing.assert_array_equal(table.train.x, npz.train.x)
    np.testing.assert_array_equal(table.test.y, npz.test.y)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"X": np.ones((3, 54))}, "holds no array 'y'"),
        ({"X": np.ones((3, 53)), "y": np.ones(3)}, r"shape \(3, 53\)"),
        ({"X": np.ones((3, 54)), "y": np.ones(2)}, "one number from 1 to 7 for each of 3 rows"),
        ({"X": np.ones((3, 54)), "y": np.array([0, 1, 2])}, "from 1 to 7"),
        ({"X": np.full((3, 54), np.nan), "y": np.ones(3)}, "not finite"),
        ({"X": np.full((3, 54), None), "y": np.ones(3)}, "damaged"),  # a pickle: never loaded
    ],
)
def test_a_bad_covtype_file_is_named(tmp_path: Path, arrays: dict, complaint: str) -> None:
    np.savez(tmp_path / "covtype.npz", **arrays)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        load_dataset("covtype", tmp_path)
    assert str(tmp_path / "covtype.npz") in str(error.value)


@pytest.mark.parametrize("content", [b"1,2,x\n3,4,5", gzip.compress(b"1,2,3", mtime=0)[:-5], b"1,2\n3"])
def test_a_bad_covtype_table_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("covtype.data.gz" if content[:2] == b"\x1f\x8b" else "covtype.data")
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"{path.name}: not a table of integers, or damaged"):
        load_dataset("covtype", tmp_path)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_what_is_missing_is_said_with_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError) as error:
        load_dataset(name, tmp_path)
    text = str(error.value)
    assert f"{name!r} is not in {tmp_path}" in text
    assert "--data-dir" in text
    if name == "imagenet":
        assert "imagenet/train/CLASS/*.JPEG" in text
    else:
        assert f"Download {PUBLISHED[name]['downloads'][0].urls[0]}" in text
        assert str(tmp_path / name) in text
    monkeypatch.setenv("CORESIFT_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(InvalidInputError, match=f"is not in {tmp_path / 'elsewhere'}"):
        load_dataset(name)


def test_single_missing_files_are_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InvalidInputError) as error:
        load_dataset("mnist", tmp_path)
    assert "t10k-labels-idx1-ubyte.gz missing" in str(error.value)
    assert "train-images" not in str(error.value)
    files = cifar_files(CIFAR10)
    del files["data_batch_4.bin"]
    write_files(tmp_path / "cifar10", files)
    with pytest.raises(InvalidInputError, match=r"data_batch_4\.bin missing"):
        load_dataset("cifar10", tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match=r": val missing.*imagenet/val/CLASS"):
        load_dataset("imagenet", tmp_path)


def test_available_datasets_say_what_is_there(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    infos = {info.name: info for info in available_datasets(tmp_path)}
    assert tuple(infos) == DATASETS
    assert {name for name, info in infos.items() if info.is_present} == {"digits", "mnist"}
    assert infos["mnist"].where == str(tmp_path / "mnist")
    assert infos["cifar10"].where == str(tmp_path / "cifar10")
    assert all(info.description and "\n" not in info.description for info in infos.values())
    for number in (1, 2):  # which of them is it? said, and no reason not to list the others
        (tmp_path / f"covtype{number}.npz").touch()
    again = {info.name: info for info in available_datasets(tmp_path)}["covtype"]
    assert not again.is_present
    assert "one file covtype*.npz is needed" in again.where
    with pytest.raises(InvalidInputError, match="not 2"):
        load_dataset("covtype", tmp_path)


@pytest.mark.slow
def test_options_of_other_data_are_refused(tmp_path: Path) -> None:
    for options in ({"label": "y"}, {"test": (1, 2)}, {"task": "regression"}):
        with pytest.raises(InvalidInputError, match="for your own data"):
            load_dataset("digits", **options)
    with pytest.raises(InvalidInputError, match="image_size = 30: 'digits' has one size only"):
        load_dataset("digits", image_size=30)
    for fraction in (0, 1, -0.1, 2.0, float("nan")):
        with pytest.raises(InvalidInputError, match="test_fraction"):
            load_dataset("digits", test_fraction=fraction)


def test_imagenet_is_listed_and_decoded_when_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    names = ["n03", "n01", "n02"]
    write_images(tmp_path / "imagenet" / "train", names, 3)
    write_images(tmp_path / "imagenet" / "val", names[:2], 1)
    (tmp_path / "imagenet" / "train" / "n01" / "notes.txt").write_text("no image")
    imagenet = load_dataset("imagenet", tmp_path)
    assert isinstance(imagenet.train, LazyDataset)
    assert imagenet.class_names == ("n01", "n02", "n03")
    np.testing.assert_array_equal(imagenet.train.y, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(imagenet.test.y, [0, 2])
    assert (imagenet.input_shape, imagenet.augmentation) == ((3, 224, 224), "resized-crop-flip")
    image = imagenet.train.load(8)  # of n03, written first
    assert (image.shape, image.dtype) == ((3, 224, 224), np.uint8)
    np.testing.assert_allclose(image.mean(axis=(1, 2)), [0, 200, 20], atol=3)
    assert "not the whole data set" in caplog.text
    small = load_dataset("imagenet", tmp_path, image_size=16)
    assert small.train.load(0, np.random.default_rng(0)).shape == small.input_shape == (3, 16, 16)
