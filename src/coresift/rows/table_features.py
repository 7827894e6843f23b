"""Tables of any columns as matrices of numbers: learnt once, saved as JSON, applied to new rows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Self

import numpy as np

from .._errors import InvalidInputError
from .._progress import OnPass, display_of
from .._validation import check_count, check_instance
from ..core.points import Matrix, is_sparse
from .columns import as_table, categories, check_names, entries, flat, hashes, is_type, numbers
from .engines import open_engine, run_pass
from .rows import Block, Fingerprint, Piece, Rows, as_type, block_rows
from .summary import CYCLES, Column, TableSummary
from .tables import KEPT_BYTES, TableRows

_VERSION = 1
_WIDE, _SPARSE = 256, 0.1  # more features than this, and a smaller share of them not zero: a sparse matrix


class TableFeatures:
    """What :class:`coresift.Preparation` is, without scikit-learn, which takes a second to import."""

    columns_: list[Column]

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        id: Sequence[str] = (),  # noqa: A002 - the word on the command line
        max_categories: int = 32,
        n_buckets: int = 32,
    ) -> None:
        self.columns = columns
        self.categorical, self.drop, self.id = categorical, drop, id
        self.max_categories, self.n_buckets = max_categories, n_buckets

    def learn(self, rows: Rows, *, engine: str = "local", workers: int = 1, on_pass: OnPass | None = None) -> Self:
        """Learn from ``rows`` whose blocks are tables, in one pass or two; the options are those of :func:`select`."""
        self._check()
        kinds = rows.kinds
        check_names([*(self.columns or ()), *self.categorical, *self.drop, *self.id], list(kinds))
        out = dict.fromkeys(self.drop, "as asked") | dict.fromkeys(self.id, "an id, as asked")
        if self.columns is not None:
            out = {name: "not named" for name in kinds if name not in self.columns} | out
        used = {name: kind for name, kind in kinds.items() if name not in out}
        found = {name: Column(name, "left out", why) for name, why in out.items()}
        if used:
            rows, again = rows.keep(list(used)), tuple(self.categorical)
            with open_engine(engine, rows, workers) as opened:
                for label in ("columns", "columns again"):
                    summary = TableSummary(used, self.max_categories, again)
                    summary = run_pass(opened, rows, summary, display_of(on_pass)(label, rows.n))
                    if not summary.unsettled:
                        break
                    again += summary.unsettled
            named = (*(self.columns or ()), *self.categorical)
            found |= {column.name: column for column in summary.decide(named)}
        columns = [found[name] for name in kinds]
        if all(column.kind == "left out" for column in columns):
            reasons = "; ".join(f"{column.name!r} ({column.why})" for column in columns[:12])
            raise InvalidInputError(f"{rows.name}: no column is left as a feature: {reasons}. Name those to use.")
        self.columns_ = columns
        return self

    def _check(self) -> None:
        check_count(self.max_categories, "max_categories")
        check_count(self.n_buckets, "n_buckets")

    @property
    def used_(self) -> list[Column]:
        """The columns that are not left out."""
        return [column for column in self.columns_ if column.kind != "left out"]

    def transform(self, X: Any) -> Matrix:
        """The features of any rows with these columns."""
        table, used = as_table(X), self.used_
        check_names([column.name for column in used], table.column_names)
        if (plain := self._plain_features(table)) is not None:
            return plain
        if packs := self.is_sparse_:
            import scipy.sparse as sp
        wrong: list[str] = []
        parts: list[Any] = [np.zeros((table.num_rows, 0))]
        for column in used:
            try:
                found = self._features(column, flat(table.column(column.name)))
                parts += map(sp.csr_array, found) if packs else found
            except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow's errors are among them
                reason = str(error).partition("\n")[0]
                wrong.append(f"{column.name!r} is read as {column.kind}, and {reason[:1].lower()}{reason[1:80]}")
        if wrong:
            raise InvalidInputError(f"columns that are not as they were: {'; '.join(wrong)}.")
        return sp.csr_array(sp.hstack(parts)) if packs else np.hstack(parts)

    @property
    def is_plain_(self) -> bool:
        """Whether features are numbers of which none was missing: those of floats then keep their type."""
        return all(column.kind == "number" and not column.has_missing for column in self.used_)

    def _plain_features(self, table: Any) -> np.ndarray | None:
        """The features of columns of floats; None if there are others, or if an entry is missing or very large."""
        used = self.used_
        kinds = {table.schema.field(column.name).type for column in used}
        if not self.is_plain_ or not all(is_type(kind, ("floating",)) for kind in kinds):
            return None
        is_double = any(is_type(kind, ("float64",)) for kind in kinds)
        made = np.empty((len(used), table.num_rows), dtype=np.float64 if is_double else np.float32)
        for row, column in zip(made, used, strict=True):
            row[:] = entries(flat(table.column(column.name)))
        with np.errstate(over="ignore", invalid="ignore"):
            made -= np.array([column.shift for column in used], dtype=made.dtype)[:, None]
            made *= np.array([1.0 / column.scale for column in used], dtype=made.dtype)[:, None]
            return made.T if np.isfinite(np.einsum("ij,ij->", made, made)) else None

    def _features(self, column: Column, array: Any) -> Iterator[np.ndarray]:
        if column.kind in ("one-hot", "hashed"):
            codes, names = categories(array)
            is_missing, width = codes < 0, len(column.categories)
            place = {name: i for i, name in enumerate(column.categories)}
            to = [place.get(name, -1) for name in names]
            if column.kind == "hashed":
                width = self.n_buckets
                to = list(hashes(names) % width) if names else []
            yield (np.array([*to, -1])[codes][:, None] == np.arange(width)).astype(np.float64)
        else:
            values = numbers(array, column.kind if column.kind != "missing" else "number")
            is_missing = np.isnan(values)
            values = np.where(is_missing, column.fill, values) if is_missing.any() else values
            share = 1.0 / np.sqrt(1.0 + len(column.cycles))  # so that a date weighs no more than a number
            if column.kind != "missing":
                yield ((values - column.shift) * (share / column.scale))[:, None]
            for name in column.cycles:
                angle = 2.0 * np.pi / CYCLES[name] * (values % CYCLES[name])
                yield share * np.column_stack([np.sin(angle), np.cos(angle)])
        if column.has_missing:
            yield is_missing[:, None].astype(np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """(d,) names of the features; ``input_features`` is ignored."""
        found: dict[str, None] = {}
        for column in self.used_:
            name, kind = column.name, column.kind
            own = [f"{name}={value}" for value in column.categories] if kind == "one-hot" else [name]
            own = [f"{name}#{i}" for i in range(self.n_buckets)] if kind == "hashed" else own
            own = [] if kind == "missing" else own
            own += [f"{name} {part} of the {cycle}" for cycle in column.cycles for part in ("sine", "cosine")]
            for each in [*own, *([f"{name} missing"] if column.has_missing else [])]:
                while each in found:  # a column may be called as a feature of another one
                    each += "'"
                found[each] = None
        return np.array(list(found), dtype=object)

    @property
    def is_sparse_(self) -> bool:
        """Whether :meth:`transform` returns a sparse matrix."""
        width = len(self.get_feature_names_out())
        filled = sum(1 + 2 * len(column.cycles) for column in self.used_)
        return width > _WIDE and filled < _SPARSE * width

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableFeatures) or not hasattr(self, "columns_") or not hasattr(other, "columns_"):
            return self is other
        return self.to_dict() == other.to_dict()

    __hash__ = object.__hash__

    def lines(self, *, others: Mapping[str, str] | None = None) -> list[str]:
        """What was decided, as a table; ``others`` are columns that are not features, such as the label."""
        shown = [(name, what, "") for name, what in (others or {}).items()]
        shown += [(column.name, column.kind, column.why) for column in self.columns_]
        if len(shown) > 40:
            groups: dict[str, list[str]] = {}
            for name, kind, why in shown:
                groups.setdefault(kind, []).append(f"{name} ({why})" if kind == "left out" else name)
            shown = [
                (", ".join(names[:6]) + (f" ... ({len(names)})" if len(names) > 6 else ""), kind, "")
                for kind, names in groups.items()
            ]
        shown = [("column", "read as", "why"), *shown]
        width = min(max(len(name) for name, _, _ in shown), 40)
        return [f"{name:<{width}}  {kind:<8}  {why}".rstrip() for name, kind, why in shown]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        settings = {name: list(value) if isinstance(value, Sequence) else value for name, value in vars(self).items()}
        columns = [asdict(c) | {"categories": list(c.categories), "cycles": list(c.cycles)} for c in self.columns_]
        return {"version": _VERSION, **settings, "columns_": columns}

    def to_json(self) -> str:
        """Everything as JSON, from which :meth:`from_json` makes it again."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """A preparation from ``plain``, what :meth:`to_dict` returned."""
        try:
            values = dict(plain)
            if (version := values.pop("version")) != _VERSION:
                raise InvalidInputError(f"preparation: version {version}, but this coresift reads {_VERSION}.")
            columns, lists = values.pop("columns_"), ("categories", "cycles")
            made = cls(**values)
            made._check()
            check_instance(made.columns, "columns", list, optional=True)
            made.columns_ = [Column(**{**each, **{name: tuple(each[name]) for name in lists}}) for each in columns]
            for name in [*(made.columns or []), *made.categorical, *made.drop, *made.id]:
                check_instance(name, "a name of a column", str)
            for column in made.columns_:
                column.check()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"preparation: not what to_json wrote, or damaged ({error}).") from error
        return made

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A preparation from ``text``, what :meth:`to_json` returned."""
        return cls.from_dict(json.loads(text))


class PreparedRows(Rows):
    """Rows of a table as a preparation makes them; ``raw`` are the rows as they are stored."""

    def __init__(self, raw: Rows, made_by: TableFeatures) -> None:
        used = made_by.used_
        check_names([column.name for column in used], list(raw.kinds))
        numeric = [c.name for c in used if c.kind == "number"]
        self._raw, self._whole = raw.keep([c.name for c in used], numeric), raw.keep(list(raw.kinds), numeric)
        self.made_by, self.is_dense = made_by, not made_by.is_sparse_
        self._kept: dict[Piece, list[Block]] = {}
        self.names = [str(name) for name in made_by.get_feature_names_out()]
        self.d, self.dtype = len(self.names), self.raw.dtype if made_by.is_plain_ else np.dtype(np.float64)
        self.left_out = {c.name: c.why for c in made_by.columns_ if c.kind == "left out"} | dict(raw.left_out)
        for name in ("name", "n", "files", "file_starts", "pieces", "is_portable", "opened_with", "opened_as"):
            setattr(self, name, getattr(raw, name))
        self.has_weights, self.has_labels, self.has_targets = raw.has_weights, raw.has_labels, raw.has_targets
        size = self.n * self.row_bytes
        self.kept_bytes = size if size <= KEPT_BYTES else 0

    @cached_property
    def preparation(self) -> Any:
        from .preparation import Preparation

        own = self.made_by
        return own if isinstance(own, Preparation) else Preparation.from_dict(own.to_dict())

    def fingerprints(self) -> list[Fingerprint]:
        return self.raw.fingerprints()

    def read(self, piece: Piece) -> Iterator[Block]:
        if piece in self._kept:
            yield from self._kept[piece]
            return
        made, step = [], max(self.read_rows, block_rows(self.d))
        for block in self.raw.read(piece):
            for first in range(0, block.n, step):
                part = block.part(slice(first, first + step))
                made_of = self.made_by.transform(part.X)
                prepared = part._replace(X=made_of if is_sparse(made_of) else as_type(made_of, self.dtype))
                if self.kept_bytes:
                    made.append(prepared)
                yield prepared
        if made:
            self._kept[piece] = made
            if isinstance(self.raw, TableRows):
                self.raw.kept.pop(piece, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}
