"""The numbers that the paper prints, from ``paper/TABLE.toml``, with captions and labels.

Times are hours on the authors' machine. The paper's tables select every 20 epochs.
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
    """A number that keeps its printed digits: 0.110 is not 0.11 in a table of deviations."""

    digits: str

    def __new__(cls, digits: str) -> Figure:
        """Parse the digits."""
        number = super().__new__(cls, digits)
        number.digits = digits
        return number


def as_printed(value: float) -> str:
    """Format a number, with all printed digits if it comes from the paper."""
    return value.digits if isinstance(value, Figure) else f"{value:g}"


@dataclass(frozen=True)
class Source:
    """A table of the paper: caption and label of its LaTeX source, and the quantities it prints."""

    caption: str
    label: str
    quantities: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """What the paper prints for one method and budget; None is what it does not print."""

    accuracy: float | None = None  # test accuracy in per cent, mean and deviation of five runs
    deviation: float | None = None
    hours: float | None = None  # of training and selection


@dataclass(frozen=True)
class PaperFigures:
    """Everything that the paper prints about one data set."""

    table: str
    sources: tuple[Source, ...]
    entries: Mapping[tuple[str, float], Printed]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the paper's order."""
        return tuple(dict.fromkeys(method for method, _ in self.entries))

    @property
    def budgets(self) -> tuple[float, ...]:
        """The budgets, in the paper's order."""
        return tuple(dict.fromkeys(budget for _, budget in self.entries))

    def at(self, method: str, budget: float) -> Printed | None:
        """Return what is printed for a method and budget; FULL is the same at all budgets."""
        if method == "FULL" and self.budgets:
            budget = self.budgets[0]
        return self.entries.get((method, budget))

    def speed_up(self, method: str, budget: float) -> float | None:
        """Divide the hours of FULL by those of the method."""
        full, own = self.at("FULL", budget), self.at(method, budget)
        if full is None or own is None or not full.hours or not own.hours:
            return None
        return full.hours / own.hours


@cache
def paper_figures(table: str) -> PaperFigures:
    """Read the paper's numbers for a table; empty where the paper has none."""
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
                    # FULL is in the plain and in the warm-start table, and must agree
                    if entry.setdefault(quantity, value) != value:
                        raise ValueError(f"{file.name}: two values of {quantity} for {method} at {budget:g}")
    entries = {key: Printed(**values) for key, values in found.items()}
    return PaperFigures(table, tuple(sources), MappingProxyType(entries))
