"""Protocols: methods, budgets, seeds and training settings of a table, as ``tables/TABLE.toml`` declares them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from coresift._errors import InvalidInputError
from coresift._validation import check_count

PAPER_SCALE = "paper"
CURVE_SAMPLES = 2500  # the most test samples that the learning curve of a run is measured on
_DEFAULT_TRAINING = {"loss": "cross_entropy", "model_options": {}}
_TABLES = files(__package__) / "tables"
_ORDER = ("mnist", "cifar10", "cifar100", "imagenet")  # the paper's, before ours


@dataclass(frozen=True, order=True)
class Method:
    """A strategy, and the number of epochs between two of its selections."""

    name: str
    select_every: int
    label: str = field(compare=False, default="")

    def __str__(self) -> str:
        return self.label or f"{self.name}@{self.select_every}"


@dataclass(frozen=True, order=True)
class Run:
    """One training run of a table. Records store it under the key ``cell``, with an id derived from it."""

    table: str
    protocol: int
    scale: str
    method: str
    select_every: int
    budget: float
    seed: int

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name the run in the store."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        share = "" if self.method == "FULL" else f", {100 * self.budget:g} %"
        return f"{self.method}@{self.select_every}{share}, seed {self.seed}"


@dataclass(frozen=True)
class Protocol:
    """The runs that fill a table, and how to train them."""

    table: str
    title: str
    version: int  # results of two versions are never mixed
    scale: str  # how large the runs are: "paper", or another size that the table declares
    scale_title: str  # the scale in a few words, and in a sentence; neither is part of a record
    scale_note: str
    methods: tuple[Method, ...]
    budgets: tuple[float, ...]
    seeds: int
    select_every: int  # for methods named without one
    dataset: str
    training: dict[str, Any]  # arguments of ``train``, and the model
    assumptions: tuple[str, ...]  # what the paper does not print
    fewer_seeds: Mapping[str, int] = field(default_factory=dict)  # of methods that get fewer than ``seeds``, by name

    @property
    def config(self) -> dict[str, Any]:
        """The training settings that a record stores."""
        return {"dataset": self.dataset, **self.training}

    def label(self, name: str, select_every: int) -> Method:
        """A method, labelled with its ``select_every`` only where it differs from the protocol's."""
        suffix = "" if select_every == self.select_every else f"@{select_every}"
        return Method(name, select_every, f"{name}{suffix}")

    def method(self, text: str) -> Method:
        """Parse ``RBF`` or ``RBF@1``, in any case."""
        from ..automatic import strategies

        name, _, every = text.strip().upper().replace("_", "-").partition("@")
        if name not in strategies():
            raise InvalidInputError(f"method {text!r} is unknown; choose from {', '.join(strategies())}.")
        if every and not every.isdecimal():
            raise InvalidInputError(f"method {text!r}: the @ takes a number of epochs, as in {name}@1.")
        select_every = check_count(int(every), f"select_every of {text!r}") if every else self.select_every
        return self.label(name, select_every)

    def narrowed(
        self, methods: Sequence[str] | None = None, budgets: Iterable[float] | None = None, seeds: int | None = None
    ) -> Protocol:
        """Replace methods, budgets or seeds; runs that are in both protocols are the same runs."""
        changes: dict[str, Any] = {}
        if methods is not None:
            changes["methods"] = tuple(dict.fromkeys(self.method(each) for each in methods))
        if budgets is not None:
            changes["budgets"] = tuple(dict.fromkeys(check_share(each) for each in budgets))
        if seeds is not None:
            changes |= {"seeds": check_count(seeds, "seeds"), "fewer_seeds": {}}
        return dataclasses.replace(self, **changes)

    def runs(self) -> list[Run]:
        """All runs, seed by seed with small budgets first; FULL runs once for all budgets, at the end."""
        full = [method for method in self.methods if method.name == "FULL"]
        others = [method for method in self.methods if method.name != "FULL"]
        seeds = range(self.seeds)
        found = [
            *(self.run(each, b, seed) for seed in seeds for b in sorted(self.budgets) for each in others),
            *(self.run(each, 1.0, seed) for seed in seeds for each in full),
        ]
        return [run for run in found if run.seed < self.seeds_of(run.method)]

    def seeds_of(self, name: str) -> int:
        """Number of runs of a method at each budget."""
        return self.fewer_seeds.get(name, self.seeds)

    def run(self, method: Method, budget: float, seed: int) -> Run:
        """Return one of the runs."""
        every = method.select_every
        return Run(self.table, self.version, self.scale, method.name, every, budget, seed)


def check_share(budget: float) -> float:
    """Validate a budget given as a share of the training samples."""
    if not 0.0 < budget <= 1.0:
        raise InvalidInputError(f"budget {budget:g} must be a share above 0 and at most 1 (5% is 0.05).")
    return float(budget)


def table_names() -> tuple[str, ...]:
    """List the declared tables, the paper's first."""
    found = [entry.name.removesuffix(".toml") for entry in _TABLES.iterdir() if entry.name.endswith(".toml")]
    return tuple(sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else 99, name)))


def load_protocol(table: str, scale: str = PAPER_SCALE) -> Protocol:
    """Load the protocol of a table, as printed in the paper or at another declared scale."""
    if table not in table_names():
        raise InvalidInputError(f"table {table!r} is unknown; choose from {', '.join(table_names())}.")
    declared = dict(_declared(table))
    scales = {PAPER_SCALE: {"title": "", "note": ""}, **declared.pop("scale", {})}
    if scale not in scales:
        known = ", ".join(scales)
        raise InvalidInputError(f"scale {scale!r} is unknown to the table {table}; choose from {known}.")
    changes = {"title": "scaled down", **scales[scale]}
    title, note = changes.pop("title"), changes.pop("note")
    training = {**_DEFAULT_TRAINING, **declared.pop("training"), **changes.pop("training", {})}
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
