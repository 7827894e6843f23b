"""The page: one file that needs no other, no network and no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from coresift import __version__

from ..bench.layout import heading
from .inputs import Inputs, Missing
from .reading import Part, Results
from .sections import Elsewhere, table_section
from .svg import Markup, tag
from .tables import bullets

_MOST_PROBLEMS = 50


def page(results: Results, inputs: Mapping[str, Inputs | Missing]) -> bytes:
    """The whole page, UTF-8; the same results give the same bytes. ``inputs`` has what is said of each data set."""
    style = (files(__package__) / "style.css").read_text(encoding="utf-8")
    titles = [heading(part.summary) for part in results.parts]
    title = f"coresift report: {', '.join(titles)}"
    names = [f"table-{number}" for number in range(1, len(titles) + 1)]
    sections = []
    shown: dict[str, Elsewhere] = {}
    for part, name in zip(results.parts, names, strict=True):
        dataset = part.protocol.dataset
        sections.append(table_section(part, shown.get(dataset, inputs[dataset]), name))
        shown.setdefault(dataset, Elsewhere(heading(part.summary), name))
    body = [
        tag(
            "header",
            tag("h1", "coresift report"),
            tag("p", _subtitle(results.parts)),
            *_contents(titles, names),
        ),
        *_problems(results.problems),
        tag("main", *sections),
    ]
    text = _document(title, style, body)
    footer = tag(
        "footer",
        f"Written by coresift {__version__}: one file of {_size(len(text.encode()))}, no scripts, no network.",
    )
    return _document(title, style, [*body, footer]).encode()


def _document(title: str, style: str, body: Sequence[Markup]) -> str:
    # Only this very style sheet, and images within the page: whatever a record holds, nothing is run or fetched.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def _subtitle(parts: Sequence[Part]) -> str:
    records = [record for part in parts for record in part.records]
    days = sorted(str(record["finished"])[:10] for record in records if record.get("finished"))
    when = (
        ""
        if not days
        else f", finished on {days[0]}"
        if days[0] == days[-1]
        else f", {days[0]} to {days[-1]}"
    )
    runs = "1 finished run" if len(records) == 1 else f"{len(records):,} finished runs"
    tables = "" if len(parts) == 1 else f" in {len(parts)} tables"
    return f"Training on subsets: {runs}{tables}{when}."


def _contents(titles: Sequence[str], names: Sequence[str]) -> list[Markup]:
    if len(titles) < 2:
        return []
    links = (tag("li", tag("a", title, href=f"#{name}")) for title, name in zip(titles, names, strict=True))
    return [tag("nav", tag("ul", *links), aria_label="tables")]


def _problems(problems: Sequence[str]) -> list[Markup]:
    if not problems:
        return []
    shown = list(problems[:_MOST_PROBLEMS])
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown):,} more.")
    count = "One record is" if len(problems) == 1 else f"{len(problems):,} records are"
    return [
        tag("div", tag("h2", f"{count} not in this report"), bullets(shown), class_="problems", role="note")
    ]


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1000:,.0f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"
