"""``coresift fit`` and ``coresift predict``: a linear model from few rows, with a certificate, and its predictions."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from coresift.cli.app import Config, Settings
from coresift.cli.select import Force, Input, Output, Reading
from coresift.coresets.fit_options import FitOptions, plan_fit
from coresift.coresets.options import CLASSIFIERS


def fit(
    settings: Settings,
    *,
    data: Input,
    label: Annotated[str | None, typer.Option(help="Column to predict: classes, or numbers for a regression.")] = None,
    target: Annotated[str | None, typer.Option(help="Column of numbers to predict; squared loss by default.")] = None,
    output: Output,
    reading: Reading,
    options: FitOptions,
    config: Config = None,
) -> None:
    """Fit a linear model to a few well-chosen rows, and bound how far it is from the best one.

    \b
    Examples:
      coresift fit train.parquet --label y --model logistic --budget 1% --out model.json
      coresift fit "shards/*.parquet" --target price --alpha 0.01 -b 20000 -j 8 -o model.json
      coresift fit claims.csv --target count -m poisson -o model.json
      coresift fit train.parquet --label y --dry-run

    The output has the coefficients, the names of columns and classes, the certificate, and how the columns of a table
    were prepared, for 'predict' to do the same. With --raw, the coefficients are in the units of the data.
    """
    from coresift.coresets.linear_result import LinearFit, open_labelled, run_fit

    output.check(".json")
    if (label is None) == (target is None):
        raise typer.BadParameter("name the column to predict: classes with --label, numbers with --target")
    if target is not None and options.model in CLASSIFIERS:
        if "model" in settings.given:
            raise typer.BadParameter(f"--model {options.model} predicts classes: name their column with --label")
        options = replace(options, model="squared")
    with settings.bars(transient=True) as on_pass:
        rows = open_labelled(data, options, label or target, **reading.names(), on_pass=on_pass)
    made = plan_fit(rows, options)
    output.carry_out(settings, made, run_fit, lambda fitted: fitted.model.save(output.out), LinearFit.times)


def predict(
    settings: Settings,
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .json file written by 'fit'.")],
    data: Input,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file: .parquet, .csv or .npy (without probabilities).")
    ] = None,
    force: Force = False,
) -> None:
    """Predict with a model made by 'fit'. Columns are found by name.

    \b
    Examples:
      coresift predict model.json new.parquet --out predictions.parquet
      coresift predict model.json new.csv

    Without --out, the predictions are printed as CSV. Only a logistic regression gives probabilities.
    """
    from coresift.coresets.files import refuse_input, write_whole
    from coresift.coresets.linear_result import LinearModel, predicted, write_predictions

    if out is not None:
        Output(out, force).check(".parquet", ".csv", ".npy")
    fitted = LinearModel.load(model)
    rows = fitted.open(data)
    with settings.bars(transient=True) as on_pass:
        parts = predicted(fitted, rows, on_pass("predict", rows.n))
        if out is None:
            write_predictions(parts, sys.stdout.buffer, ".csv")
            return
        refuse_input(out, rows)
        write_whole(out, lambda file: write_predictions(parts, file, out.suffix.lower()))
    settings.show([], notes=[f"Written: {out}, {rows.n:,} predictions"])
