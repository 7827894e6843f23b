"""``coresift demo``: a coreset of an embedded data set, beside uniform sampling of the same size."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import Progress
from rich.table import Table

from coresift.cli._options import Settings

logger = logging.getLogger(__name__)

_RADIUS = 1.0  # queries within the ball of the data, in the paper's scale (farthest point at norm 1)
_T_QUANTILE = 0.975  # a difference is called one where a two-sided test at 5 % would


@dataclass(frozen=True)
class Comparison:
    """What the demo found: one error per draw and method, the rest of the data as a whole."""

    n_samples: int
    n_features: int
    size: int
    total: float  # sum of the sensitivity bounds: the size needed for a given error grows with it
    uniform_factor: float  # largest over mean bound: near 1, uniform sampling is importance sampling already
    coreset_errors: NDArray[np.float64]
    uniform_errors: NDArray[np.float64]
    guarantee: str | None

    @property
    def uniform_total(self) -> float:
        """What uniform sampling has in place of the total: it treats every point as the worst one, n times max."""
        return self.total * self.uniform_factor

    def verdict(self) -> str:
        """Say whether uniform sampling is as good here, as far as these draws can tell (Welch's t test)."""
        from scipy import stats

        ours, theirs = self.coreset_errors, self.uniform_errors
        summary = (
            f"worst error found {ours.mean():.3f} (coreset) against {theirs.mean():.3f} (uniform), "
            f"means of {ours.size} draws"
        )
        variance = ours.var(ddof=1) / ours.size + theirs.var(ddof=1) / theirs.size
        difference = float(theirs.mean() - ours.mean())
        threshold = float(stats.t.ppf(_T_QUANTILE, 2 * ours.size - 2)) * float(np.sqrt(variance))
        alike = f"the largest sensitivity bound is {self.uniform_factor:.2f} times the mean"
        if abs(difference) <= threshold:
            word = "as good as the coreset here, as far as these draws can tell"
        elif difference > 0:
            word = "worse than the coreset here"
        else:
            word = "better than the coreset here"
        return f"Uniform sampling is {word}: {summary}; {alike}."


def compare_with_uniform(
    X: NDArray[np.float64], *, fraction: float, n_draws: int, seed: int, on_step: Callable[[], None]
) -> Comparison:
    """Draw coresets and uniform samples of one size and search the worst query of each.

    The error of a sample is the largest relative error that `audit` FINDS, so a lower bound on the true one; both kinds
    are searched with the same effort. ``on_step`` is called after each of the ``2 * n_draws`` searches.
    """
    from coresift import Coreset, RBFCoreset, audit

    started = time.perf_counter()
    estimator = RBFCoreset(radius=_RADIUS, random_state=seed).fit(X)
    logger.info("fitted %d points in %.2f s", X.shape[0], time.perf_counter() - started)

    errors: dict[str, list[float]] = {"coreset": [], "uniform": []}
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
        for name, sample in (("coreset", core), ("uniform", uniform)):
            found = audit(X, sample, radius=_RADIUS, random_state=audit_rng)
            errors[name].append(float(found.worst_error))
            logger.info("draw %d, %s: worst relative error found %.4f", draw + 1, name, errors[name][-1])
            on_step()
    return Comparison(
        n_samples=X.shape[0],
        n_features=X.shape[1],
        size=core.size,
        total=estimator.total_sensitivity_,
        uniform_factor=estimator.uniform_factor_,
        coreset_errors=np.array(errors["coreset"]),
        uniform_errors=np.array(errors["uniform"]),
        guarantee=core.guarantee,
    )


def _mean_and_range(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def render(comparison: Comparison) -> Table:
    """Lay the comparison out as a table of two columns."""
    table = Table()
    table.add_column("", overflow="fold")
    table.add_column("coreset", justify="right", overflow="fold")
    table.add_column("uniform", justify="right", overflow="fold")
    share = f"{comparison.size} of {comparison.n_samples}"
    table.add_row("points kept", share, share)
    table.add_row("total sensitivity", f"{comparison.total:.2f}", f"{comparison.uniform_total:.2f} (n * max)")
    table.add_row("max / mean sensitivity", f"{comparison.uniform_factor:.2f}", "-")
    table.add_row(
        "worst error found",
        _mean_and_range(comparison.coreset_errors),
        _mean_and_range(comparison.uniform_errors),
    )
    table.add_row("guaranteed", comparison.guarantee or "None", "None")
    return table


def demo(
    settings: Settings,
    fraction: Annotated[
        float, typer.Option(help="Share of the points to keep, above 0 and at most 1.")
    ] = 0.1,
    draws: Annotated[int, typer.Option(min=2, help="How many samples of each kind to draw.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
) -> None:
    """Choose a coreset of scikit-learn's digits and compare it with uniform sampling."""
    from sklearn.datasets import load_digits

    X = load_digits().data
    with Progress(console=settings.err, transient=True, disable=not settings.shows_progress) as progress:
        task = progress.add_task("searching for the worst query", total=2 * draws)
        comparison = compare_with_uniform(
            X, fraction=fraction, n_draws=draws, seed=seed, on_step=lambda: progress.advance(task)
        )
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
            f"Errors are relative, the mean (lowest to highest) of {draws} draws. Each is at least what was found: "
            "the search cannot prove that no query is worse."
        )
