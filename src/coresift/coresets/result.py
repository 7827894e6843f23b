"""What a selection gives, and the files it is written to."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import InvalidInputError
from .._npz import naming, open_arrays
from ..rows.rows import Rows
from ..rows.tables import CsvRows, ParquetRows, need_pyarrow
from .bounds import AS_GOOD, uniform_in_words
from .coreset import Coreset
from .files import header_text, parquet_metadata, write_coreset, write_whole

if TYPE_CHECKING:
    from .options import Plan

SUFFIXES = (".parquet", ".npz")
_NOTHING_PROVED = "nothing is proved for this draw; coresift certify says more."
_NOTABLE = 0.02  # of the total weight
_ROW_BYTES = 64  # of a chosen row in the output, at most


@dataclass(frozen=True)
class Report:
    """Figures of a selection."""

    total_sensitivity: float
    spread: float
    """The largest sensitivity over the mean."""
    uniform_factor: float
    """How many times more rows plain sampling needs for the same guarantee, at most."""
    bound_note: str
    is_certified: bool
    n_queries: int = 0
    worst_error_found: float | None = None
    mean_error_found: float | None = None
    class_sizes: dict[str, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def uniform_is_as_good(self) -> bool:
        """Whether plain sampling needs hardly more rows."""
        return self.uniform_factor <= AS_GOOD


@dataclass(frozen=True)
class ChosenRows:
    """Chosen rows with their weights, and how to repeat the choice."""

    coreset: Coreset
    rows: Rows
    labels: list[Any] | None
    """Labels of the chosen rows, where a column of labels was named."""
    run: dict[str, Any]

    def columns(self) -> dict[str, Any]:
        """What is written beside row and weight: the file of each row, and its label."""
        files = np.array(self.rows.files, dtype=object)[self.rows.file_of(self.coreset.indices)]
        beside: dict[str, Any] = {"file": files.astype(str)}
        if self.labels is not None:
            beside["label"] = np.array(self.labels)
        return beside

    def save(self, path: str | os.PathLike[str], *, materialize: bool = False) -> None:
        """Write ``row``, ``file``, ``weight`` (and ``label``) to ``.parquet`` or ``.npz``, complete or not at all.

        :meth:`Coreset.load` reads it. ``materialize`` writes the chosen rows themselves as well: all columns of Parquet
        files, else the features. A column whose name is taken is renamed to ``input_...``.
        """
        target = Path(path)
        check_output(target, n_rows=self.coreset.size)
        core = self.coreset
        if materialize and target.suffix.lower() == ".parquet":
            header = header_text(core.as_dict(), core.indices, core.weights)
            metadata = parquet_metadata(header, json.dumps(self.run, allow_nan=False))
            write_whole(target, lambda file: _write_rows(file, self, metadata))
            return
        columns = self.columns()
        if materialize:
            columns["X"] = self.rows.take(core.indices).X
        write_coreset(target, core.as_dict(), core.indices, core.weights, columns, self.run)


@dataclass(frozen=True)
class Selection(ChosenRows):
    """Chosen rows with their weights, what is known of them, and how to repeat the choice."""

    report: Report

    def lines(self) -> list[str]:
        """What came out, in words."""
        core, report = self.coreset, self.report
        text = [
            f"Chosen: {core.size:,} of {core.n_samples:,} rows. Total sensitivity {report.total_sensitivity:.3g} "
            f"(the least possible is {len(report.class_sizes or [1])}), largest over mean {report.spread:.3g}, "
            f"bound {core.bound}.",
            f"Guaranteed: {core.guarantee or _NOTHING_PROVED}",
        ]
        if report.worst_error_found is not None and report.mean_error_found is not None:
            text.append(
                f"Found: relative error {report.worst_error_found:.3g} at the worst of {report.n_queries} random "
                f"queries, {report.mean_error_found:.3g} on average."
            )
        text.append(uniform_in_words(report.uniform_factor))
        share = float(core.weights.sum()) / core.total_weight if core.total_weight else 1.0
        if abs(share - 1.0) > _NOTABLE:
            text.append(
                f"The weights sum to {share:.3g} times the weight of the rows, by chance; where that matters, "
                "normalize=True (--normalize) scales them."
            )
        if not report.is_certified:
            text.append(f"The bound is not a certificate here. {report.bound_note}")
        return text

    def as_dict(self) -> dict[str, Any]:
        """What came out, for programs."""
        core = self.coreset
        return {
            "size": core.size,
            "rows": core.n_samples,
            "method": core.method,
            "bound": core.bound,
            "guarantee": core.guarantee and core.guarantee.as_dict(),
            **asdict(self.report),
            "uniform_is_as_good": self.report.uniform_is_as_good,
            "run": self.run,
        }


def labels_of(rows: Rows, indices: np.ndarray) -> list[Any] | None:
    """Read the labels of some rows; None if there are none."""
    own = rows.take(indices).labels
    return None if own is None else [own.names[code] for code in own.codes]


def check_output(path: Path, *, n_rows: int = 0, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a file that could not be written, before the work is done."""
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"{path}: unknown suffix {path.suffix!r}; use {' or '.join(suffixes)}.")
    if path.suffix.lower() == ".parquet":
        need_pyarrow()
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; name a file.")
    folder = path.parent
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder; it is to hold {path.name}.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written ({error.strerror}).") from error
    free = shutil.disk_usage(folder).free
    if free < n_rows * _ROW_BYTES:
        raise InvalidInputError(
            f"{path}: {free / 1e6:.0f} MB are free there, but up to {n_rows * _ROW_BYTES / 1e6:.0f} MB may be needed."
        )


def run_record(plan: Plan[Any]) -> dict[str, Any]:
    """What repeats the run."""
    from .. import __version__  # known once the package is imported

    rows, made = plan.rows, {**asdict(plan.options), "budget": plan.budget}
    for name in ("workers", "engine", "max_memory"):
        del made[name]
    features = {}
    if isinstance(rows, ParquetRows | CsvRows):
        # the columns that were used, also where they were not named: who reads the table again takes these
        used, is_embedded = list(rows.columns.features), rows.columns.width is not None
        features = {"columns": None if is_embedded else used, "embedding": used[0] if is_embedded else None}
    return {
        "version": __version__,
        "input": rows.name,
        "files": len(rows.files),
        "rows": rows.n,
        "n_columns": rows.d,
        **rows.opened_with,
        **features,
        **made,
    }


def load_run(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record of the run that wrote a file of :meth:`Selection.save`; empty for other coreset files."""
    target = Path(path)
    with target.open("rb"), naming(target, "not a file of a selection, or damaged"):
        if target.suffix.lower() == ".npz":
            with open_arrays(target, is_packed=False) as members:
                text = str(members["run"]) if "run" in members else "{}"
        else:
            need_pyarrow()
            from pyarrow import parquet

            text = (parquet.read_schema(target).metadata or {}).get(b"coresift.run", b"{}").decode()
        found = json.loads(text)
        if not isinstance(found, dict):
            raise InvalidInputError("the record of the run is no JSON object")
        return found


def _tables(selection: ChosenRows) -> Iterator[tuple[slice, Any]]:
    """The chosen rows as Arrow tables: all columns of Parquet files, else the features."""
    import pyarrow as pa

    rows, chosen = selection.rows, selection.coreset.indices
    if isinstance(rows, ParquetRows):
        for piece in rows.pieces:
            part = slice(*np.searchsorted(chosen, (piece.start, piece.start + piece.n_rows)))
            if part.start < part.stop:
                yield part, rows.read_group(piece).take(pa.array(chosen[part] - piece.start))
        return
    names = rows.names or [f"x{i}" for i in range(rows.d)]
    X = rows.take(chosen).X
    yield slice(None), pa.table({name: np.ascontiguousarray(X[:, i]) for i, name in enumerate(names)})


def _distinct(names: list[str], taken: set[str]) -> list[str]:
    """Names of columns of the input beside columns of ours: "row" becomes "input_row", or "input_input_row"."""
    found: list[str] = []
    for name in names:
        other = name
        while other in taken or other in found or (other != name and other in names):
            other = f"input_{other}"
        found.append(other)
    return found


def _write_rows(file: Any, selection: ChosenRows, metadata: dict[bytes, bytes]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    core, beside = selection.coreset, selection.columns()
    writer: Any = None
    for part, table in _tables(selection):
        own = {"row": core.indices[part], **{name: values[part] for name, values in beside.items()}}
        own["weight"] = core.weights[part]
        names = _distinct(table.column_names, set(own))
        table = table.rename_columns(names)
        columns = [pa.array(values) for values in own.values()] + table.columns
        whole = pa.table(columns, names=[*own, *names]).replace_schema_metadata(metadata)
        writer = writer or parquet.ParquetWriter(file, whole.schema)
        writer.write_table(whole)
    if writer is not None:
        writer.close()
