"""The figures that the paper prints, as data: the files in ``paper`` hold its tables, with caption and label.

Times are hours on the authors' machine. A method is compared at the R of the paper's tables, 20 epochs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

REFERENCE = "Provable Data Subset Selection For Efficient Neural Network Training, arXiv:2303.05151"

_FOLDER = files(__package__) / "paper"
_QUANTITIES = ("accuracy", "deviation", "hours")


class Figure(float):
    """A number that keeps the digits with which it is printed: 0.110 is not 0.11 in a table of deviations."""

    digits: str

    def __new__(cls, digits: str) -> Figure:
        """From its digits."""
        number = super().__new__(cls, digits)
        number.digits = digits
        return number


def as_printed(value: float) -> str:
    """With all digits of the paper, where it is a figure of the paper."""
    return value.digits if isinstance(value, Figure) else f"{value:g}"


@dataclass(frozen=True)
class Source:
    """A table of the paper.

    Attributes
    ----------
    caption, label : str
        As in the paper's own source.
    quantities : tuple of str
        What it prints of every method and budget: accuracy and hours, or the deviation.
    """

    caption: str
    label: str
    quantities: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """What the paper prints of one method at one budget; None is what it does not print.

    Attributes
    ----------
    accuracy, deviation : float or None
        Of the test accuracy, in per cent: mean and standard deviation of five runs.
    hours : float or None
        Time to train, selection included.
    """

    accuracy: float | None = None
    deviation: float | None = None
    hours: float | None = None


@dataclass(frozen=True)
class PaperFigures:
    """All that the paper prints of one data set."""

    table: str
    sources: tuple[Source, ...]
    entries: Mapping[tuple[str, float], Printed]

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order of the paper."""
        return tuple(dict.fromkeys(method for method, _ in self.entries))

    @property
    def budgets(self) -> tuple[float, ...]:
        """In the order of the paper."""
        return tuple(dict.fromkeys(budget for _, budget in self.entries))

    def at(self, method: str, budget: float) -> Printed | None:
        """What is printed of a method at a budget, if anything is; FULL has the same figures at all of them."""
        if method == "FULL" and self.budgets:
            budget = self.budgets[0]
        return self.entries.get((method, budget))

    def speed_up(self, method: str, budget: float) -> float | None:
        """Hours of FULL over hours of the method."""
        full, own = self.at("FULL", budget), self.at(method, budget)
        if full is None or own is None or not full.hours or not own.hours:
            return None
        return full.hours / own.hours


@cache
def paper_figures(table: str) -> PaperFigures:
    """The paper's figures for a table of ours; empty where the paper has none."""
    file = _FOLDER / f"{table}.toml"
    if not file.is_file():
        return PaperFigures(table, (), MappingProxyType({}))
    sources: list[Source] = []
    found: dict[tuple[str, float], dict[str, float]] = {}
    for declared in tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Figure)["source"]:
        quantities = tuple(name for name in _QUANTITIES if name in declared)
        sources.append(Source(declared["caption"], declared["label"], quantities))
        for quantity in quantities:
            for method, values in declared[quantity].items():
                for budget, value in zip(map(float, declared["budgets"]), values, strict=True):
                    entry = found.setdefault((method, budget), {})
                    # FULL stands in the plain and in the warm table; were they to differ, neither could be shown.
                    if entry.setdefault(quantity, value) != value:
                        raise ValueError(f"{file.name}: two values of {quantity} for {method} at {budget:g}")
    entries = {key: Printed(**values) for key, values in found.items()}
    return PaperFigures(table, tuple(sources), MappingProxyType(entries))
