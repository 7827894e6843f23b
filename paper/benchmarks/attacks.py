r"""Attacks on certificates: random small problems of every kind, and a search for a query above what is certified.

An attack is one problem: data, weights, a subset made in one of many ways, and its certificate in the exact and in the
sampled form. The search follows the gradient of :math:`\log(S/F)` up and down from many starts, projected on the ball,
and evaluates the best queries in long doubles. A part of the problems is made so that the certificate is nearly tight
(rows much closer together than the bandwidth, all weights too large by a factor): there a certificate that were 2 %
smaller must be caught, or the search is worth nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer

from coresift import Coreset, LaplacianCoreset, RBFCoreset, StreamingCoreset, select
from coresift.cli.app import Settings
from coresift.coresets.coreset import QueryBall

from .measure import Log, Record, markdown

RESULTS = Path(__file__).parents[1] / "results" / "attacks"
PER_KIND = 20  # problems of each kind in a record
TIGHT_EVERY = 5  # every fifth problem is nearly tight
SHRUNK = 0.98  # what the search must catch there
_DELTA, _SAMPLED = 0.05, 60
_STEPS, _BEST = 30, 12


@dataclass
class Problem:
    """Data, and a weighted subset of it with the ball of queries."""

    X: Any
    weights: np.ndarray | None
    core: Coreset
    radius: float | None = None  # of the certificate, if not the subset's own


Kind = Callable[[np.random.Generator, bool], Problem]


def rows_of(rng: np.random.Generator) -> np.ndarray:
    """Rows of a random shape: normal, with heavy tails, in clusters, or on a grid."""
    n, d = int(rng.integers(12, 90)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d))
    shape = rng.integers(4)
    if shape == 1:
        X = rng.standard_t(2.0, (n, d))
    elif shape == 2:
        X = 0.05 * X + 3.0 * rng.standard_normal((3, d))[rng.integers(0, 3, n)]
    elif shape == 3:
        X = rng.integers(-2, 3, (n, d)) + 0.0
        X[0] += 0.5  # never all equal
    return X * 10.0 ** rng.uniform(-2, 2)


def drawn(rng: np.random.Generator, X: Any, weights: np.ndarray | None, is_tight: bool) -> Problem:
    """A subset of the data by a random estimator, bandwidth, radius and way to draw."""
    n = X.shape[0]
    radius = float(10.0 ** rng.uniform(-1, 0.4))
    bandwidth = None if rng.random() < 0.5 else "median"
    is_gaussian = is_tight or rng.random() < 0.7  # the Laplacian's certificate is nowhere tight
    if is_tight:
        dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        bandwidth, radius = 1e4 * float(np.ptp(dense, axis=0).max()), float(rng.uniform(0.2, 1.0))
    common: dict[str, Any] = {"bandwidth": bandwidth, "bound": "closed-form", "random_state": int(rng.integers(2**31))}
    if is_gaussian:
        estimator: Any = RBFCoreset(radius=radius, **common)
    else:
        estimator = LaplacianCoreset(**common | {"bound": "auto"})
    estimator.fit(X, sample_weight=weights)
    size = int(rng.integers(1, max(2, n // 2)))
    ways: list[dict[str, Any]] = [{"method": "iid"}, {"method": "systematic"}, {"method": "keys"}, {"normalize": True}]
    ways += [{"reweight": True}, {"refine": True}]
    way = ways[int(rng.integers(len(ways)))]
    at = None if is_gaussian or rng.random() < 0.3 else radius
    by_hand = rng.random()
    if is_tight or by_hand < 0.3:  # rows with and without weight, far too heavy or light, or without any error
        own = np.ones(n) if weights is None else weights
        if is_tight:
            kept, given = np.arange(n), own * float(1.0 + 10.0 ** rng.uniform(-6, 0))
        elif by_hand < 0.05:
            kept, given = np.flatnonzero(own > 0), own[own > 0]
        else:
            kept = np.flatnonzero(rng.random(n) < 0.6)
            given = own.sum() / n * 10.0 ** rng.uniform(-1, 1, len(kept))
        return Problem(X, weights, Coreset(kept, given, n, ball=estimator.sample(1).ball), at)
    return Problem(X, weights, estimator.sample(size, **way), at)


def weighted(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Weights over up to twelve orders of magnitude."""
    X = rows_of(rng)
    return drawn(rng, X, 10.0 ** rng.uniform(-float(rng.uniform(0, 12)), 0.0, len(X)), is_tight)


def weightless(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Rows of weight zero, some of them far away; a subset by hand may hold them."""
    X = rows_of(rng)
    weights = np.where(rng.random(len(X)) < 0.3, 0.0, rng.gamma(1.0, size=len(X)))
    weights[:2] = 1.0
    if not is_tight:
        X[weights == 0] *= 10.0 ** rng.uniform(0, 2)
    return drawn(rng, X, weights, is_tight)


def repeated(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Rows that are there several times."""
    X = rows_of(rng)
    return drawn(rng, X[rng.integers(0, max(2, len(X) // 4), len(X))], None, is_tight)


def far(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Rows up to a hundred million of their spreads from the origin."""
    X = rows_of(rng)
    return drawn(rng, X + np.abs(X).max() * 10.0 ** rng.uniform(2, 8) * rng.standard_normal(X.shape[1]), None, is_tight)


def narrow(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Rows in single precision, some of them far from the origin."""
    X = rows_of(rng)
    return drawn(rng, (X + np.abs(X).max() * rng.choice([0.0, 1.0, 300.0])).astype(np.float32), None, is_tight)


def sparse(rng: np.random.Generator, is_tight: bool) -> Problem:
    """Sparse rows, in either precision."""
    X = rows_of(rng)
    X = np.where(rng.random(X.shape) < 0.4, X, 0.0)
    X[0] = 1.0  # never all zero
    X[1] = 0.0
    return drawn(rng, sp.csr_array(X.astype(rng.choice(["f4", "f8"]))), None, is_tight)


def reloaded(rng: np.random.Generator, is_tight: bool) -> Problem:
    """A subset that was saved and read again."""
    problem = weighted(rng, is_tight)
    with tempfile.TemporaryDirectory() as folder:
        problem.core.save(Path(folder) / "core.npz")
        problem.core = Coreset.load(Path(folder) / "core.npz")
    return problem


def streamed(rng: np.random.Generator, is_tight: bool) -> Problem:
    """A subset of a stream: merged and reduced."""
    X = np.concatenate([rows_of(rng)] * 3)
    X = X + 1e-3 * np.abs(X).max() * rng.standard_normal(X.shape)
    if is_tight:
        return drawn(rng, X, None, is_tight)
    weights = rng.gamma(1.0, size=len(X)) if rng.random() < 0.5 else np.ones(len(X))
    loss = "gaussian" if rng.random() < 0.7 else "laplacian"
    stream = StreamingCoreset(
        int(rng.integers(4, 20)),
        loss=loss,
        radius=float(10.0 ** rng.uniform(-1, 0.4)),
        random_state=int(rng.integers(99)),
    )
    for part in np.array_split(np.arange(len(X)), 3):
        stream.partial_fit(X[part], sample_weight=weights[part])
    core = stream.coreset()
    return Problem(X, weights, core.reweight(X, sample_weight=weights) if rng.random() < 0.3 else core)


def by_class(rng: np.random.Generator, is_tight: bool) -> Problem:
    """A subset drawn class by class, with budgets that may be below the number of classes."""
    X = rows_of(rng)
    if is_tight:
        return drawn(rng, X, None, is_tight)
    weights = rng.gamma(1.0, size=len(X)) if rng.random() < 0.5 else None
    options: dict[str, Any] = {"method": str(rng.choice(["keys", "systematic"])), "bound": "closed-form"}
    options["radius"] = float(10.0 ** rng.uniform(-1, 0.4))
    labels = rng.integers(0, int(rng.integers(2, 6)), len(X))
    budget = int(rng.integers(1, max(2, len(X) // 2)))
    chosen = select(
        X,
        budget,
        labels=labels,
        sample_weight=weights,
        per_class=True,
        random_state=int(rng.integers(2**31)),
        **options,
    )
    return Problem(X, weights, chosen.coreset)


KINDS: dict[str, Kind] = {
    "plain": lambda rng, is_tight: drawn(rng, rows_of(rng), None, is_tight),
    "weights": weighted,
    "zero weights": weightless,
    "duplicates": repeated,
    "far offsets": far,
    "float32": narrow,
    "sparse": sparse,
    "reloaded": reloaded,
    "streamed": streamed,
    "per class": by_class,
}


class Sums:
    """The logarithm of S/F at queries in scaled coordinates, and its gradient, in a given precision."""

    def __init__(self, problem: Problem, ball: QueryBall, kind: type) -> None:
        X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
        self.Z = (np.asarray(X).astype(kind) - ball.center.astype(kind)) / kind(ball.scale)
        own = np.ones(len(self.Z)) if problem.weights is None else problem.weights
        self.own, self.given = own.astype(kind), np.zeros(len(own), kind)
        self.given[problem.core.indices] = problem.core.weights
        self.loss = ball.loss

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(k,) log(S/F) and (k, d) its gradient; rows of the nearest weight set the scale, so nothing underflows."""
        offsets = self.Z[None] - x[:, None]
        square = (offsets**2).sum(axis=2)
        if self.loss == "gaussian":
            exponents, pull = -square, np.full_like(square, 2.0)
        else:
            length = np.sqrt(square)
            exponents, pull = -length, 1.0 / np.maximum(length, 1e-9)
        logs, means = [], []
        with np.errstate(divide="ignore"):
            for weights in (self.given, self.own):
                seen = np.where(weights > 0, exponents, -np.inf)
                top = seen.max(axis=1, keepdims=True)
                terms = weights * np.exp(seen - np.where(np.isfinite(top), top, 0.0))
                total = terms.sum(axis=1)
                logs.append(top[:, 0] + np.log(total))
                share = terms * pull / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
                means.append(np.einsum("kn,knd->kd", share, offsets))
        return logs[0] - logs[1], means[0] - means[1]


def worst_found(problem: Problem, ball: QueryBall, rng: np.random.Generator) -> float:
    """The largest relative error that the search finds in the ball, evaluated in long doubles."""
    sums = Sums(problem, ball, np.float64)
    n, d = sums.Z.shape
    reach = 1e3 if np.isinf(ball.radius) else ball.radius

    def inside(x: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return x * np.minimum(1.0, reach * (1.0 - 1e-14) / np.maximum(length, 1e-300))

    directions = rng.standard_normal((12, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rows = sums.Z[rng.integers(0, n, 14)]
    starts = [
        np.zeros((1, d)),
        directions[:6] * reach,
        directions[6:] * min(reach, 3.0) * rng.random((6, 1)),
        rows,
        -rows,
    ]
    starts.append(np.eye(d)[:4] * reach)
    x = inside(np.concatenate(starts))
    x = np.concatenate((x, x))
    sign = np.repeat([1.0, -1.0], len(x) // 2)
    value, slope = sums.at(x)
    value = sign * value
    step = np.full(len(x), 0.1)
    for _ in range(_STEPS):
        length = np.maximum(np.linalg.norm(slope, axis=1), 1e-300)
        trial = inside(x + (sign * step / length)[:, None] * slope)
        found, found_slope = sums.at(trial)
        better = sign * found > value
        x, slope = np.where(better[:, None], trial, x), np.where(better[:, None], found_slope, slope)
        value, step = np.where(better, sign * found, value), np.where(better, 1.8 * step, step / 3.0)
    error = np.abs(np.expm1(np.minimum(sign * value, 700.0)))
    best = np.argsort(-np.where(np.isfinite(error), error, 0.0))[:_BEST]
    precise = Sums(problem, ball, np.longdouble).at(x[best].astype(np.longdouble))[0]
    return float(np.abs(np.expm1(precise)).max())


def attacked(kind: str, seed: tuple[int, ...], is_tight: bool) -> dict[str, float]:
    """One attack: the error found over the exact and over the sampled certificate."""
    rng = np.random.default_rng(seed)
    problem = KINDS[kind](rng, is_tight)
    core, options = problem.core, {"sample_weight": problem.weights, "radius": problem.radius}
    exact = core.certify(problem.X, method="exact", **options)
    draws = {"n_sampled": _SAMPLED, "delta": _DELTA, "random_state": int(rng.integers(2**31))}
    sampled = core.certify(problem.X, method="sampled", **draws, **options)
    assert core.ball is not None
    ball = QueryBall(exact.loss, core.ball.center, core.ball.scale, exact.radius)
    found = worst_found(problem, ball, rng)
    return {"exact": _over(found, exact.eps), "sampled": _over(found, sampled.eps)}


def _over(found: float, certified: float) -> float:
    if np.isnan(certified):
        return np.nan  # no statement, counted apart
    return found / certified if certified > 0 else (0.0 if found == 0 else np.inf)


def run_part(part: int) -> Record:
    """Attack ``PER_KIND`` problems of every kind; a part is repeated by its number."""
    found: Record = {}
    for number, kind in enumerate(KINDS):
        ratios = []
        for i in range(PER_KIND):
            ratios.append(attacked(kind, (part, number, i), i % TIGHT_EVERY == 0))
        tight, free = ratios[::TIGHT_EVERY], [r for i, r in enumerate(ratios) if i % TIGHT_EVERY]
        found[kind] = {
            "attacks": len(ratios),
            "above": sum(not r["exact"] <= 1.0 for r in ratios),
            "largest": max(r["exact"] for r in free),
            "sampled_above": sum(r["sampled"] > 1.0 for r in ratios),
            "sampled_largest": float(np.nanmax([r["sampled"] for r in free])),
            "sampled_nan": sum(bool(np.isnan(r["sampled"])) for r in ratios),
            "tight": len(tight),
            "caught": sum(r["exact"] > SHRUNK for r in tight),
        }
    return {"kinds": found}


def summary(records: list[Record]) -> list[dict[str, Any]]:
    """Sums and largest values over all parts, a line for each kind, then all of them."""
    lines: list[dict[str, Any]] = []
    for kind in KINDS:
        parts = [record["kinds"][kind] for record in records]
        lines.append({"kind": kind} | {name: _together(name)([part[name] for part in parts]) for name in parts[0]})
    every = {name: _together(name)([line[name] for line in lines]) for name in lines[0] if name != "kind"}
    return [*lines, {"kind": "all"} | every]


def _together(name: str) -> Callable[[list[float]], float]:
    return max if "largest" in name else sum


_ABOUT = f"""\
# Attacks on certificates

Written by `python -m paper benchmark attacks`, which takes up a run that was stopped; `runs.jsonl` has a line for each
{PER_KIND * len(KINDS)} attacks.

Every attack is a random small problem (12 to 270 rows, 1 to 6 columns; Gaussian and Laplacian sums; drawn, reweighted,
refined, or with weights by hand). Its certificate is put beside the worst error that a search finds, evaluated in long
doubles. The exact certificate must never be exceeded. The sampled one, from {_SAMPLED} rows, may be with probability
{_DELTA:g}. The last column is the check of the search: every {TIGHT_EVERY}th problem is made so that its certificate is
nearly tight, and there one that were {100 * (1 - SHRUNK):.0f} % smaller must be exceeded. The largest ratios are those
of the other problems.
"""


def page(records: list[Record]) -> str:
    """The figures as Markdown."""
    header = ["kind", "attacks", "above the exact certificate", "largest found / certified"]
    header += ["above the sampled one", "not a number", "largest", "tight ones caught at 2 % less"]
    rows = [
        [
            line["kind"],
            f"{line['attacks']:,}",
            f"{line['above']}",
            f"{line['largest']:.7f}",
            f"{line['sampled_above']}",
            f"{line['sampled_nan']}",
            f"{line['sampled_largest']:.7f}",
            f"{line['caught']:,} of {line['tight']:,}",
        ]
        for line in summary(records)
    ]
    return "\n".join([_ABOUT, *markdown(header, rows)]) + "\n"


def attacks(
    settings: Settings,
    count: Annotated[int, typer.Option(help="Attacks in all; those in the folder count.", min=1)] = 20_000,
    out: Annotated[Path, typer.Option(help="Folder of runs and page.")] = RESULTS,
) -> None:
    """Attack certificates of random problems of every kind, and write what was found."""
    log = Log(out / "runs.jsonl")
    parts = -(-count // (PER_KIND * len(KINDS)))
    log.run_missing([{"part": part} for part in range(parts)], lambda each: run_part(each["part"]))
    log = Log(out / "runs.jsonl")
    (out / "README.md").write_text(page(log.records))
    last = summary(log.records)[-1]
    above, missed = last["above"], last["tight"] - last["caught"]
    settings.out.print(
        f"{last['attacks']:,} attacks, {above} above the exact certificate. Wrote {out / 'README.md'}.", soft_wrap=True
    )
    if above or missed:
        settings.err.print(f"{above} certificates exceeded, {missed} tight ones not reached.", soft_wrap=True)
        raise typer.Exit(1)
