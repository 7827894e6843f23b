"""A table of results as plain numbers: a row per method and budget with all that is known, for CSV and JSON."""

from __future__ import annotations

import csv
import io
from typing import Any

from .statistics import Comparison
from .summary import Entry, Summary


def long_rows(summary: Summary) -> list[dict[str, Any]]:
    """One row per method and budget, finished or not; None is what is not known."""
    return [_row(summary, entry) for entry in summary.entries.values()]


def csv_text(summary: Summary) -> str:
    """The rows as CSV: numbers as Python writes them, so that reading gives the same, and nothing for None."""
    rows = long_rows(summary)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(summary: Summary) -> dict[str, Any]:
    """The rows, and what the table was made of."""
    protocol, left_out = summary.protocol, summary.left_out
    return {
        "table": protocol.table,
        "title": protocol.title,
        "protocol": protocol.version,
        "scale": protocol.scale,
        "scale_title": protocol.scale_title,
        "scale_note": protocol.scale_note,
        "config": protocol.config,
        "assumptions": list(protocol.assumptions),
        "metric": summary.metric,
        "clock": summary.clock,
        "cells_finished": summary.n_finished,
        "cells_expected": summary.n_expected,
        "runs_beyond_the_protocol": summary.n_beyond,
        "seeds_expected": protocol.seeds,
        "tests": summary.n_tests,
        "left_out": {
            "other_protocol": left_out.other_protocol,
            "other_scale": left_out.other_scale,
            "other_config": left_out.other_config,
            "repeated": left_out.repeated,
            "unusable": list(left_out.unusable),
        },
        "runs_by_another_clock": summary.n_other_clock,
        "machines": list(summary.machines),
        "paper_sources": [
            {"caption": source.caption, "label": source.label} for source in summary.paper.sources
        ],
        "entries": long_rows(summary),
    }


def _row(summary: Summary, entry: Entry) -> dict[str, Any]:
    protocol, printed = summary.protocol, entry.printed
    found = entry.comparison or Comparison(0)
    return {
        "table": protocol.table,
        "protocol": protocol.version,
        "scale": protocol.scale,
        "method": str(entry.method),
        "strategy": entry.method.name,
        "select_every": entry.method.select_every,
        "budget": entry.budget,
        "metric": summary.metric,
        "seeds": entry.n_seeds,
        "seeds_expected": protocol.seeds,
        "mean_percent": entry.mean,
        "deviation_percent": entry.deviation,
        "clock": summary.clock if entry.n_timed else None,
        "runs_timed": entry.n_timed,
        "selection_seconds": entry.selection,
        "training_seconds": entry.training,
        "total_seconds": entry.seconds,
        "total_deviation_seconds": entry.seconds_deviation,
        "speed_up": entry.speed_up,
        "reference": entry.reference or None,
        "common_seeds": found.n_pairs if entry.comparison else None,
        "difference_points": found.difference,
        "difference_low_95": found.low,
        "difference_high_95": found.high,
        "effect_g": found.effect,
        "p_value": found.p_value,
        "p_holm": found.p_holm,
        "not_testable": found.reason or None,
        "paper_accuracy_percent": printed.accuracy if printed else None,
        "paper_deviation_percent": printed.deviation if printed else None,
        "paper_hours": printed.hours if printed else None,
        "paper_speed_up": entry.printed_speed_up,
    }
