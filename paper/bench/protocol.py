"""What a table consists of: methods, budgets, seeds and how to train, as the files in ``tables`` declare it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from coresift._errors import InvalidInputError
from coresift._validation import check_count

PAPER_SCALE = "paper"
CURVE_SAMPLES = 2500  # of the test set, at most: what the curves of a run are measured on
_SCALED = "scaled down"
_DEFAULT_TRAINING = {"loss": "cross_entropy", "model_options": {}}
_TABLES = files(__package__) / "tables"


@dataclass(frozen=True, order=True)
class Method:
    """A strategy, and the epochs between two of its selections."""

    name: str
    select_every: int
    label: str = field(compare=False, default="")

    def __str__(self) -> str:
        return self.label or f"{self.name}@{self.select_every}"


@dataclass(frozen=True, order=True)
class Cell:
    """One run: everything in it follows from this, the data and the version of the protocol."""

    table: str
    protocol: int
    scale: str
    method: str
    select_every: int
    budget: float
    seed: int

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name the cell in the store."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        share = "" if self.method == "FULL" else f", {100 * self.budget:g} %"
        return f"{self.method}@{self.select_every}{share}, seed {self.seed}"


@dataclass(frozen=True)
class Protocol:
    """A table to fill.

    Attributes
    ----------
    table, title, scale, scale_title, scale_note : str
        ``scale`` is "paper", or the name of another that the table declares; ``scale_title`` says in a few words what
        that is, ``scale_note`` in a sentence. Neither belongs to what names a record.
    version : int
        Of the protocol: results of two versions are never mixed.
    methods : tuple of Method
    budgets : tuple of float
    seeds : int
    select_every : int
        For methods that are named without one.
    dataset : str
    training : dict
        Arguments of ``train``, and the model.
    assumptions : tuple of str
        What the paper does not print.
    """

    table: str
    title: str
    version: int
    scale: str
    scale_title: str
    scale_note: str
    methods: tuple[Method, ...]
    budgets: tuple[float, ...]
    seeds: int
    select_every: int
    dataset: str
    training: dict[str, Any]
    assumptions: tuple[str, ...]

    @property
    def config(self) -> dict[str, Any]:
        """What a record says of how its run was trained."""
        return {"dataset": self.dataset, **self.training}

    def method(self, text: str) -> Method:
        """``RBF`` or ``RBF@1``, in any case."""
        from coresift.selection import registry

        name, _, every = text.strip().upper().replace("_", "-").partition("@")
        if name not in registry():
            raise InvalidInputError(f"method {text!r} is unknown; there are {', '.join(registry())}.")
        if every and not every.isdecimal():
            raise InvalidInputError(
                f"method {text!r}: after the @ comes the number of epochs, as in {name}@1."
            )
        select_every = check_count(int(every), f"select_every of {text!r}") if every else self.select_every
        own = "" if select_every == self.select_every else f"@{select_every}"
        return Method(name, select_every, f"{name}{own}")

    def narrowed(
        self,
        methods: Sequence[str] | None = None,
        budgets: Iterable[float] | None = None,
        seeds: int | None = None,
    ) -> Protocol:
        """The same protocol with other methods, budgets or seeds: those that are in it already are the same cells."""
        changes: dict[str, Any] = {}
        if methods is not None:
            changes["methods"] = tuple(dict.fromkeys(self.method(each) for each in methods))
        if budgets is not None:
            changes["budgets"] = tuple(dict.fromkeys(check_share(each) for each in budgets))
        if seeds is not None:
            changes["seeds"] = check_count(seeds, "seeds")
        return dataclasses.replace(self, **changes)

    def cells(self) -> list[Cell]:
        """All runs: seed by seed, the cheap budgets first; FULL is one run for all budgets, and comes last."""
        found = []
        for seed in range(self.seeds):
            for budget in sorted(self.budgets):
                for method in self.methods:
                    if method.name != "FULL":
                        found.append(self.cell(method, budget, seed))
        full = [method for method in self.methods if method.name == "FULL"]
        return found + [self.cell(method, 1.0, seed) for seed in range(self.seeds) for method in full]

    def cell(self, method: Method, budget: float, seed: int) -> Cell:
        """One of the runs."""
        every = method.select_every
        return Cell(self.table, self.version, self.scale, method.name, every, budget, seed)


def check_share(budget: float) -> float:
    """A budget as a share of the training samples."""
    if not 0.0 < budget <= 1.0:
        raise InvalidInputError(f"budget {budget:g} must be a share above 0 and at most 1 (5% is 0.05).")
    return float(budget)


def table_names() -> tuple[str, ...]:
    """The tables there are."""
    found = (entry.name.removesuffix(".toml") for entry in _TABLES.iterdir() if entry.name.endswith(".toml"))
    order = ("mnist", "cifar10", "cifar100", "imagenet")
    return tuple(sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name)))


def load_protocol(table: str, scale: str = PAPER_SCALE) -> Protocol:
    """The protocol of a table, as printed or at another scale that its file declares."""
    if table not in table_names():
        raise InvalidInputError(f"table {table!r} is unknown; there are {', '.join(table_names())}.")
    declared = dict(_declared(table))
    scales = declared.pop("scale", {})
    training = {**_DEFAULT_TRAINING, **declared.pop("training")}
    title = note = ""
    if scale != PAPER_SCALE:
        if scale not in scales:
            known = ", ".join([PAPER_SCALE, *scales])
            raise InvalidInputError(f"scale {scale!r} is unknown to the table {table}; there are {known}.")
        changes = dict(scales[scale])
        title, note = changes.pop("title", _SCALED), changes.pop("note")
        training |= changes.pop("training", {})
        declared |= changes
    methods = declared.pop("methods")
    protocol = Protocol(
        table=table,
        version=declared.pop("protocol"),
        scale=scale,
        scale_title=title,
        scale_note=note,
        methods=(),
        budgets=tuple(declared.pop("budgets")),
        assumptions=tuple(declared.pop("assumptions")),
        training=training,
        **declared,
    )
    return protocol.narrowed(methods=methods)


@cache
def _declared(table: str) -> dict[str, Any]:
    return tomllib.loads((_TABLES / f"{table}.toml").read_text(encoding="utf-8"))
