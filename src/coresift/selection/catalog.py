"""All methods in one table, ``methods.csv``, for ``coresift strategies`` and the page "All methods"."""

import csv
from importlib.resources import files
from typing import NamedTuple


class Method(NamedTuple):
    """One row of the table. Costs are for n samples in d columns and k picks; a pass runs the model over all data."""

    name: str
    needs: str
    cost: str
    weights: str
    line: str
    paper: str


_TABLE = (files(__package__) / "methods.csv").read_text(encoding="utf-8")
HEADER, *METHODS = (Method(*row) for row in csv.reader(_TABLE.splitlines()))
