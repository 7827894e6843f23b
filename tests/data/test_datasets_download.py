"""Downloads, from a server of our own: asked for only, checked, and nothing left behind when they fail."""

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from coresift import InvalidInputError, MissingExtraError
from coresift.data import datasets, load_dataset, standard


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(
        struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes(), mtime=0
    )


CONTENTS = {
    "train-images-idx3-ubyte.gz": idx(np.ones((4, 28, 28), np.uint8)),
    "train-labels-idx1-ubyte.gz": idx(np.arange(4, dtype=np.uint8)),
    "t10k-images-idx3-ubyte.gz": idx(np.ones((2, 28, 28), np.uint8)),
    "t10k-labels-idx1-ubyte.gz": idx(np.arange(2, dtype=np.uint8)),
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served; MNIST and Fashion-MNIST are published there, after a mirror that does not answer."""
    pytest.importorskip("pooch")
    folder = tmp_path / "served"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    service = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=service.serve_forever, args=(0.02,), daemon=True).start()
    address = f"http://127.0.0.1:{service.server_port}/"
    files = tuple(
        standard.Download(name, (f"{address}gone/{name}", address + name), f"md5:{hashlib.md5(content).hexdigest()}")
        for name, content in CONTENTS.items()
    )
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("mnist", "fashion-mnist"):
        monkeypatch.setitem(datasets._NAMED, name, replace(datasets._NAMED[name], downloads=files))
    yield folder
    service.shutdown()
    service.server_close()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_what_is_missing_is_fetched_when_asked(server: Path, tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with pytest.raises(InvalidInputError, match="is not in"):
        load_dataset(name, data)
    assert not data.exists()
    splits = load_dataset(name, data, download=True)
    assert (len(splits.train), len(splits.test)) == (4, 2)
    assert {path.name: path.read_bytes() for path in (data / name).iterdir()} == CONTENTS
    for path in server.iterdir():  # from now on nothing is fetched
        path.unlink()
    load_dataset(name, data, download=True)


def test_only_missing_files_are_fetched(server: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    load_dataset("mnist", data, download=True)
    (data / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    (server / "train-images-idx3-ubyte.gz").unlink()
    assert len(load_dataset("mnist", data, download=True).test) == 2


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_a_wrong_checksum_is_refused_and_nothing_is_left(server: Path, tmp_path: Path, name: str) -> None:
    (server / "train-images-idx3-ubyte.gz").write_bytes(CONTENTS["t10k-images-idx3-ubyte.gz"])
    with pytest.raises(InvalidInputError, match=r"train-images-idx3-ubyte\.gz: could not be downloaded") as error:
        load_dataset(name, tmp_path / "data", download=True)
    assert "hash" in str(error.value)
    assert list((tmp_path / "data" / name).iterdir()) == []


def test_without_a_network_it_is_said_what_to_do(server: Path, tmp_path: Path, monkeypatch) -> None:
    known = datasets._NAMED["mnist"]
    nowhere = tuple(replace(file, urls=(f"http://127.0.0.1:1/{file.file}",)) for file in known.downloads)
    monkeypatch.setitem(datasets._NAMED, "mnist", replace(known, downloads=nowhere))
    with pytest.raises(InvalidInputError, match="put the file there by hand"):
        load_dataset("mnist", tmp_path / "data", download=True)


def test_without_pooch_the_extra_is_named(server: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"coresift\[io\]"):
        load_dataset("mnist", tmp_path / "data", download=True)


def test_a_folder_that_cannot_be_written_is_named(server: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(InvalidInputError, match="could not be downloaded"):
        load_dataset("mnist", tmp_path / "data", download=True)
