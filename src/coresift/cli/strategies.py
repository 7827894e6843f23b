"""``coresift strategies``: the methods that choose what to train on, in one table."""

import json

from coresift.cli.options import AsJson, Settings


def strategies(settings: Settings, as_json: AsJson = False) -> None:
    """List the strategies of 'coresift train': what each needs, costs and chooses, and where it comes from.

    k of n samples in d columns are chosen; a pass runs the model over all data. Scores come from a short training.
    """
    from rich import box
    from rich.table import Table

    from coresift.selection.catalog import METHODS

    if as_json:
        settings.out.print_json(json.dumps([method._asdict() for method in METHODS]))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, width in (("name", 21), ("what it chooses (paper)", None), ("needs", 11), ("cost", 12), ("weights", 11)):
        table.add_column(name, width=width, overflow="fold")
    for method in METHODS:
        what = method.line if method.paper == "-" else f"{method.line} ({method.paper})"
        table.add_row(method.name, what, method.needs, method.cost, method.weights)
    settings.out.print(table)
