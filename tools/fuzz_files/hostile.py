"""Files made to harm: archives that lead out of their folder, sizes that nobody has, bombs, pickles."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .readers import CIFAR_FILES, READERS, Reader, cifar_records

_BY_NAME = {reader.name: reader for reader in READERS}
_BLOCK = 1 << 24
_BOMB = 128 * _BLOCK  # 2 GiB


@dataclass(frozen=True)
class Hostile:
    """A hostile file and the reader that it is meant for."""

    name: str
    reader: Reader
    make: Callable[[Path], Path]
    may_be_read: bool = False


def zeros_gz(head: bytes, n: int) -> bytes:
    """``head`` and then ``n`` zeros, about a thousandth of that in bytes: members of a gzip file follow each other."""
    block = gzip.compress(bytes(_BLOCK), mtime=0)
    return gzip.compress(head, mtime=0) + block * (n // _BLOCK)


# Archives.


def _archive(fill: Callable[[tarfile.TarFile], None]) -> Callable[[Path], Path]:
    """All members that are needed, and what ``fill`` adds."""

    def make(folder: Path) -> Path:
        (folder / "cifar10").mkdir()
        path = folder / "cifar10" / "cifar-10-binary.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            fill(tar)
            for name in CIFAR_FILES:
                _add(tar, f"cifar-10-batches-bin/{name}", cifar_records(1))
        return path

    return make


def _add(tar: tarfile.TarFile, name: str, content: bytes = b"", **changes: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in changes.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(content))


def _member(name: str, **changes: Any) -> Callable[[Path], Path]:
    return _archive(lambda tar: _add(tar, name, b"" if changes else b"x", **changes))


def _tar_bomb(header: Callable[[tarfile.TarInfo], bytes]) -> Callable[[Path], Path]:
    """A first member, by its header, and two gigabytes of zeros behind it."""

    def make(folder: Path) -> Path:
        (folder / "cifar10").mkdir()
        path = folder / "cifar10" / "cifar-10-binary.tar.gz"
        member = tarfile.TarInfo("big")
        member.size = _BOMB
        path.write_bytes(zeros_gz(header(member), _BOMB))
        return path

    return make


def _typed(kind: bytes) -> Callable[[tarfile.TarInfo], bytes]:
    def header(member: tarfile.TarInfo) -> bytes:
        member.type = kind
        return member.tobuf(tarfile.GNU_FORMAT)

    return header


# Arrays.


def npy_header(description: str, version: int = 1) -> bytes:
    """The beginning of a ``.npy`` file with this description of its array."""
    text = description.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text


def _described(shape: str, descr: str = "'<f8'") -> bytes:
    return npy_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")


def _file(name: str, content: bytes | Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content())
        return path

    return make


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def zip_bomb(name: str, head: bytes, n: int, others: dict[str, bytes]) -> bytes:
    """A zip file with a member of ``head`` and ``n`` zeros, deflated by blocks that repeat."""
    packer = zlib.compressobj(wbits=-15)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(_BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = first + block * (n // _BLOCK) + packer.flush(zlib.Z_FINISH)
    check = zlib.crc32(head)
    for _ in range(n // _BLOCK):
        check = zlib.crc32(_ZEROS, check)
    buffer = io.BytesIO(_zip(others))
    with zipfile.ZipFile(buffer, "a") as archive:
        info = zipfile.ZipInfo(f"{name}.npy")
        start = buffer.seek(archive.start_dir)
        info.compress_type, info.CRC, info.header_offset = zipfile.ZIP_DEFLATED, check, start
        info.compress_size, info.file_size = len(packed), len(head) + n
        buffer.write(info.FileHeader(zip64=False) + packed)
        archive.start_dir = buffer.tell()
        archive.filelist.append(info)
        archive.NameToInfo[info.filename] = info
        archive._didModify = True  # type: ignore[attr-defined]
    return buffer.getvalue()


_ZEROS = bytes(_BLOCK)


def _array(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values))
    return buffer.getvalue()


class _Trap:
    """What a pickle would run: it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def _pickled(name: str, member: str | None) -> Callable[[Path], Path]:
    """An array of objects, one of which makes a folder when it is unpickled."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        trap = np.array([[_Trap(folder.parent / "trapped")]], dtype=object)
        if member is None:
            np.save(path, trap, allow_pickle=True)
        else:
            np.savez(path, **{member: trap}, y=np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]
        return path

    return make


# Others.


def _png(width: int, height: int) -> bytes:
    """A valid one-bit image of that size, all black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(1)
    row = bytes(1 + (width + 7) // 8)
    rows = b"".join(packer.compress(row) for _ in range(min(height, 20_000))) + packer.flush()
    about = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", about) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _images(content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        valid = _BY_NAME["image folder png"].make(folder)
        valid.write_bytes(content())
        return valid

    return make


def _instead(reader: str, content: bytes) -> Callable[[Path], Path]:
    """The valid files of a reader, one of them with another content."""

    def make(folder: Path) -> Path:
        path = _BY_NAME[reader].make(folder)
        path.write_bytes(content)
        return path

    return make


def _long_parquet(folder: Path) -> Path:
    """Ten million equal rows, which take a few kilobytes, under the name of a coreset."""
    import pyarrow as pa
    from pyarrow import parquet

    path = _BY_NAME["coreset.parquet"].make(folder)
    metadata = parquet.read_schema(path).metadata
    n = 10_000_000
    table = pa.table({"row": np.zeros(n, dtype=np.int64), "weight": np.ones(n)}).replace_schema_metadata(metadata)
    parquet.write_table(table, path, row_group_size=n)
    return path


_IDX = "mnist/train-images-idx3-ubyte.gz"
_DEEP = b"[" * 200_000
_HUGE = "(1000000000000, 3)"
_LARGE = {"X": _described(_HUGE), "y": _array([1])}  # 24 TB, of which nothing is there
_DIMS = ">BBBB" + "I" * 3


def _mnist_with(content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = _BY_NAME["mnist"].make(folder)
        path.write_bytes(content())
        return path

    return make


_TAR, _NPZ, _NPY = _BY_NAME["cifar10 tar.gz"], _BY_NAME["source npz, compressed"], _BY_NAME["source npy"]
_CORE, _STREAM, _OWN = _BY_NAME["coreset.npz"], _BY_NAME["stream.npz"], _BY_NAME["own npz"]
_COVTYPE, _RUN = _BY_NAME["covtype npz"], _BY_NAME["run of a selection, npz"]

HOSTILE = (
    Hostile("member ../../evil", _TAR, _member("../../evil")),
    Hostile("member /evil", _TAR, _member("/evil")),
    Hostile("member a\\..\\evil", _TAR, _member("a\\..\\..\\evil")),
    Hostile("member C:/evil", _TAR, _member("C:/evil")),
    Hostile("symbolic link", _TAR, _member("link", type=tarfile.SYMTYPE, linkname="/etc")),
    Hostile("hard link", _TAR, _member("link", type=tarfile.LNKTYPE, linkname="../../evil")),
    Hostile("device", _TAR, _member("zero", type=tarfile.CHRTYPE, devmajor=1, devminor=5)),
    Hostile("named pipe", _TAR, _member("pipe", type=tarfile.FIFOTYPE)),
    Hostile("needed member as a link", _TAR, _member("test_batch.bin", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    Hostile("needed member twice", _TAR, _member("x/test_batch.bin")),
    Hostile("2 GiB member", _TAR, _tar_bomb(_typed(tarfile.REGTYPE))),
    Hostile("2 GiB PAX header", _TAR, _tar_bomb(_typed(tarfile.XHDTYPE))),
    Hostile("2 GiB name", _TAR, _tar_bomb(_typed(tarfile.GNUTYPE_LONGNAME))),
    Hostile("2 GiB of nothing", _TAR, _tar_bomb(lambda member: b"")),
    Hostile("npy of 24 TB", _NPY, _file("a.npy", _described(_HUGE) + bytes(64))),
    Hostile("npy of a negative size", _NPY, _file("a.npy", _described("(-1, 3)") + bytes(64))),
    Hostile("npy of sizes that overflow", _NPY, _file("a.npy", _described(f"({2**40}, {2**40})") + bytes(64))),
    Hostile("npy without columns of bytes", _NPY, _file("a.npy", _described("(10, 3)", "'|V0'") + bytes(64))),
    Hostile("npy of records", _NPY, _file("a.npy", _described("(2, 2)", "[('a', '<f8'), ('b', '|O')]") + bytes(64))),
    Hostile("npy with a deep header", _NPY, _file("a.npy", npy_header("[" * 5000) + bytes(64))),
    Hostile("npy with a pickle", _NPY, _pickled("a.npy", None)),
    Hostile("npz with a pickle", _NPZ, _pickled("a.npz", "X")),
    Hostile("coreset with a pickle", _CORE, _pickled("a.npz", "header")),
    Hostile("stream with a pickle", _STREAM, _pickled("a.npz", "header")),
    Hostile("own npz with a pickle", _OWN, _pickled("a.npz", "X")),
    Hostile("run with a pickle", _RUN, _pickled("a.npz", "run")),
    Hostile("covtype with a pickle", _COVTYPE, _pickled("covtype/covtype.npz", "X")),
    Hostile("npz of 24 TB", _NPZ, _file("a.npz", _zip({"X": _described(_HUGE)}))),
    Hostile("own npz of 24 TB", _OWN, _file("a.npz", _zip(_LARGE))),
    Hostile("covtype of 24 TB", _COVTYPE, _file("covtype/covtype.npz", _zip(_LARGE))),
    Hostile(
        "coreset of 8 TB", _CORE, _file("a.npz", _zip({"header": _array("{}"), "row": _described("(1000000000000,)")}))
    ),
    Hostile("run of 4 TB of letters", _RUN, _file("a.npz", _zip({"run": _described("()", "'<U1000000000'")}))),
    Hostile(
        "coreset, 2 GiB of zeros",
        _CORE,
        _file(
            "a.npz",
            lambda: zip_bomb(
                "row",
                _described(f"({_BOMB // 8},)", "'<i8'"),
                _BOMB,
                {"header": _array('{"format": "coresift.coreset"}'), "weight": _array([1.0])},
            ),
        ),
    ),
    Hostile(
        "run, 2 GiB of zeros",
        _RUN,
        _file("a.npz", lambda: zip_bomb("run", _described("()", f"'<U{_BOMB // 4}'"), _BOMB, {})),
    ),
    Hostile(
        "stream, 2 GiB of zeros",
        _STREAM,
        _file("a.npz", lambda: zip_bomb("header", _described("()", f"'<U{_BOMB // 4}'"), _BOMB, {})),
    ),
    Hostile("coreset of ten million equal rows", _BY_NAME["coreset.parquet"], _long_parquet),
    Hostile(
        "idx of 2^96 entries",
        _BY_NAME["idx.gz"],
        _file("a.gz", gzip.compress(struct.pack(_DIMS, 0, 0, 8, 3, *[2**32 - 1] * 3))),
    ),
    Hostile(
        "idx of no entries and 2 GiB behind",
        _BY_NAME["idx.gz"],
        _file("a.gz", lambda: zeros_gz(struct.pack(_DIMS, 0, 0, 8, 3, 0, 1, 1), _BOMB)),
    ),
    Hostile(
        "mnist, 2 GiB of zeros",
        _BY_NAME["mnist"],
        _mnist_with(lambda: zeros_gz(struct.pack(_DIMS, 0, 0, 8, 3, _BOMB // 784, 28, 28), _BOMB)),
    ),
    Hostile(
        "mnist of another shape, 2 GiB of zeros",
        _BY_NAME["mnist"],
        _mnist_with(lambda: zeros_gz(struct.pack(_DIMS, 0, 0, 8, 3, 2, _BOMB // 2, 1), _BOMB)),
    ),
    Hostile(
        "covtype.data.gz of one line of 2 GiB",
        _BY_NAME["covtype.data.gz"],
        _file("covtype/covtype.data.gz", lambda: zeros_gz(b"1", _BOMB)),
    ),
    Hostile("image of 3.6 billion pixels", _BY_NAME["image folder png"], _images(lambda: _png(60_000, 60_000))),
    Hostile("image of 169 million pixels", _BY_NAME["image folder png"], _images(lambda: _png(13_000, 13_000))),
    Hostile("source: image of 3.6 billion pixels", _BY_NAME["source png"], _images(lambda: _png(60_000, 60_000))),
    Hostile("source: image of 169 million pixels", _BY_NAME["source png"], _images(lambda: _png(13_000, 13_000))),
    Hostile("deep config.json", _BY_NAME["configuration of a run"], _instead("configuration of a run", _DEEP)),
    Hostile("deep result.json", _BY_NAME["result of a run"], _instead("result of a run", _DEEP)),
    Hostile("result.json without its parts", _BY_NAME["result of a run"], _instead("result of a run", b"{}")),
    Hostile(
        "result.json with wrong parts",
        _BY_NAME["result of a run"],
        _instead("result of a run", json.dumps({"seconds": {"x": 1}, "history": 3, "test": []}).encode()),
    ),
    Hostile("deep options", _BY_NAME["options in TOML"], _instead("options in TOML", b"seed = " + _DEEP)),
    Hostile(
        "safetensors with a header of 8 EB",
        _BY_NAME["checkpoint"],
        _instead("checkpoint", b"\xff" * 7 + b"\x7f" + b"{}"),
        may_be_read=True,  # the checkpoint before it is whole, and is taken
    ),
    Hostile(
        "model with a header of 8 EB",
        _BY_NAME["model of a run"],
        _instead("model of a run", b"\xff" * 7 + b"\x7f" + b"{}"),
    ),
)
