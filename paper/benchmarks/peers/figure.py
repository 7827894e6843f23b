"""Error against time, one panel for each data set: down and to the left is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from paper.benchmarks.peers.report import cases, mean, subsets

# colour by family, filled if the points are rows of the data
LOOKS: dict[str, tuple[str, str, bool]] = {
    "uniform": ("#000000", "o", True),
    "k-means centres": ("#E69F00", "s", False),
    "k-means rows": ("#E69F00", "s", True),
    "apricot": ("#009E73", "P", True),
    "submodlib": ("#009E73", "X", True),
    "coreax herding": ("#56B4E9", "^", True),
    "coreax thinning": ("#56B4E9", "v", True),
    "goodpoints": ("#CC79A7", "D", True),
    "Wasserstein points": ("#8C6D31", "p", False),
    "Wasserstein rows": ("#8C6D31", "p", True),
    "coresift sample": ("#D55E00", "<", True),
    "coresift reweight": ("#D55E00", ">", True),
    "coresift refine": ("#D55E00", "*", True),
    "coresift cover": ("#D55E00", "P", True),
    "coresift cover, labels": ("#D55E00", "X", True),
}
_LEAST_SECONDS = 1e-3  # what is faster is drawn here


def draw(records: list[dict[str, Any]], out: Path) -> None:
    """peers.svg and peers.png."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = cases(records)
    if not panels:
        return
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "coresift"}
    columns = min(5, max(3, -(-len(panels) // 2)))
    height = -(-len(panels) // columns)
    with mpl.rc_context(style):
        figure, axes = plt.subplots(
            height,
            columns,
            figsize=(2.7 * columns, 2.7 * height + 1.1),
            squeeze=False,
            sharex=True,
            sharey=True,
            layout="constrained",
        )
        handles: dict[str, Any] = {}
        for ax, (case, size) in zip(axes.flat, panels, strict=False):
            for name, record in subsets(records, case, size):
                if record["status"] != "ok":
                    continue
                colour, marker, is_filled = LOOKS[name]
                handles[name] = ax.scatter(
                    max(record["processor"], _LEAST_SECONDS),
                    mean(record, name, "certified"),
                    s=110 if marker == "*" else 42,
                    marker=marker,
                    facecolor=colour if is_filled else "none",
                    edgecolor=colour,
                    linewidth=1.2,
                    zorder=3,
                )
            ax.set(xscale="log", yscale="log", title=f"{case}\nm = {size:,}")
            ax.title.set_fontsize(9.5)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(color="#DDDDDD", linewidth=0.5)
            ax.set_axisbelow(True)
        for ax in axes.flat[len(panels) :]:
            ax.axis("off")
        for ax in axes[:, 0]:
            ax.set_ylabel("certified error")
        for column in range(min(columns, len(panels))):
            last = max(row for row in range(height) if row * columns + column < len(panels))
            axes[last, column].set_xlabel("processor time, s")
            axes[last, column].tick_params(labelbottom=True)
        ordered = [name for name in LOOKS if name in handles]
        figure.legend(
            [handles[name] for name in ordered],
            ordered,
            loc="outside lower center",
            ncols=min(5, columns + 1),
            frameon=False,
        )
        figure.savefig(out / "peers.svg", metadata={"Date": None})
        figure.savefig(out / "peers.png", dpi=130)
        plt.close(figure)
