"""Draw small figures of the examples for docs/gallery.md: ``python tools/docs_gallery.py [NAME ...]``.

Each example runs as it stands; what it leaves behind, its data and its model, is drawn.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "figures"


def digits(figure: Any, left: dict[str, Any]) -> None:
    """Draw the digits with the largest weights (sklearn_example)."""
    order = np.argsort(-left["w"], kind="stable")[:16]
    for ax, row in zip(figure.subplots(2, 8).flat, order, strict=True):
        ax.imshow(left["X_core"][row].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"{left['w'][row]:.1f}", fontsize=8)
        ax.axis("off")


def predictions(figure: Any, left: dict[str, Any]) -> None:
    """Draw what the network says of test images, mistakes in red (images)."""
    import torch

    X, y = left["X"][1200:], np.asarray(left["y"][1200:])
    with torch.no_grad():
        said = left["model"](X).argmax(1).numpy()
    wrong = np.flatnonzero(said != y)[:4]
    rows = np.concatenate((np.flatnonzero(said == y)[:12], wrong))
    for ax, row in zip(figure.subplots(2, 8).flat, rows, strict=False):
        ax.imshow(X[row, 0], cmap="gray_r")
        ax.set_title(str(said[row]), fontsize=9, color="#D55E00" if said[row] != y[row] else "#000000")
        ax.axis("off")


def fit(figure: Any, left: dict[str, Any]) -> None:
    """Draw predictions against targets on the test part (regression)."""
    import torch

    with torch.no_grad():
        said = left["model"](left["X"][1000:]).numpy().ravel()
    ax = figure.subplots()
    target = left["y"][1000:].numpy()
    ax.plot(target, said, "o", color="#0072B2", alpha=0.6, markersize=3.5)
    ends = [target.min(), target.max()]
    ax.plot(ends, ends, color="#555555", linewidth=1)
    ax.set(xlabel="target", ylabel="prediction")


def masks(figure: Any, left: dict[str, Any]) -> None:
    """Draw an image, its mask, and what the network makes of it (segmentation)."""
    import torch

    with torch.no_grad():
        said = left["model"](left["images"][:1]).argmax(1)
    shown = {"image": left["images"][0, 0], "mask": left["masks"][0], "prediction": said[0]}
    for ax, (title, array) in zip(figure.subplots(1, 3), shown.items(), strict=True):
        ax.imshow(array, cmap="gray")
        ax.set_title(title)
        ax.axis("off")


FIGURES: dict[str, tuple[Callable[[Any, dict[str, Any]], None], tuple[float, float]]] = {
    "sklearn_example": (digits, (4.8, 1.6)),
    "images": (predictions, (4.8, 1.6)),
    "regression": (fit, (3.2, 2.4)),
    "segmentation": (masks, (4.8, 1.8)),
}


def main() -> None:
    """Draw all figures, or those named as arguments."""
    sys.path.insert(0, str(ROOT))
    from paper.plots import new_figure, save_figure

    for name in sys.argv[1:] or FIGURES:
        draw, (width, height) = FIGURES[name]
        left = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
        with new_figure(width, height) as figure:
            draw(figure, left)
            save_figure(figure, OUT / f"example-{name.replace('_', '-')}.svg")


if __name__ == "__main__":
    main()
