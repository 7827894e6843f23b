"""``coresift audit`` and ``coresift certify``: find errors of a coreset, and prove a bound on them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from coresift.cli.app import Settings
from coresift.cli.select import Input, listed
from coresift.coresets.options import option

CoresetFile = Annotated[Path, typer.Argument(metavar="CORESET", help="A .parquet or .npz file written by 'select'.")]


@dataclass(frozen=True)
class Question:
    """Options of both commands."""

    columns: str | None = option(None, "Feature columns, separated by commas. Default: those of the coreset.")
    embedding: str | None = option(None, "Column of lists of numbers; for .npz files, the name of the array.")
    weight: str | None = option(None, "Column of the weights of the rows.")
    radius: float | None = option(None, "Radius of the query ball, in bandwidths. Default: the coreset's.")
    seed: int = option(0, "Random seed.", min=0)
    max_memory: str = option("2GB", "Rows that need more memory go to a temporary file.")
    as_json: bool = option(False, "Print the result as JSON.", flags=("--json",))

    def load(self, data: str, coreset: Path) -> tuple[Any, Any]:
        from coresift import Coreset, Preparation, open_rows
        from coresift._errors import InvalidInputError
        from coresift.coresets import load_run

        try:
            core = Coreset.load(coreset)
        except FileNotFoundError:
            raise InvalidInputError(f"{coreset}: no such file.") from None
        known = load_run(coreset)
        names: dict[str, Any] = {"columns": listed(self.columns), "embedding": self.embedding}
        if self.columns is None and self.embedding is None:
            if known.get("preparation") is not None:
                names["preparation"] = Preparation.from_dict(known["preparation"])
            else:  # of arrays of an .npz file the label is none of the features
                names = {name: known.get(name) for name in ("columns", "embedding")}
                names["label"] = known.get("label") if all(value is None for value in names.values()) else None
        names["weight"] = known.get("weight") if self.weight is None else self.weight
        return open_rows(data, **names, image_size=known.get("image_size") or 32), core

    def arguments(self) -> dict[str, Any]:
        return {"radius": self.radius, "max_memory": self.max_memory, "random_state": self.seed}


def audit(
    settings: Settings,
    data: Input,
    coreset: CoresetFile,
    question: Question,
    starts: Annotated[int, typer.Option(min=1, help="Number of local searches.")] = 32,
    queries: Annotated[int, typer.Option(min=1, help="Number of random queries.")] = 1000,
    effort: Annotated[float, typer.Option(help="Maximum number of kernel evaluations: rows times queries.")] = 1e10,
) -> None:
    """Search for the query at which a coreset is most wrong: a lower bound on its error.

    \b
    Examples:
      coresift audit train.parquet coreset.parquet
      coresift audit embeddings.npy coreset.npz --starts 64 --json

    Columns and weights are those that the coreset was chosen with, unless you name others.
    """
    from coresift import audit as search

    rows, core = question.load(data, coreset)
    found = search(rows, core, n_starts=starts, n_random=queries, max_evaluations=effort, **question.arguments())
    figures = {
        "worst_error_found": found.worst_error,
        "worst_ratio": found.worst_ratio,
        "mean_error": found.mean_error,
        "quantiles": {str(level): value for level, value in found.quantiles.items()},
        "n_queries": found.n_queries,
        "worst_query": found.worst_query.tolist(),
    }
    settings.show([f"Found (the true worst error may be larger): {found!r}."], figures if question.as_json else None)


def certify(
    settings: Settings,
    data: Input,
    coreset: CoresetFile,
    question: Question,
    method: Annotated[str, typer.Option(help="auto, exact (always holds) or sampled.")] = "auto",
    sampled: Annotated[int, typer.Option(min=2, help="Number of rows to draw for 'sampled'.")] = 20_000,
    delta: Annotated[float, typer.Option(help="Probability that the bound of 'sampled' fails.")] = 0.05,
) -> None:
    """Prove a bound on the error of a coreset, for all queries in its ball.

    \b
    Examples:
      coresift certify train.parquet coreset.parquet
      coresift certify embeddings.npy coreset.npz --method sampled --sampled 50000 --json

    Columns and weights are those that the coreset was chosen with, unless you name others.
    """
    rows, core = question.load(data, coreset)
    with settings.bars(transient=True) as on_pass:
        asked = question.arguments()
        proved = core.certify(rows, method=method, n_sampled=sampled, delta=delta, on_pass=on_pass, **asked)
    meaning = "" if proved.eps < 1 else " An error of 1 or more says nothing: the bound is vacuous here."
    figures = {name: str(value) if value == math.inf else value for name, value in vars(proved).items()}
    settings.show([f"Guaranteed: {proved}.{meaning}"], figures if question.as_json else None)
