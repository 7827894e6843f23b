"""Small files in the layouts of the real data sets."""

import gzip
import struct
from pathlib import Path

import numpy as np

MNIST = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, *, compress: bool = True, n: tuple[int, int] = (30, 12)) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = []
    for count in n:
        arrays += [rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), (np.arange(count) % 10).astype(np.uint8)]
    for name, array in zip(MNIST, arrays, strict=True):
        content = idx(array)
        path = folder / (name + ".gz" if compress else name)
        path.write_bytes(gzip.compress(content, mtime=0) if compress else content)
    return arrays


def cifar_files(layout, n: int = 6) -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    files = {}
    for file in layout.files:
        labels = rng.integers(
            0, [20, 100][-layout.label_bytes :] if layout.label_bytes == 2 else [10], (n, layout.label_bytes)
        )
        files[file] = np.hstack([labels, rng.integers(0, 256, (n, 3072))]).astype(np.uint8).tobytes()
    names = [f"class_{i}" for i in range(layout.n_classes)]
    files[layout.names_file] = ("\n".join(names) + "\n\n").encode()
    return files


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_images(root: Path, names: list[str], n: int = 2, size: tuple[int, int] = (40, 30)) -> None:
    from PIL import Image

    for number, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for i in range(n):
            colour = (40 * number, 200, 10 * i)
            Image.new("RGB", size, colour).save(root / name / f"{name}_{i}.JPEG", quality=95)
