"""``coresift demo``: coresets of an embedded data set beside uniform sampling, and a network trained on them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from coresift.cli.app import run
from coresift.cli.options import Settings, with_common_options
from examples import demo_training as _demo_training

logger = logging.getLogger(__name__)

_RADIUS = 1.0  # queries within the ball of the data, in the paper's scale (farthest point at norm 1)
_T_QUANTILE = 0.975  # a difference is called one where a two-sided test at 5 % would

WAYS = ("uniform", "coreset", "reweighted", "refined")


@dataclass(frozen=True)
class Errors:
    """Of the subsets made in one way, one entry per draw: what is proved of them, and what a search found."""

    guaranteed: NDArray[np.float64]
    found: NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """What the demo found: errors by way of making a subset, the rest of the data as a whole."""

    n_samples: int
    n_features: int
    size: int
    total: float  # sum of the sensitivity bounds: the size needed for a given error grows with it
    uniform_factor: float  # largest over mean bound: near 1, uniform sampling is importance sampling already
    errors: dict[str, Errors]

    @property
    def uniform_total(self) -> float:
        """What uniform sampling has in place of the total: it treats every point as the worst one, n times max."""
        return self.total * self.uniform_factor

    def verdict(self) -> str:
        """Say whether uniform sampling is as good as the draw, as far as these draws can tell (Welch's t test)."""
        from scipy import stats

        ours, theirs = self.errors["coreset"].found, self.errors["uniform"].found
        summary = (
            f"worst error found {ours.mean():.3f} (coreset) against {theirs.mean():.3f} (uniform), "
            f"means of {ours.size} draws"
        )
        variance = ours.var(ddof=1) / ours.size + theirs.var(ddof=1) / theirs.size
        difference = float(theirs.mean() - ours.mean())
        threshold = float(stats.t.ppf(_T_QUANTILE, 2 * ours.size - 2)) * float(np.sqrt(variance))
        alike = f"the largest sensitivity bound is {self.uniform_factor:.2f} times the mean"
        if abs(difference) <= threshold:
            word = "as good as the coreset's draw here, as far as these draws can tell"
        elif difference > 0:
            word = "worse than the coreset's draw here"
        else:
            word = "better than the coreset's draw here"
        return f"Uniform sampling is {word}: {summary}; {alike}."


def compare_with_uniform(
    X: NDArray[np.float64], *, fraction: float, n_draws: int, seed: int, on_step: Callable[[], None]
) -> Comparison:
    """Make subsets of one size in four ways; certify each, and search its worst query.

    The error found by `audit` is a lower bound on the true one, the certificate an upper bound. All subsets are
    searched with the same effort. ``on_step`` is called after each of them.
    """
    from coresift import Coreset, RBFCoreset, audit

    started = time.perf_counter()
    estimator = RBFCoreset(radius=_RADIUS, random_state=seed).fit(X)
    logger.info("fitted %d points in %.2f s", X.shape[0], time.perf_counter() - started)

    guaranteed: dict[str, list[float]] = {way: [] for way in WAYS}
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for draw, source in enumerate(np.random.SeedSequence(seed).spawn(n_draws)):
        draw_rng, uniform_rng, audit_rng = (np.random.default_rng(child) for child in source.spawn(3))
        core = estimator.sample(fraction, random_state=draw_rng)
        chosen = np.sort(uniform_rng.choice(core.n_samples, size=core.size, replace=False))
        uniform = Coreset(
            indices=chosen,
            weights=np.full(core.size, core.n_samples / core.size),
            n_samples=core.n_samples,
            method="uniform",
            ball=core.ball,
        )
        subsets = {
            "uniform": uniform,
            "coreset": core,
            "reweighted": core.reweight(X),
            "refined": estimator.sample(fraction, random_state=core.seed, refine=True),
        }
        for way, subset in subsets.items():
            certificate = subset.certificate or subset.certify(X)
            guaranteed[way].append(certificate.eps)
            found[way].append(audit(X, subset, radius=_RADIUS, random_state=audit_rng).worst_error)
            logger.info(
                "draw %d, %s: error found %.4f, guaranteed %.4f",
                draw + 1,
                way,
                found[way][-1],
                certificate.eps,
            )
            on_step()
    return Comparison(
        n_samples=X.shape[0],
        n_features=X.shape[1],
        size=core.size,
        total=estimator.total_sensitivity_,
        uniform_factor=estimator.uniform_factor_,
        errors={way: Errors(np.array(guaranteed[way]), np.array(found[way])) for way in WAYS},
    )


def render(comparison: Comparison) -> Table:
    """Lay the comparison out as a table with a column for each way."""
    table = Table()
    table.add_column("", overflow="fold")
    for way in WAYS:
        table.add_column(way, justify="right", overflow="fold")
    errors = [comparison.errors[way] for way in WAYS]
    table.add_row("points kept", *[f"{comparison.size:,}"] * len(WAYS))
    drawn_from = f"{comparison.total:.2f}"
    table.add_row("total sensitivity", f"{comparison.uniform_total:.2f}", *[drawn_from] * (len(WAYS) - 1))
    for name in ("guaranteed", "found"):
        values = [getattr(each, name) for each in errors]
        table.add_row(f"{name} error, mean", *[f"{each.mean():.3f}" for each in values])
        table.add_row(f"{name} error, highest", *[f"{each.max():.3f}" for each in values])
    return table


def demo(
    settings: Settings,
    fraction: Annotated[
        float, typer.Option(help="Share of the points to keep, above 0 and at most 1.")
    ] = 0.1,
    draws: Annotated[int, typer.Option(min=2, help="How many samples of each kind to draw.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Train a network on the subsets as well.")
    ] = True,
    epochs: Annotated[int, typer.Option(min=5, help="Of the network.")] = 60,
    figure: Annotated[Path, typer.Option(help="Where the figure of the training goes: .png or .svg.")] = Path(
        "coresift-demo.png"
    ),
) -> None:
    """Choose coresets of scikit-learn's digits, and train on them."""
    from sklearn.datasets import load_digits

    if not 0.0 < fraction <= 1.0:
        raise typer.BadParameter(f"--fraction {fraction:g} must be above 0 and at most 1")
    if train and figure.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"--figure {figure}: use .png or .svg")
    if train and not figure.parent.is_dir():
        raise typer.BadParameter(f"--figure {figure}: there is no folder {figure.parent}")

    X = load_digits().data
    with settings.bars(transient=True) as bars:
        bar = bars("certifying and searching for the worst query", len(WAYS) * draws, unit="subsets")
        comparison = compare_with_uniform(X, fraction=fraction, n_draws=draws, seed=seed, on_step=bar)
    out = settings.out
    if not settings.quiet:
        out.print(
            f"Digits: {comparison.n_samples} images of {comparison.n_features} pixels. Loss: exp(-|p - x|^2) for every "
            f"query x in the ball of radius {_RADIUS:g} around the mean (farthest image at distance 1)."
        )
    out.print(render(comparison))
    out.print(comparison.verdict())
    if not settings.quiet:
        out.print(
            "Reweighted: the best weights for the points drawn. Refined: the points, too, chosen from a larger draw. "
            "Both give up unbiasedness for a smaller error."
        )
        out.print(
            f"Errors are relative, the worst over all queries, of {draws} draws. Guaranteed: proved, without a "
            "probability. Found: by search, so the true error lies between the two."
        )
    if train:
        out.print()
        _demo_training.show(settings, fraction, epochs, draws, seed, figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration and return its exit code."""
    app = typer.Typer(name="demo", pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(with_common_options(demo))
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
