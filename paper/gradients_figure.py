"""The figure of :mod:`~paper.gradients`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .gradients import METHODS, MOMENTS, Measurement
from .plots import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILLION, figure_style

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
_QUOTIENTS = (0.22, 2.5)  # draws by norms go far below: the panels of the errors show how far
_MODELS = {"lenet": "LeNet-5", "mlp": "MLP"}
_NAMES = {"mnist": "MNIST", "digits": "digits"}
_TITLES = {"start": "before training", "middle": "half-way", "end": "trained"}


@dataclass(frozen=True)
class _Panel:
    """One network at one moment."""

    rows: Sequence[Measurement]

    @property
    def title(self) -> str:
        first = self.rows[0]
        return f"{_TITLES[first.moment]}: accuracy {first.accuracy:.1%}"

    @property
    def budgets(self) -> list[float]:
        return sorted({row.budget for row in self.rows})

    def errors(self, method: str) -> dict[float, np.ndarray]:
        """By budget, those at which the method was measured."""
        found = {
            budget: np.array([r.error for r in self.rows if (r.method, r.budget) == (method, budget)])
            for budget in self.budgets
        }
        return {budget: errors for budget, errors in found.items() if len(errors)}

    def expected(self, method: str) -> np.ndarray:
        """By the formula for the method, at every budget."""
        return np.array(
            [
                next(r.expected for r in self.rows if (r.method, r.budget) == (method, budget))
                for budget in self.budgets
            ]
        )


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _standard_error(errors: np.ndarray) -> float:
    """Of the root mean square, to first order; 0 of a single draw, which tells nothing of it."""
    if len(errors) < 2:
        return 0.0
    return float(np.std(errors**2, ddof=1) / (2.0 * _rms(errors) * np.sqrt(len(errors))))


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
        labelled = [axes[row, 0].get_legend_handles_labels() for row in (0, 1)]
        handles = {label: handle for pair in labelled for handle, label in zip(*pair, strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
        first = rows[0]
        figure.suptitle(
            f"Gradients of {first.n_samples:,} samples of {_NAMES.get(first.dataset, first.dataset)}, estimated from "
            "weighted subsets",
            size=11,
        )
    return figure


def _errors(ax: Axes, panel: _Panel) -> None:
    """Root mean squares, and the range of all draws."""
    ax.set_title(panel.title)
    _frame(ax, panel.budgets)
    ax.set_yscale("log")
    ax.axhline(1.0, color=BLACK, linewidth=1.0, dashes=(2, 2), label="1: as wrong as no gradient at all")
    ax.plot(panel.budgets, panel.expected("uniform"), label="uniform, by the formula", **_THEORY)
    for method in METHODS:
        if errors := panel.errors(method):
            least, most = ([end(drawn) for drawn in errors.values()] for end in (np.min, np.max))
            style = _LINES[method]
            ax.fill_between(list(errors), least, most, color=style["color"], alpha=0.13, linewidth=0)
            ax.plot(
                list(errors), list(map(_rms, errors.values())), label=_LABELS.get(method, method), **style
            )
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _quotients(ax: Axes, panel: _Panel) -> None:
    """Root mean squares over that of uniform draws by the formula, and their standard errors."""
    budgets, unit = panel.budgets, panel.expected("uniform")
    _frame(ax, budgets)
    ax.set_yscale("log", base=2)
    ax.axhline(1.0, **_THEORY)
    paper = {**_THEORY, "color": VERMILLION}
    ax.plot(budgets, panel.expected("paper") / unit, label="paper, by the formula", **paper)
    for method in METHODS:
        if errors := panel.errors(method):
            over = unit[[budgets.index(budget) for budget in errors]]
            middle = np.array([_rms(drawn) for drawn in errors.values()]) / over
            reach = np.array([_standard_error(drawn) for drawn in errors.values()]) / over
            style = _LINES[method]
            low = np.maximum(middle - reach, 1e-9)
            ax.fill_between(list(errors), low, middle + reach, color=style["color"], alpha=0.13, linewidth=0)
            ax.plot(list(errors), middle, **style)
    ax.set_ylim(*_QUOTIENTS)
    ax.set_yticks([0.25, 0.5, 1.0, 2.0])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")


def _frame(ax: Axes, budgets: Sequence[float]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(budgets))
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
