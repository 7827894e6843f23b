"""Read a results folder as the parts of a report: one for each table, protocol version and scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coresift._errors import InvalidInputError

from ..bench.protocol import Protocol, load_protocol, table_names
from ..bench.store import RECORDS, Record, Store
from ..bench.summary import FULL, Summary, summarise
from .series import Series, series_of


@dataclass(frozen=True)
class Part:
    """The finished runs of one protocol."""

    summary: Summary
    series: list[Series]
    records: list[Mapping[str, Any]]  # those that the summary counts
    is_declared: bool  # by this version of the program; otherwise the protocol is read from the records

    @property
    def protocol(self) -> Protocol:
        """The protocol of the runs."""
        return self.summary.protocol


@dataclass(frozen=True)
class Results:
    """All parts, and a sentence for every record that is in none of them."""

    parts: list[Part]
    problems: list[str]


def read_results(results: Path, studies: Collection[str] = ()) -> Results:
    """Read a folder of tables, or the folder of one table. The records of ``studies`` are not of tables."""
    parts: list[Part] = []
    problems: list[str] = []
    for store in _stores(results, studies):
        found = store.read()
        name = f"{store.table}/{RECORDS}"  # the page may be sent to others: it does not show where the folder is
        problems += [sentence.replace(str(store.file), name) for sentence in found.problems]
        for records in _by_protocol(found.records):
            part, wrong = _part(store.table, records)
            problems += [f"{name}, {sentence}." for sentence in wrong]
            if part is not None:
                parts.append(part)
    if not parts:
        said = f" {problems[0]}" if problems else ""
        raise InvalidInputError(f"{results}: no finished run that could be reported.{said}")
    return Results(parts, problems)


def _stores(results: Path, studies: Collection[str]) -> list[Store]:
    if not results.is_dir():
        what = "this is a file; give the folder of results" if results.exists() else "no such folder"
        raise InvalidInputError(f"{results}: {what}.")
    if (results / RECORDS).is_file():
        whole = results.resolve()  # "." has no name
        return [Store(results.parent if results.name == whole.name else whole.parent, whole.name)]
    names = [entry.name for entry in results.iterdir() if (entry / RECORDS).is_file() and entry.name not in studies]
    if not names:
        raise InvalidInputError(
            f"{results}: no results: neither {RECORDS} nor a folder with one; "
            f"make some with 'python -m paper run TABLE --results {results}'."
        )
    order = table_names()
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return [Store(results, name) for name in names]


def _by_protocol(records: Iterable[Record]) -> list[list[Record]]:
    """Group records by version and scale, the paper's scale and the newest version first."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["cell"]["scale"], record["cell"]["protocol"]), []).append(record)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0] != "paper", key[0], -key[1]))]


def _part(table: str, records: Sequence[Record]) -> tuple[Part | None, list[str]]:
    protocol, is_declared = _protocol_of(table, records)
    try:
        summary = summarise(records, protocol)
    except InvalidInputError as error:
        return None, [str(error).rstrip(".")]
    wrong = list(summary.left_out.unusable)
    return Part(summary, series_of(summary, summary.records), list(summary.records), is_declared), wrong


def _protocol_of(table: str, records: Sequence[Record]) -> tuple[Protocol, bool]:
    """The declared protocol; for an unknown table, scale or version, what the records say."""
    cell = records[0]["cell"]
    if table in table_names():
        try:
            declared = load_protocol(table, cell["scale"])
        except InvalidInputError:
            pass
        else:
            if declared.version == cell["protocol"]:
                return declared, True
    cells = [record["cell"] for record in records]
    rounds = Counter(each["select_every"] for each in cells)
    training = {str(key): value for key, value in records[0]["config"].items() if key != "dataset"}
    return (
        Protocol(
            table=table,
            title=table,
            version=cell["protocol"],
            scale=cell["scale"],
            scale_title="another scale",
            scale_note="",
            methods=(),
            budgets=tuple(sorted({each["budget"] for each in cells if each["method"] != FULL})),
            seeds=len({each["seed"] for each in cells}),
            select_every=max(rounds, key=lambda each: (rounds[each], each)),
            dataset=str(records[0]["config"].get("dataset", table)),
            training=training,
            assumptions=(),
        ),
        False,
    )


def common(records: Iterable[Mapping[str, Any]], field: str) -> list[tuple[dict[str, Any], int]]:
    """Return the distinct values of a field that is an object with their counts, the most frequent first."""
    counts: dict[str, tuple[dict[str, Any], int]] = {}
    for record in records:
        value = record.get(field)
        if isinstance(value, dict):
            key = repr(sorted(value.items(), key=lambda item: str(item[0])))
            counts[key] = (value, counts.get(key, (value, 0))[1] + 1)
    return sorted(counts.values(), key=lambda pair: -pair[1])
