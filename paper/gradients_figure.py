"""The figure of :mod:`~paper.gradients`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .gradients import METHODS, MOMENTS, Measurement
from .plots import BLACK, LINES, VERMILLION, banded, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = LINES | {"uniform": LINES["uniform"] | {"linestyle": ""}}
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


def draw(rows: Sequence[Measurement]) -> Figure:
    """Draw two rows of panels a network: the error, and its quotient by that of uniform draws; a column a moment."""
    table = pd.DataFrame(rows)
    models = list(table["model"].unique())
    moments = [moment for moment in MOMENTS if moment in set(table["moment"])]
    heights = [2.5, 1.9] * len(models)
    with new_figure(10.0, sum(heights) + 1.3) as figure:
        axes = figure.subplots(
            len(heights), len(moments), squeeze=False, height_ratios=heights, sharex=True, sharey="row"
        )
        for at, model in enumerate(models):
            for column, moment in enumerate(moments):
                here = table[(table["model"] == model) & (table["moment"] == moment)]
                axes[2 * at, column].set_title(f"{_TITLES[moment]}: accuracy {here['accuracy'].iloc[0]:.1%}")
                _errors(axes[2 * at, column], here)
                _quotients(axes[2 * at + 1, column], here)
            name = f"{_MODELS.get(model, model)}\n"
            axes[2 * at, 0].set_ylabel(f"{name}relative error\nof the gradient")
            axes[2 * at + 1, 0].set_ylabel(f"{name}error /\nuniform's")
        for ax in axes[-1]:
            ax.set_xlabel("samples in the subset (%)")
        labelled = [axes[row, 0].get_legend_handles_labels() for row in (0, 1)]
        handles = {label: handle for pair in labelled for handle, label in zip(*pair, strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
        name = _NAMES.get(rows[0].dataset, rows[0].dataset)
        figure.suptitle(
            f"Gradients of {rows[0].n_samples:,} samples of {name}, estimated from weighted subsets", size=11
        )
    return figure


def _by_method(here: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Errors of each method, a row a budget at which it was measured and a column a draw."""
    errors = here.pivot(index="budget", columns=["method", "seed"], values="error")
    measured = errors.columns.unique("method")
    return {method: errors[method].dropna(how="all") for method in METHODS if method in measured}


def _rms(errors: pd.DataFrame) -> pd.Series:
    return np.sqrt((errors**2).mean(axis=1))


def _expected(here: pd.DataFrame, method: str) -> pd.Series:
    """By the formula for the method, at every budget."""
    return here[here["method"] == method].groupby("budget")["expected"].first()


def _errors(ax: Axes, here: pd.DataFrame) -> None:
    """Root mean squares, and the range of all draws."""
    uniform = _expected(here, "uniform")
    _frame(ax, uniform.index)
    ax.set_yscale("log")
    ax.axhline(1.0, color=BLACK, linewidth=1.0, dashes=(2, 2), label="1: as wrong as no gradient at all")
    ax.plot(uniform.index, uniform, label="uniform, by the formula", **_THEORY)
    for method, errors in _by_method(here).items():
        label = _LABELS.get(method, method)
        banded(ax, _rms(errors), errors.min(axis=1), errors.max(axis=1), label=label, **_LINES[method])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _quotients(ax: Axes, here: pd.DataFrame) -> None:
    """Root mean squares over that of uniform draws by the formula, and their standard errors."""
    unit, paper = _expected(here, "uniform"), _expected(here, "paper")
    _frame(ax, unit.index)
    ax.set_yscale("log", base=2)
    ax.axhline(1.0, **_THEORY)
    ax.plot(unit.index, paper / unit, label="paper, by the formula", **_THEORY | {"color": VERMILLION})
    for method, errors in _by_method(here).items():
        over, rms = unit[errors.index], _rms(errors)
        # of the root mean square, to first order; none from a single draw, which says nothing about it
        spread = ((errors**2).std(axis=1) / (2.0 * rms * np.sqrt(errors.count(axis=1)))).fillna(0.0)
        low = ((rms - spread) / over).clip(lower=1e-9)
        banded(ax, rms / over, low, (rms + spread) / over, **_LINES[method])
    ax.set_ylim(*_QUOTIENTS)
    ax.set_yticks([0.25, 0.5, 1.0, 2.0])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")


def _frame(ax: Axes, budgets: Sequence[float]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(budgets))
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
