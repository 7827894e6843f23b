"""``make demo``: a model fitted to 1 % of a table, coresets of digits compared with uniform samples, and a network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import Progress
from rich.table import Table
from scipy import stats
from sklearn.datasets import load_digits

from coresift import RBFCoreset, audit
from coresift.cli.app import run
from coresift.cli.options import Settings, with_common_options
from coresift.coresets.uniform import uniform_coreset
from examples import demo_models, demo_training

N_COLUMNS = 30  # of the table that a model is fitted to
RADIUS = 1.0  # queries within the ball of the data, in the paper's normalisation (farthest point at norm 1)
NOTE = """{} images of {} pixels. Loss: exp(-|p - x|^2) for every query x in the ball of radius 1 around the mean, in \
distances of the farthest image. Errors are relative, for the worst query. Guaranteed: proved, with certainty. Found: \
by search, so the true error lies between the two. Reweighted: the best weights for the points drawn. Refined: the \
points, too, are chosen from a larger draw. Both trade unbiasedness for a smaller error."""
WAYS = ("uniform", "coreset", "reweighted", "refined")


@dataclass(frozen=True)
class Errors:
    """Errors of the subsets made in one way, one entry per draw: certified, and found by search."""

    guaranteed: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """Errors by way of making a subset, and facts about the data."""

    size: int
    total: float  # sum of the sensitivity bounds: the size needed for a given error grows with it
    uniform_factor: float  # largest over mean bound: near 1, uniform sampling is importance sampling already
    errors: dict[str, Errors]

    def verdict(self) -> str:
        """Say whether uniform sampling is as good as the coreset, as far as these draws can tell (t test, 5 %)."""
        ours, theirs = self.errors["coreset"].found, self.errors["uniform"].found
        difference = float(theirs.mean() - ours.mean())
        spread = float(np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / ours.size))
        if abs(difference) <= stats.t.ppf(0.975, 2 * ours.size - 2) * spread:
            word = "as good as the coreset here, as far as these draws can tell"
        else:
            word = ("worse" if difference > 0 else "better") + " than the coreset here"
        return (
            f"Uniform sampling is {word}: worst error found {ours.mean():.3f} (coreset) against {theirs.mean():.3f} "
            f"(uniform), means of {ours.size} draws; the largest sensitivity bound is {self.uniform_factor:.2f} times "
            "the mean."
        )


def compare_with_uniform(
    X: np.ndarray, *, fraction: float, n_draws: int, seed: int, on_step: Callable[[], None]
) -> Comparison:
    """Make subsets of one size in four ways; certify each, and search for its worst query.

    The error found by `audit` is a lower bound on the true one, the certificate an upper bound. ``on_step`` is called
    after each subset.
    """
    estimator = RBFCoreset(radius=RADIUS, random_state=seed).fit(X)
    errors: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for child in np.random.SeedSequence(seed).spawn(n_draws):
        draw_rng, uniform_rng, audit_rng = (np.random.default_rng(each) for each in child.spawn(3))
        core = estimator.sample(fraction, random_state=draw_rng)
        subsets = {
            "uniform": uniform_coreset(core.n_samples, core.size, uniform_rng, ball=core.ball),
            "coreset": core,
            "reweighted": core.reweight(X),
            "refined": estimator.sample(fraction, random_state=core.seed, refine=True),
        }
        for way, subset in subsets.items():
            certificate = subset.certificate or subset.certify(X)
            worst = audit(X, subset, radius=RADIUS, random_state=audit_rng).worst_error
            errors[way].append((certificate.eps, worst))
            on_step()
    found = {way: Errors(*np.array(pairs).T) for way, pairs in errors.items()}
    return Comparison(core.size, estimator.total_sensitivity_, estimator.uniform_factor_, found)


def render(comparison: Comparison) -> Table:
    """Lay the comparison out as a table with a column for each way."""
    table = Table()
    table.add_column("", overflow="fold")
    for way in WAYS:
        table.add_column(way, justify="right", overflow="fold")
    table.add_row("points kept", *[f"{comparison.size:,}"] * len(WAYS))
    # uniform sampling has n times the largest bound in place of the total
    factors = [comparison.uniform_factor, *[1.0] * (len(WAYS) - 1)]
    table.add_row("total sensitivity", *(f"{factor * comparison.total:.2f}" for factor in factors))
    for name in ("guaranteed", "found"):
        values = [getattr(comparison.errors[way], name) for way in WAYS]
        table.add_row(f"{name} error, mean", *(f"{each.mean():.3f}" for each in values))
        table.add_row(f"{name} error, highest", *(f"{each.max():.3f}" for each in values))
    return table


def demo(
    settings: Settings,
    fraction: Annotated[float, typer.Option(help="Fraction of the points to keep.")] = 0.1,
    draws: Annotated[int, typer.Option(min=2, help="How many samples of each kind to draw.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    models: Annotated[bool, typer.Option("--models/--no-models", help="Fit a logistic regression first.")] = True,
    rows: Annotated[int, typer.Option(min=10_000, help="Rows of the table that it is fitted to.")] = 200_000,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train a network on the subsets.")] = True,
    epochs: Annotated[int, typer.Option(min=5, help="Epochs of training.")] = 50,
    figure: Annotated[Path, typer.Option(help="The figure of the training: .png or .svg.")] = Path("demo.png"),
) -> None:
    """Fit a model to 1 % of a table, choose coresets of scikit-learn's digits, and train on them."""
    if not 0.0 < fraction <= 1.0:
        raise typer.BadParameter(f"--fraction {fraction:g} must be above 0 and at most 1")
    if train and (figure.suffix.lower() not in (".png", ".svg") or not figure.parent.is_dir()):
        raise typer.BadParameter(f"--figure {figure}: use .png or .svg in a folder that exists")
    if models:
        found_models = demo_models.compare(rows, N_COLUMNS, seed)
        settings.out.print(demo_models.render(found_models))
        if not settings.quiet:
            settings.out.print(demo_models.NOTE.format(rows, N_COLUMNS, demo_models.POSITIVE))
    X, bar = (load_digits().data, {"console": settings.err, "transient": True, "disable": not settings.shows_progress})
    with Progress(**bar) as progress:
        task = progress.add_task("certifying and searching for the worst query", total=len(WAYS) * draws)
        step = partial(progress.advance, task)
        comparison = compare_with_uniform(X, fraction=fraction, n_draws=draws, seed=seed, on_step=step)
    settings.out.print(render(comparison))
    settings.out.print(comparison.verdict())
    if not settings.quiet:
        settings.out.print(NOTE.format(*X.shape))
    if train:
        with Progress(**bar) as progress:
            found = demo_training.train_all(fraction, epochs, draws, seed, progress)
        demo_training.draw(found, figure)
        settings.out.print(demo_training.render(found))
        if not settings.quiet:
            settings.out.print(demo_training.NOTE.format(epochs=epochs, n_seeds=draws))
            settings.out.print(f"Wrote {figure}.", soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration and return its exit code."""
    app = typer.Typer(name="demo", pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(with_common_options(demo))
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
