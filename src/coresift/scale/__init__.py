"""Data of any size: passes over files in one process, in many, or on a cluster; and streams."""

from .fit import fit_source
from .result import Report, Selection
from .selecting import Options, plan, run, select

__all__ = ["Options", "Report", "Selection", "fit_source", "plan", "run", "select"]
