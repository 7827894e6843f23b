"""The part of a page about one table of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..bench.layout import blocks, heading, percent, state
from ..bench.paper import REFERENCE as PAPER
from ..bench.protocol import CURVE_SAMPLES
from .figures import by_budget, curve_panel, has_curve, legend, overview, time_panel, whole
from .finding import finding, listed
from .inputs import Inputs, Missing
from .inputs_figures import inputs_section
from .reading import Part, common
from .series import duration
from .svg import Markup, join, tag
from .tables import block_table, bullets, pairs, prose

_WARM_ENDS = "Warm starts are shorter: a few epochs on all data stand for half of the epochs on the subset. "
_OF_DATA = "-data"  # ends the name of the part of a section that is about the data
_OPEN = ("quality", "comparison")  # blocks that are shown at once


@dataclass(frozen=True)
class Elsewhere:
    """What is said of the data stands in another section of the page."""

    title: str
    identifier: str


def table_section(part: Part, inputs: Inputs | Missing | Elsewhere, identifier: str) -> Markup:
    """Headline, figures, tables, data, and how it was run."""
    return tag(
        "section",
        tag("h2", heading(part.summary)),
        _headline(part),
        *_time_figures(part),
        *_curve_figures(part),
        *_tables(part),
        *_data(inputs, f"{identifier}{_OF_DATA}"),
        *_how(part),
        id=identifier,
    )


def _headline(part: Part) -> Markup:
    summary, protocol = part.summary, part.protocol
    config = part.records[0]["config"]
    done = (
        f"{summary.n_finished:,} of {summary.n_expected:,}" if part.is_declared else f"{len(part.records):,}"
    )
    run = [entry for entry in summary.entries.values() if entry.n_seeds]
    budgets = [budget for budget in summary.budgets if any(entry.budget == budget for entry in run)] or [1.0]
    seeds = sorted({entry.n_seeds for entry in run})
    total = sum(sum(_seconds(record)) for record in part.records)
    first = part.records[0]
    facts = [
        ("cells finished", done),
        ("methods", str(len({entry.method for entry in run}))),
        ("budgets", ", ".join(percent(budget).removesuffix(" %") for budget in budgets) + " %"),
        ("seeds", "\N{EN DASH}".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))),
        ("processor time" if summary.clock == "cpu" else "time of all runs", duration(total)),
    ]
    what = (
        f"{config.get('model', 'a model')} on {protocol.dataset} ({first['n_train']:,} training samples), "
        f"{config.get('epochs', first['n_epochs'])} epochs, a selection every {protocol.select_every} epochs unless @R "
        "says otherwise."
    )
    notes = [what, *state(summary)]
    if not part.is_declared:
        notes.append(
            f"This version of coresift declares no protocol {protocol.version} at scale {protocol.scale} of a table "
            f"{protocol.table}: what follows is what the records say of themselves."
        )
    tiles = tag(
        "div",
        *(tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in facts),
        class_="tiles",
    )
    said = finding(summary) or ["There are too few runs to compare anything."]
    return join(
        [
            tag("p", prose(" ".join(notes)), class_="lead"),
            tiles,
            tag("div", *(tag("p", prose(one)) for one in said), class_="finding"),
        ]
    )


def _seconds(record: Mapping[str, object]) -> Iterator[float]:
    seconds = record["seconds"]
    if isinstance(seconds, dict):
        yield from (float(value) for value in seconds.values() if isinstance(value, int | float))


def _time_figures(part: Part) -> Iterator[Markup]:
    yield tag("h3", "Accuracy against time")
    timed = [one for one in part.series if one.seconds > 0.0]
    panels = by_budget(timed)
    if not panels:
        yield tag(
            "p", "No subset run is finished, or none was timed: there is nothing to draw.", class_="missing"
        )
        return
    clock = "processor time" if part.summary.clock == "cpu" else "time by the clock"
    full = whole(timed)
    yield tag(
        "figure",
        *(
            overview(timed, *size, class_=css)
            for size, css in (((940.0, 470.0), "wide"), ((344.0, 340.0), "narrow"))
        ),
        legend(timed),
        tag(
            "figcaption",
            f"Every method as a line through its budgets ({listed([percent(budget) for budget in panels])}); mean "
            f"accuracy, and mean {clock} of selection and training. Up and to the left is better. Circles: plain; "
            "squares: per batch; diamonds: redrawn more often; hollow: warm start. Adaptive random, adaptive coresets "
            "and RBF are drawn strongly.",
        ),
    )
    yield tag(
        "div",
        *(
            tag("figure", tag("h4", f"{percent(budget)} of the data"), time_panel(budget, series, full))
            for budget, series in panels.items()
        ),
        class_="panels",
    )
    yield tag(
        "p",
        "Each budget on axes of its own; whiskers are one standard deviation over seeds"
        + (", the dashed line is all data" if full is not None else "")
        + ". Marks without a name are in the legend; where there is a pointer, it names them.",
        class_="note",
    )


def _curve_figures(part: Part) -> Iterator[Markup]:
    yield tag("h3", "Accuracy against the epoch")
    full = whole(part.series)
    drawn = [
        (budget, panel)
        for budget, series in by_budget(part.series).items()
        if (panel := curve_panel(budget, series, full)) is not None
    ]
    if not drawn:
        yield tag("p", "The records hold no curves.", class_="missing")
        return
    panels = (tag("figure", tag("h4", f"{percent(budget)} of the data"), panel) for budget, panel in drawn)
    yield tag("div", *panels, class_="panels")
    lines = [one for one in part.series if one.budget < 1.0 and has_curve(one)]
    yield legend(lines, has_lines=True)
    kinds = {
        "dashed: redrawn more often": any(one.look.is_often for one in lines),
        "dashes and dots: per batch": any(one.look.is_batch for one in lines),
        "dotted: warm start": any(one.look.is_warm for one in lines),
    }
    told = "; ".join(words for words, is_drawn in kinds.items() if is_drawn)
    yield tag(
        "p",
        f"Mean over seeds of the accuracy on a fixed part of the test set, at most {CURVE_SAMPLES:,} samples, so that "
        "curves end a little beside the table, which is of the whole test set; looked at for this figure only: no "
        "epoch was chosen by it. "
        + ("The dashed line is the end of FULL's own curve. " if full is not None and full.mean_curve else "")
        + (f"{told[:1].upper()}{told[1:]}. " if told else "")
        + (_WARM_ENDS if any(one.look.is_warm for one in lines) else "")
        + "Shaded: from the least to the largest run of the strong ones.",
        class_="note",
    )


def _tables(part: Part) -> Iterator[Markup]:
    yield tag("h3", "The table")
    for block in blocks(part.summary):
        if not block.sections:
            continue
        if block.name in _OPEN:
            yield join([tag("h4", block.title), block_table(block)])
        else:
            yield tag("details", tag("summary", block.title), block_table(block))


def _data(inputs: Inputs | Missing | Elsewhere, identifier: str) -> Iterator[Markup]:
    if isinstance(inputs, Inputs):
        yield tag("div", inputs_section(inputs), id=identifier)
        return
    yield tag("h3", "Sensitivities and certificate", id=identifier)
    if isinstance(inputs, Missing):
        yield tag("p", inputs.reason, class_="missing")
    else:
        link = tag("a", inputs.title, href=f"#{inputs.identifier}{_OF_DATA}")
        yield tag("p", "The data are the same as above: see ", link, ".")


def _how(part: Part) -> Iterator[Markup]:
    protocol, summary = part.protocol, part.summary
    yield tag("h3", "How it was run")
    configs = common(part.records, "config")
    first = configs[0][0]
    about = [("protocol", f"version {protocol.version}, scale {protocol.scale}"), *first.items()]
    yield join([tag("h4", "Configuration"), pairs(about)])
    if len(configs) > 1:
        yield tag(
            "p", f"{len(configs)} different configurations are in the records; this one is that of most."
        )
    if protocol.assumptions:
        why = "Assumed, as the paper does not print it" if summary.paper.sources else "Declared"
        yield join([tag("h4", why), bullets(protocol.assumptions)])
    for field in ("software", "machine"):
        for values, count in common(part.records, field)[:4]:
            yield join(
                [tag("h4", f"{field.capitalize()}, {count:,} of {len(part.records):,} runs"), pairs(values)]
            )
    if summary.paper.sources:
        captions = [f"{source.caption} ({source.label})" for source in summary.paper.sources]
        yield join([tag("h4", "The paper's figures"), tag("p", f"{PAPER}:"), bullets(captions)])
