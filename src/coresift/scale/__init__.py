"""Data of any size: passes over files in one process, in many, or on a cluster; and streams."""

from .fit import fit_source
from .result import Report, Selection, check_output, load_run
from .selecting import Options, plan, run, select
from .stream import StreamingCoreset

__all__ = [
    "Options",
    "Report",
    "Selection",
    "StreamingCoreset",
    "check_output",
    "fit_source",
    "load_run",
    "plan",
    "run",
    "select",
]
