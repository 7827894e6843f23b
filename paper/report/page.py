"""The page: one file that needs no other file, no network and no script."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from coresift import __version__

from ..bench.layout import blocks, heading, percent, state
from ..bench.paper import REFERENCE as PAPER
from ..bench.protocol import CURVE_SAMPLES
from .figures import NARROW, WIDE, curve_panel, has_curve, histogram, legend, method_panel, overview
from .finding import finding, listed
from .inputs import Inputs, Missing
from .reading import Part, Results, common
from .series import by_budget, duration, on_all_data
from .svg import Sheet, clean

_HYPHEN = re.compile(r"^-(?=[\d.])")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(%|s|min|h|points)\b|%)|(?<=[±]) (?=\d)|(?<=\d) (?=±)")
_SIZES = ((WIDE, "wide"), (NARROW, "narrow"))


def page(results: Results, inputs: Mapping[str, Inputs | Missing]) -> bytes:
    """Return the whole page in UTF-8; equal results give equal bytes. ``inputs`` describes each data set by name."""
    sheet = Sheet()
    shown: dict[str, dict[str, Any]] = {}  # data sets are described once, in the first section that uses them
    sections: list[dict[str, Any]] = []
    for number, part in enumerate(results.parts, start=1):
        dataset = part.protocol.dataset
        section: dict[str, Any] = {"id": f"table-{number}", "title": heading(part.summary)}
        section["same_data"] = shown.get(dataset)
        if dataset not in shown:
            section["data"] = inputs[dataset]
            if isinstance(found := inputs[dataset], Inputs):
                section["histograms"] = [histogram(sheet, found, *size) for size in _SIZES]
        shown.setdefault(dataset, section)
        sections.append(section | {"part": part} | _headline(part) | _figures(sheet, part))
    records = [record for part in results.parts for record in part.records]
    environment = _environment()
    style = sheet.css + environment.get_template("style.css").render()
    # Allow this very style sheet and images within the page: whatever a record holds, nothing is run or fetched.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    text = environment.get_template("page.html").render(
        style=Markup(style),
        style_hash=digest,
        sections=sections,
        problems=results.problems,
        n_runs=len(records),
        days=sorted({str(record["finished"])[:10] for record in records if record.get("finished")}),
        version=__version__,
    )
    return f"{text}\n".encode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else clean(value),
    )
    environment.filters |= {"prose": prose, "percent": percent, "said": said, "minus": minus, "listed": listed}
    environment.globals |= {
        "CURVE_SAMPLES": CURVE_SAMPLES,
        "PAPER": PAPER,
        "data_uri": data_uri,
        "is_inputs": lambda value: isinstance(value, Inputs),
        "quantiles": np.quantile,
        "isfinite": np.isfinite,
    }
    return environment


def _headline(part: Part) -> dict[str, Any]:
    summary = part.summary
    run = [entry for entry in summary.entries.values() if entry.n_seeds]
    seeds = sorted({entry.n_seeds for entry in run})
    seconds = [value for record in part.records for value in record["seconds"].values()]
    total = sum(float(value) for value in seconds if isinstance(value, int | float))
    budgets = [percent(budget).removesuffix(" %") for budget in summary.budgets if budget in {e.budget for e in run}]
    done = f"{summary.n_finished:,} of {summary.n_expected:,}" if part.is_declared else f"{len(part.records):,}"
    return {
        "first": part.records[0],
        "state": state(summary),
        "tiles": {
            "runs finished": done,
            "methods": len({entry.method for entry in run}),
            "budgets": f"{', '.join(budgets or ['100'])} %",
            "seeds": "\N{EN DASH}".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1]))),
            "processor time" if summary.clock == "cpu" else "time of all runs": duration(total),
        },
        "findings": finding(summary) or ["There are too few runs to compare anything."],
        "blocks": [block for block in blocks(summary) if block.sections],
        "setups": {field: common(part.records, field) for field in ("config", "software", "machine")},
    }


def _figures(sheet: Sheet, part: Part) -> dict[str, Any]:
    panels, full = by_budget(part.series), on_all_data(part.series)
    timed = [one for one in part.series if one.seconds > 0.0]
    budgets = list(by_budget(timed))
    timed = timed if budgets else []
    lines = [one for one in part.series if one.budget < 1.0 and has_curve(one)]
    curves = {budget: curve_panel(sheet, budget, panels[budget], full) for budget in panels}
    return {
        "full": full,
        "budgets": budgets,
        "overviews": [overview(sheet, timed, *size) for size in _SIZES] if timed else [],
        "marks": legend(sheet, timed),
        "panels": {budget: method_panel(sheet, budget, panels[budget], full) for budget in panels},
        "curves": {budget: panel for budget, panel in curves.items() if panel is not None},
        "looks": [one.look for one in lines],
        "lines": legend(sheet, lines, has_lines=True),
    }


def prose(text: str) -> str:
    """Keep numbers and their units on one line."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def minus(text: str) -> str:
    """Write a negative number with a real minus sign."""
    return _HYPHEN.sub("\N{MINUS SIGN}", text.strip())


def said(value: Any) -> str:
    """Format a value of a record as text, cut where it would fill the page."""
    if isinstance(value, dict):
        text = ", ".join(f"{key} {said(one)}" for key, one in value.items()) or "none"
    elif isinstance(value, list | tuple):
        text = ", ".join(said(one) for one in value) or "none"
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = "none" if value is None else str(value)
    return text if len(text) <= 400 else text[:399] + "\N{HORIZONTAL ELLIPSIS}"


def data_uri(image: np.ndarray) -> str:
    """Encode a (1, h, w) or (3, h, w) image of bytes as a PNG in a ``data:`` address."""
    file = io.BytesIO()
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
