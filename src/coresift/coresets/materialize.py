"""The chosen rows themselves, as a Parquet file: all columns of tables, else the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import InvalidInputError
from ..rows.columns import pa
from ..rows.rows import Block, Rows
from ..rows.tables import ParquetRows, parquet

if TYPE_CHECKING:
    from .files import ChosenRows

_GROUP_BYTES = 1 << 25  # of the rows of a row group


def check_materialize(rows: Rows) -> Any:
    """Return the Arrow schema of the rows; files whose columns differ too much for one table are refused."""
    rows = rows.whole
    if isinstance(rows, ParquetRows):
        whole = pa.schema([])
        for file, own in rows.schemas():
            try:
                whole = pa.unify_schemas([whole, own], promote_options="permissive")
            except pa.ArrowException as error:
                text = f"{file}: its columns do not go into one table with the others ({error})"
                raise InvalidInputError(text) from error
        return whole
    return _table(rows, next(iter(rows.read(rows.pieces[0])))).schema


def _table(rows: Rows, block: Block) -> Any:
    """The columns of a block, and its label, weight or target, if they are columns too."""
    names = rows.names or [f"x{i}" for i in range(rows.d)]
    table: Any = block.X if not rows.is_dense else pa.table([np.ascontiguousarray(x) for x in block.X.T], names=names)
    labels = None if block.labels is None else np.array(block.labels.names)[block.labels.codes]
    for what, values in (("label", labels), ("weight", block.weights), ("target", block.targets)):
        name = rows.opened_with.get(what)
        if name is not None and values is not None and name not in table.column_names:
            table = table.append_column(name, pa.array(values))
    return table


def _tables(selection: ChosenRows, schema: Any) -> Iterator[Any]:
    """The chosen rows in order, as Arrow tables of ``schema``."""
    rows, chosen = selection.rows.whole, selection.coreset.indices
    if not isinstance(rows, ParquetRows):
        yield _table(rows, rows.take(chosen)).cast(schema)
        return
    for piece in rows.pieces:
        first, last = np.searchsorted(chosen, (piece.start, piece.start + piece.n_rows))
        for part in rows.whole_rows(piece, chosen[first:last] - piece.start):
            there = dict(zip(part.column_names, part.columns, strict=True))
            own = [there[f.name].cast(f.type) if f.name in there else pa.nulls(len(part), f.type) for f in schema]
            yield pa.table(own, schema=schema)
    rows.check_unchanged()


def _grouped(tables: Iterator[Any]) -> Iterator[Any]:
    """Tables one after another, as fewer of about ``_GROUP_BYTES``."""
    kept: list[Any] = []
    for table in tables:
        kept.append(table)
        if sum(each.nbytes for each in kept) >= _GROUP_BYTES:
            yield pa.concat_tables(kept)
            kept = []
    if kept:
        yield pa.concat_tables(kept)


def _distinct(names: list[str], taken: set[str]) -> list[str]:
    """Names of columns of the input beside columns of ours: "row" becomes "input_row", or "input_input_row"."""
    used, found = {*taken, *names}, []
    for name in names:
        other = name
        while other in taken or (other != name and other in used):
            other = f"input_{other}"
        used.add(other)
        found.append(other)
    return found


def write_rows(file: Any, selection: ChosenRows, metadata: dict[bytes, bytes]) -> None:
    """Write row numbers, weights and whatever is known of the chosen rows, then the rows themselves."""
    core, schema, at = selection.coreset, check_materialize(selection.rows), 0
    own = pa.table({"row": core.indices, **selection.columns(), "weight": core.weights})
    names = _distinct(schema.names, set(own.column_names))
    fields = [*own.schema, *(field.with_name(name) for field, name in zip(schema, names, strict=True))]
    with parquet.ParquetWriter(file, pa.schema(fields, metadata=metadata)) as writer:
        for table in _grouped(_tables(selection, schema)):
            writer.write_table(pa.table([*own.slice(at, len(table)).columns, *table.columns], schema=writer.schema))
            at += len(table)
