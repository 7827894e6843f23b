"""Every reader of files that the package has: a small valid file for it, and a call that reads all of it."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from coresift import Coreset, RBFCoreset, StreamingCoreset, open_rows, select
from coresift._errors import InvalidInputError
from coresift.coresets import load_run
from coresift.data import load_dataset, read_idx
from coresift.rows.rows import Rows
from paper.bench.protocol import Run
from paper.bench.store import Store
from paper.figure_data import load_matrix
from paper.lower_bound import CircleSensitivities
from paper.tables import read_table, write_table


@dataclass(frozen=True)
class Reader:
    """A reader under test."""

    name: str
    make: Callable[[Path], Path]
    """Writes valid files into an empty folder, and returns the one to damage."""
    read: Callable[[Path], object]
    """Reads that file (and the others) to the end; what it returns is compared with that of the valid file."""
    is_checked: bool = False
    """Whether a checksum covers the content: then what is read is the original, or is refused."""
    writes: str | None = None
    """The folder, below that of ``make``, that reading may write to."""


def _rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    X[:2] *= 5
    return X


# Coresets, selections and streams.


def _coreset(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        RBFCoreset(random_state=0).fit(_rows()).sample(8).save(folder / name)
        return folder / name

    return make


def _selection(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        select(_rows(), 8, n_queries=0).save(folder / name)
        return folder / name

    return make


def _stream(folder: Path) -> Path:
    stream = StreamingCoreset(4, random_state=0)
    for part in range(6):
        stream.partial_fit(_rows() + part)
    stream.save(folder / "stream.npz")
    return folder / "stream.npz"


def _go_on(path: Path) -> object:
    stream = StreamingCoreset.load(path)
    try:
        stream.partial_fit(_rows())
        return stream.coreset()
    except InvalidInputError as error:  # a state that is valid and fits no data: said without the file's name
        raise InvalidInputError(f"{path}: {error}") from error


# Sources of rows.


def _npy(folder: Path) -> Path:
    np.save(folder / "rows.npy", _rows().astype(np.float32))
    return folder / "rows.npy"


def _npz(compress: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write = np.savez_compressed if compress else np.savez
        write(folder / "rows.npz", X=_rows(), y=np.arange(40) % 3, w=np.ones(40))
        return folder / "rows.npz"

    return make


def _csv(folder: Path) -> Path:
    lines = ["a,b,c,label", *(f"{a:.4f},{b:.4f},{c:.4f},{'ab'[int(a > 0)]}" for a, b, c in _rows())]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder / "rows.csv"


def _parquet(embedding: bool, compression: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import pyarrow as pa
        from pyarrow import parquet

        X = _rows()
        columns = {"v": list(X)} if embedding else {f"x{i}": X[:, i] for i in range(3)}
        table = pa.table({**columns, "label": [f"class {i % 3}" for i in range(40)]})
        parquet.write_table(table, folder / "rows.parquet", row_group_size=16, compression=compression)
        return folder / "rows.parquet"

    return make


def _read_source(**options: Any) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        rows: Rows = open_rows(path, **options)
        seen = 0
        for block in rows.blocks():
            assert block.start == seen, f"a block begins at {block.start}, not at {seen}"
            seen += block.n
            assert block.X.shape[1] == rows.d
            assert block.X.dtype == rows.dtype
        assert seen == rows.n, f"{seen} rows were read, {rows.n} were announced"
        return None

    return read


# Images and data sets for training.


def _image(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from PIL import Image

        pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        for label in ("cat", "dog"):
            (folder / label).mkdir()
            for i in range(2):
                Image.fromarray(pixels + np.uint8(i)).save(folder / label / f"{i}{name}")
        return folder / "cat" / f"0{name}"

    return make


def _decode(path: Path) -> object:
    data = load_dataset(path.parent.parent, image_size=8, test_fraction=0.5)
    for part in (data.train, data.test):
        for i in range(len(part)):
            assert part[i][0].shape == (3, 8, 8)
    return None


def _write_idx(path: Path, array: np.ndarray) -> None:
    content = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _idx(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        _write_idx(folder / name, np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4))
        return folder / name

    return make


def _mnist(folder: Path) -> Path:
    place = folder / "mnist"
    place.mkdir()
    rng = np.random.default_rng(0)
    for part, n in (("train", 12), ("t10k", 4)):
        _write_idx(place / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28), dtype=np.uint8))
        _write_idx(place / f"{part}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8) % 10)
    return place / "train-images-idx3-ubyte.gz"


def cifar_records(n: int) -> bytes:
    """Records of CIFAR-10: a label and an image each."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 4, (n, 3072), dtype=np.uint8)
    return np.hstack([(np.arange(n, dtype=np.uint8) % 10)[:, None], pixels]).tobytes()


CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


def _cifar_folder(folder: Path) -> Path:
    place = folder / "cifar10" / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    for name in CIFAR_FILES:
        (place / name).write_bytes(cifar_records(2))
    return place / CIFAR_FILES[2]


def _cifar_archive(compression: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "cifar10").mkdir()
        path = folder / "cifar10" / "cifar-10-binary.tar.gz"
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for name in CIFAR_FILES:
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = len(cifar_records(1))
                tar.addfile(member, io.BytesIO(cifar_records(1)))
        plain = content.getvalue()
        path.write_bytes(gzip.compress(plain, mtime=0) if compression else plain)
        return path

    return make


def _covtype(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "covtype").mkdir()
        rng = np.random.default_rng(0)
        X, y = rng.integers(0, 200, (30, 54)).astype(np.int16), 1 + np.arange(30) % 7
        path = folder / "covtype" / name
        if path.suffix == ".npz":
            np.savez_compressed(path, X=X, y=y)
        else:
            lines = "\n".join(",".join(map(str, [*row, label])) for row, label in zip(X, y, strict=True))
            path.write_bytes(gzip.compress(lines.encode(), mtime=0))
        return path

    return make


def _named(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        data = load_dataset(name, next(p for p in path.parents if p.name == name).parent)
        assert len(data.train) > 0
        assert np.isfinite(data.train.x).all()  # type: ignore[union-attr]
        return None

    return read


def _own(**options: Any) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        data = load_dataset(path, **options)
        assert np.isfinite(data.train.x).all()  # type: ignore[union-attr]
        return None

    return read


# Runs, tables, options.


def _run_folder(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with contextlib.suppress(KeyboardInterrupt):
            _train(folder / "run", stop="checkpoints" in name)
        return folder / "run" / name

    return make


def _train(out: Path, stop: bool = False) -> Any:
    import torch
    from torch import nn

    from coresift.training import train

    def on_epoch(metrics: dict[str, Any]) -> None:
        if stop and metrics["epoch"] == 2:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    X = _rows().astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    options: dict[str, Any] = {"epochs": 3, "test": (X, y), "device": "cpu", "checkpoint_seconds": 0.0}
    return train(model, (X, y), "adaptive-random", 0.5, out=out, on_epoch=on_epoch, **options)


def _train_again(path: Path) -> object:
    run = path.parents[1] if path.parent.name == "checkpoints" else path.parent
    found = _train(run)
    return [parameter.detach().numpy().tobytes() for parameter in found.model.parameters()]


def _table(folder: Path) -> Path:
    made: dict[str, Any] = {f.name: 3 if f.type == "int" else 0.5 for f in fields(CircleSensitivities)}
    write_table(folder / "table.csv", [CircleSensitivities(**made)] * 2)
    return folder / "table.csv"


def _records(folder: Path) -> Path:
    store = Store(folder, "mnist")
    for seed in range(2):
        cell = Run("mnist", 1, "paper", "RBF", 20, 0.01, seed)
        parts = dict.fromkeys(("selection", "training", "evaluation"), 1.5)
        numbers = {"n_epochs": 2, "subset_size": 6, "n_train": 60, "clock": "cpu"}
        record = {"id": cell.id, "cell": vars(cell), "config": {}, "test": {"accuracy": 0.5}, "seconds": parts}
        store.append({**record, **numbers})
    return store.file


def _good_records(path: Path) -> object:
    """Good records are kept whatever the others are; what is kept must be what was written."""
    found = Store(path.parents[1], "mnist").read()
    assert all(record["test"] == {"accuracy": 0.5} for record in found.records)
    if found.problems:
        raise InvalidInputError(found.problems[0])
    return None


def _toml(folder: Path) -> Path:
    np.save(folder / "rows.npy", _rows())
    lines = ['budget = "50%"', "seed = 3", 'loss = "gaussian"', "radius = 1.5", "queries = 0", "dry-run = true"]
    (folder / "options.toml").write_text("\n".join(lines) + "\n")
    return folder / "options.toml"


def _options(path: Path) -> object:
    from coresift.cli import main

    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main(["select", str(path.parent / "rows.npy"), "--config", str(path)])
    if code == 0:
        return None
    lines = error.getvalue().splitlines()
    assert code in (1, 2), code
    assert len(lines) == 1, lines
    assert "unexpected" not in lines[0], lines[0]
    raise InvalidInputError(f"{path}: {lines[0]}")


READERS = (
    Reader("coreset.npz", _coreset("core.npz"), Coreset.load, True),
    Reader("coreset.parquet", _coreset("core.parquet"), Coreset.load, True),
    Reader("run of a selection, npz", _selection("core.npz"), load_run),
    Reader("run of a selection, parquet", _selection("core.parquet"), load_run),
    Reader("stream.npz", _stream, _go_on, True),
    Reader("source npy", _npy, _read_source()),
    Reader("source npz", _npz(False), _read_source(label="y", weight="w")),
    Reader("source npz, compressed", _npz(True), _read_source(embedding="X")),
    Reader("source csv", _csv, _read_source(label="label")),
    Reader("source parquet", _parquet(False, "none"), _read_source(label="label")),
    Reader("source parquet, snappy", _parquet(False, "snappy"), _read_source()),
    Reader("source parquet, lists", _parquet(True, "zstd"), _read_source()),
    *(Reader(f"source {kind[1:]}", _image(kind), _read_source()) for kind in (".png", ".jpg", ".gif", ".bmp")),
    *(Reader(f"source {kind[1:]}", _image(kind), _read_source()) for kind in (".webp", ".tiff", ".ppm")),
    *(Reader(f"image folder {kind[1:]}", _image(kind), _decode) for kind in (".png", ".jpg", ".tiff")),
    Reader("idx", _idx("a-idx3-ubyte"), read_idx),
    Reader("idx.gz", _idx("a-idx3-ubyte.gz"), read_idx),
    Reader("mnist", _mnist, _named("mnist")),
    Reader(
        "mnist, figures",
        _mnist,
        lambda path: load_matrix("mnist", path.parent.parent, 99, np.random.default_rng(0)).name,
    ),
    Reader("cifar10 folder", _cifar_folder, _named("cifar10")),
    Reader("cifar10 tar", _cifar_archive(""), _named("cifar10")),
    Reader("cifar10 tar.gz", _cifar_archive("gz"), _named("cifar10")),
    Reader("covtype npz", _covtype("covtype.npz"), _named("covtype")),
    Reader("covtype.data.gz", _covtype("covtype.data.gz"), _named("covtype")),
    Reader("own npz", _npz(False), _own()),
    Reader("own csv", _csv, _own(label="label")),
    Reader("own parquet", _parquet(False, "snappy"), _own(label="label")),
    Reader("checkpoint", _run_folder("checkpoints/epoch-000002.safetensors"), _train_again, True, "run"),
    Reader("model of a run", _run_folder("model.safetensors"), _train_again, True, "run"),
    Reader("result of a run", _run_folder("result.json"), _train_again, writes="run"),
    Reader("configuration of a run", _run_folder("config.json"), _train_again, writes="run"),
    Reader("table of a figure", _table, lambda path: read_table(path, CircleSensitivities) and None),
    Reader("records of bench", _records, _good_records),
    Reader("options in TOML", _toml, _options),
)
