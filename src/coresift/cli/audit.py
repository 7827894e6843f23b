"""``coresift audit`` and ``coresift certify``: how wrong a coreset is found to be, and how wrong it can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from coresift.cli.inputs import AsJson, Columns, Embedding, Input, Weight, open_input
from coresift.cli.options import Settings

CoresetFile = Annotated[
    Path,
    typer.Argument(
        metavar="CORESET", help="A .parquet or .npz file of 'coresift select' or of Coreset.save."
    ),
]
Radius = Annotated[
    float | None, typer.Option(help="Radius of the ball of queries, in bandwidths; default: the coreset's.")
]
Memory = Annotated[
    str, typer.Option(help="Rows beyond this are kept in a temporary file, mapped into memory.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]


def audit(
    settings: Settings,
    data: Input,
    coreset: CoresetFile,
    columns: Columns = None,
    embedding: Embedding = None,
    weight: Weight = None,
    radius: Radius = None,
    starts: Annotated[int, typer.Option(min=1, help="Local searches.")] = 32,
    queries: Annotated[int, typer.Option(min=1, help="Random queries.")] = 1000,
    effort: Annotated[
        float, typer.Option(help="Most kernel evaluations, rows times queries, to spend.")
    ] = 1e10,
    seed: Seed = 0,
    max_memory: Memory = "2GB",
    as_json: AsJson = False,
) -> None:
    """Search for the query at which a coreset is most wrong: what is found is a lower bound on its error.

    \b
    Examples:
      coresift audit train.parquet coreset.parquet
      coresift audit embeddings.npy coreset.npz --starts 64 --json

    Columns and weights are those that the coreset was chosen with, unless others are named.
    """
    from coresift import audit as search

    def work(core: Any, X: np.ndarray, weights: np.ndarray | None) -> tuple[str, dict[str, Any]]:
        found = search(
            X,
            core,
            radius,
            weights,
            n_starts=starts,
            n_random=queries,
            max_evaluations=effort,
            random_state=seed,
        )
        figures = {
            "worst_error_found": found.worst_error,
            "worst_ratio": found.worst_ratio,
            "mean_error": found.mean_error,
            "quantiles": {str(level): value for level, value in found.quantiles.items()},
            "n_queries": found.n_queries,
            "worst_query": found.worst_query.tolist(),
        }
        return f"Found (the true worst error may be larger): {found!r}.", figures

    _with_data(settings, data, coreset, columns, embedding, weight, max_memory, as_json, work)


def certify(
    settings: Settings,
    data: Input,
    coreset: CoresetFile,
    columns: Columns = None,
    embedding: Embedding = None,
    weight: Weight = None,
    radius: Radius = None,
    method: Annotated[str, typer.Option(help="auto, exact (all pairs of rows) or sampled.")] = "auto",
    sampled: Annotated[int, typer.Option(min=2, help="Rows of the samples of 'sampled'.")] = 20_000,
    delta: Annotated[float, typer.Option(help="Probability with which 'sampled' may fail.")] = 0.05,
    seed: Seed = 0,
    max_memory: Memory = "2GB",
    as_json: AsJson = False,
) -> None:
    """Prove a bound on the error of a coreset, for all queries of its ball.

    \b
    Examples:
      coresift certify train.parquet coreset.parquet
      coresift certify embeddings.npy coreset.npz --method sampled --sampled 50000 --json

    Columns and weights are those that the coreset was chosen with, unless others are named.
    """

    def work(core: Any, X: np.ndarray, weights: np.ndarray | None) -> tuple[str, dict[str, Any]]:
        proved = core.certify(
            X,
            weights,
            radius,
            method=method,
            n_sampled=sampled,
            delta=delta,
            random_state=seed,
            verbose=0 if settings.quiet else 1,
        )
        meaning = "" if proved.eps < 1 else " An error of 1 or more says nothing: the bound is vacuous here."
        finite = {
            name: value if not isinstance(value, float) or np.isfinite(value) else str(value)
            for name, value in vars(proved).items()
            if isinstance(value, float | int | str | None)
        }
        return f"Guaranteed: {proved}.{meaning}", finite

    _with_data(settings, data, coreset, columns, embedding, weight, max_memory, as_json, work)


def _with_data(
    settings: Settings,
    data: str,
    coreset: Path,
    columns: str | None,
    embedding: str | None,
    weight: str | None,
    max_memory: str,
    as_json: bool,
    work: Callable[[Any, np.ndarray, np.ndarray | None], tuple[str, dict[str, Any]]],
) -> None:
    """Load coreset and data, work on them, print."""
    from coresift import Coreset
    from coresift._errors import InvalidInputError
    from coresift.coresets import load_run
    from coresift.coresets.budget import parse_bytes

    limit = parse_bytes(max_memory, "max_memory")
    try:
        core = Coreset.load(coreset)
    except FileNotFoundError:
        raise InvalidInputError(f"{coreset}: no such file.") from None
    source = open_input(data, columns, embedding, weight, recorded=load_run(coreset))
    if source.n != core.n_samples:
        raise InvalidInputError(
            f"{source.name} has {source.n:,} rows, but {coreset} was chosen from {core.n_samples:,}."
        )
    with source.load(limit) as loaded:
        text, figures = work(core, loaded.X, loaded.weights)
    if as_json:
        typer.echo(json.dumps(figures, allow_nan=False))
    else:
        settings.out.print(text)
