"""The figure of :mod:`~coresift.experiments.gradients`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION, figure_style
from .gradients import METHODS, MOMENTS, Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[str, dict[str, Any]] = {
    "uniform": {"color": BLACK, "marker": "o", "linestyle": ""},
    "uniform per class": {"color": ORANGE, "marker": "D", "linestyle": ":"},
    "paper": {"color": VERMILLION, "marker": "s", "linestyle": "--"},
    "ours": {"color": BLUE, "marker": "^", "linestyle": "-"},
    "ours refined": {"color": GREEN, "marker": "v", "linestyle": "-"},
    "gradient norms": {"color": PURPLE, "marker": "P", "linestyle": "-."},
}
_LABELS = {
    "uniform": "uniform, measured",
    "paper": "paper (Algorithm 1)",
    "ours": "ours (RBF)",
    "ours refined": "ours, refined",
    "gradient norms": "by gradient norms (knows the network)",
}
_THEORY: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "zorder": 1}
_QUOTIENTS = (1 / 12, 4.0)  # at most; below it are only the norms, which the panel above shows
_MODELS = {"lenet": "LeNet-5", "mlp": "MLP"}
_TITLES = {"start": "before training", "middle": "half-way", "end": "trained"}


@dataclass(frozen=True)
class _Panel:
    """One network at one moment."""

    rows: Sequence[Measurement]

    @property
    def title(self) -> str:
        first = self.rows[0]
        return f"{_TITLES[first.moment]}: accuracy {first.accuracy:.1%}"

    def rms(self, method: str, *, over_uniform: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Budgets, root mean square of the error, and its least and largest (2, budgets)."""
        here = [row for row in self.rows if row.method == method]
        budgets = sorted({row.budget for row in here})
        found = []
        for budget in budgets:
            errors = np.array([row.error for row in here if row.budget == budget])
            if over_uniform:
                errors = errors / self.expected(budget)
            found.append((float(np.sqrt(np.mean(errors**2))), float(errors.min()), float(errors.max())))
        values = np.array(found).reshape(-1, 3).T
        return np.array(budgets), values[0], values[1:]

    def expected(self, budget: float) -> float:
        """By the formula for uniform draws."""
        return next(row.expected for row in self.rows if (row.method, row.budget) == ("uniform", budget))


def draw(rows: Sequence[Measurement]) -> Figure:
    """Two rows of panels a network: the error, and its quotient by that of uniform draws; a column a moment."""
    models = list(dict.fromkeys(row.model for row in rows))
    moments = [moment for moment in MOMENTS if any(row.moment == moment for row in rows)]
    with figure_style():
        from matplotlib.figure import Figure

        heights = [2.5, 1.9] * len(models)
        figure = Figure(figsize=(10.0, sum(heights) + 1.3), layout="constrained")
        axes = figure.subplots(
            len(heights), len(moments), squeeze=False, height_ratios=heights, sharex=True, sharey="row"
        )
        for at, model in enumerate(models):
            for column, moment in enumerate(moments):
                panel = _Panel([row for row in rows if (row.model, row.moment) == (model, moment)])
                _errors(axes[2 * at, column], panel)
                _quotients(axes[2 * at + 1, column], panel)
            name = f"{_MODELS.get(model, model)}\n"
            axes[2 * at, 0].set_ylabel(f"{name}relative error\nof the gradient")
            axes[2 * at + 1, 0].set_ylabel(f"{name}error /\nuniform's")
        for ax in axes[-1]:
            ax.set_xlabel("samples in the subset (%)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        first = rows[0]
        figure.suptitle(
            f"Gradients of {first.n_samples:,} samples of {first.dataset}, estimated from subsets", size=11
        )
    return figure


def _errors(ax: Axes, panel: _Panel) -> None:
    budgets, *_ = panel.rms("uniform")
    ax.set_title(panel.title)
    _frame(ax, budgets)
    ax.set_yscale("log")
    ax.axhline(1.0, color=BLACK, linewidth=0.6, zorder=0)
    ax.plot(budgets, [panel.expected(b) for b in budgets], label="uniform, by the formula", **_THEORY)
    _lines(ax, panel, over_uniform=False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _quotients(ax: Axes, panel: _Panel) -> None:
    budgets, *_ = panel.rms("uniform")
    _frame(ax, budgets)
    ax.set_yscale("log", base=2)
    ax.axhline(1.0, **_THEORY)
    _lines(ax, panel, over_uniform=True)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, _QUOTIENTS[0]), min(high, _QUOTIENTS[1]))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")


def _lines(ax: Axes, panel: _Panel, *, over_uniform: bool) -> None:
    for method in METHODS:
        if not any(row.method == method for row in panel.rows):
            continue
        budgets, middle, ends = panel.rms(method, over_uniform=over_uniform)
        style = _LINES[method]
        ax.fill_between(budgets, *ends, color=style["color"], alpha=0.13, linewidth=0)
        ax.plot(budgets, middle, label=_LABELS.get(method, method), **style)


def _frame(ax: Axes, budgets: np.ndarray) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(budgets))
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
