"""Fit a linear model to a few rows of arrays or files of any size, and say how far it is from the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._progress import OnPass
from .._threads import one_thread
from ..rows.engines import open_engine
from ..rows.opening import open_rows
from ..rows.preparation import Preparation
from ..rows.rows import Rows
from .coreset import Coreset
from .files import run_record
from .fit_options import FitOptions, plan_fit
from .fitting import Runner
from .linear_coreset import LinearCoreset
from .linear_result import LinearModel
from .options import CLASSIFIERS, Plan

_POOR = 0.01  # relative excess above which advice is due
_ROWS_PER_COEFFICIENT = 50  # from which on calibration gains reliably


@dataclass(frozen=True)
class LinearFit:
    """A linear model, and the rows that it was fitted to."""

    coreset: Coreset
    model: LinearModel
    n_rounds: int
    """Rounds of calibration that were kept."""
    seconds: dict[str, float]

    def lines(self) -> list[str]:
        """What came out, in words."""
        model, core = self.model, self.coreset
        rounds = f"calibrated in {self.n_rounds} round{'s' if self.n_rounds > 1 else ''}"
        text = [
            f"Fitted: {model.loss} loss, {core.size:,} of {core.n_samples:,} rows, weights "
            f"{rounds if self.n_rounds else 'as drawn'}."
        ]
        if model.objective is not None:
            text.append(f"Loss over all rows, with penalty: {model.objective:.6g}.")
        if model.certificate is not None:
            text.append(f"Guaranteed: {model.certificate}")
            if model.certificate.relative > _POOR and core.size < (few := _ROWS_PER_COEFFICIENT * model.coef.size):
                text.append(f"More rows give a closer fit: {few:,} are {_ROWS_PER_COEFFICIENT} for each coefficient.")
        return text

    def times(self) -> list[str]:
        """How long the passes took, in words."""
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return [f"{sum(self.seconds.values()):.1f} s in passes: {parts}."]

    def as_dict(self) -> dict[str, Any]:
        """What came out, for programs."""
        return {**self.model.as_dict(), "n_rounds": self.n_rounds, "seconds": self.seconds}


def open_labelled(data: Any, options: FitOptions, label: str | None, **names: Any) -> Rows:
    """Open data for a model: ``label`` names the classes, or the targets of a regression."""
    what = "label" if options.model in CLASSIFIERS else "target"
    return open_rows(data, **{what: label, **names}, engine=options.engine, workers=options.workers)


def fit_model(
    data: Any,
    budget: str | int | float = "10%",
    *,
    label: str,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = 32,
    preparation: Preparation | str | None = "auto",
    on_pass: OnPass | None = None,
    **options: Any,
) -> LinearModel:
    """Fit a linear model to a few well-chosen rows of files or a frame, and bound its distance from the best.

    For arrays see :class:`LinearCoreset` and :class:`CoresetClassifier`.

    Parameters
    ----------
    data, columns, embedding, weight, filesystem, image_size
        What to read; see :func:`open_rows`.
    budget : int, float or str
        Rows to fit to: a number, a fraction, or a percentage such as ``"1%"``.
    label : str
        The column of the classes or, for "squared", "poisson" and "huber", of the targets.
    preparation : "auto", None or Preparation
        As in :func:`select`. The model keeps it, and applies it to what it predicts.
    on_pass : callable, optional
        As in :func:`select`.
    **options
        ``model``, ``alpha``, ``threshold`` and ``fit_intercept``, as in :class:`LinearCoreset` (where the model is
        called loss); ``calibrate`` and ``certify`` (True); ``seed`` (0), ``workers``, ``engine`` and ``max_memory``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from coresift import fit_model
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=["a", "b", "c"])
    >>> table["y"] = np.where(rng.random(20_000) < 1 / (1 + np.exp(2 - table["a"])), "yes", "no")
    >>> model = fit_model(table, 500, label="y")
    >>> model.certificate.relative < 1e-3
    True
    >>> model.predict(table[:2])
    array(['no', 'no'], dtype='<U3')
    """
    asked = FitOptions(budget=budget, **options)
    names = {"columns": columns, "embedding": embedding, "weight": weight, "filesystem": filesystem}
    names |= {"image_size": image_size, "preparation": preparation, "on_pass": on_pass}
    rows = open_labelled(data, asked, label, **names)
    return run_fit(plan_fit(rows, asked), on_pass=on_pass).model


def run_fit(made: Plan[FitOptions], *, on_pass: OnPass | None = None) -> LinearFit:
    """Do what was planned: choose rows, fit and certify."""
    rows, options = made.rows, made.options
    chooser = LinearCoreset(
        options.model, alpha=options.alpha, fit_intercept=options.fit_intercept, threshold=options.threshold
    )
    with open_engine(options.engine, rows, options.workers) as engine, one_thread():
        runner = Runner(rows, engine, on_pass)
        chooser.fit_rows(runner=runner)
        core = chooser.sample(
            int(made.budget or 0), calibrate=options.calibrate, tolerance=options.tolerance, random_state=options.seed
        )
        certificate = chooser.certified(tolerance=options.tolerance) if options.certify else None
    model = LinearModel(
        *chooser.model_,
        options.model,
        options.alpha,
        threshold=options.threshold,
        classes=getattr(chooser, "classes_", None),
        names=rows.names,
        size=core.size,
        n_samples=rows.n,
        objective=chooser.objective_ if certificate is None else certificate.objective,
        certificate=certificate,
        run=run_record(made),
    )
    seconds: dict[str, float] = {}
    for name, taken in runner.seconds:
        seconds[name] = seconds.get(name, 0.0) + taken
    return LinearFit(core, model, chooser.n_rounds_, seconds)
