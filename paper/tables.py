"""Tables of results as CSV files: a row is an instance of a flat dataclass, its fields are the columns.

Floats are written with ``repr``, so that they read back exactly.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from coresift._errors import InvalidInputError
from coresift.coresets.files import write_whole

Row = TypeVar("Row")


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write rows of strings, integers and floats, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(rows[0])])
    writer.writerows([repr(value) if isinstance(value, float) else value for value in astuple(row)] for row in rows)
    write_whole(path, lambda file: file.writelines([text.getvalue().encode()]))


def read_table(path: Path, kind: type[Row]) -> list[Row]:
    """Read a table that :func:`write_table` wrote; errors name the file and the line."""
    parsers: dict[str, Callable[[str], Any]] = get_type_hints(kind)  # str, int and float parse what they print
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: not a text file") from None
    reader = csv.DictReader(lines, strict=True)
    try:
        missing = set(parsers) - set(reader.fieldnames or ())
    except csv.Error as error:
        raise InvalidInputError(f"{path}, line 1: {error}") from None
    if missing:
        raise InvalidInputError(f"{path}: not a table of this figure, it lacks the column {min(missing)!r}")
    rows = []
    try:
        for record in reader:
            rows.append(kind(**{name: parse(record[name]) for name, parse in parsers.items()}))
    except (ValueError, TypeError, csv.Error) as error:  # TypeError: a line with too few entries gives None
        raise InvalidInputError(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise InvalidInputError(f"{path}: the table is empty")
    return rows
