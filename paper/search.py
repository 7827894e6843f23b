"""Search of hyper-parameters: on all rows, by halving on random subsets, and on nested coresets.

``python -m paper run search --data-dir FOLDER`` runs what is missing and appends it to ``paper/results/search``;
without a folder it writes the page and the figure there. Tables and FOLDER are those of the
benchmark ``models``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (HalvingGridSearchCV asks for it)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from coresift import CoresetSearchCV

from .bench.store import RESULTS
from .benchmarks.measure import Log, Record, markdown
from .benchmarks.models.tables import load

OUT = RESULTS / "search"
METHODS = ("full", "random halving", "coresets")
LADDER = (0.03, 0.1, 0.3)
SEEDS = 3
TABLES = {
    "covtype": "accuracy",
    "covtype, 10 columns, 7 classes": "balanced_accuracy",
    "california, dear or not": "accuracy",
    "flights": "roc_auc",
    "generated, 0.9 % positive": "average_precision",
}

# rows are capped so that a search on all of them takes minutes: model, grid, rows
MODELS: dict[str, tuple[Any, dict[str, list[Any]], int]] = {
    "logistic": (
        LogisticRegression(max_iter=300),
        {"C": np.logspace(-5, 3, 9).tolist(), "class_weight": [None, "balanced"]},
        42_000,
    ),
    "SVC": (SVC(cache_size=500), {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.003, 0.03, 0.3]}, 7_000),
    "forest": (
        RandomForestClassifier(20, random_state=0),
        {"max_features": [0.1, 0.3, 0.8], "min_samples_leaf": [1, 3, 10, 30]},
        10_000,
    ),
    "boosting": (
        HistGradientBoostingClassifier(max_iter=40, random_state=0),
        {"learning_rate": [0.03, 0.1, 0.3], "max_leaf_nodes": [4, 10, 31, 80]},
        20_000,
    ),
    "MLP": (
        MLPClassifier(max_iter=20, random_state=0),
        {"hidden_layer_sizes": [(16,), (64,)], "learning_rate_init": [1e-4, 1e-3, 1e-2], "alpha": [1e-4, 1.0]},
        15_000,
    ),
}
TEST_ROWS = 10_000


def runs() -> Iterator[Record]:
    """One entry per seed, model and table; each measures all three methods."""
    for seed in range(SEEDS):
        for model in MODELS:
            for table in TABLES:
                yield {"table": table, "model": model, "seed": seed}


def run(each: Record, folder: Path) -> Record:
    """Search by all methods on the same folds; processor time, refit included."""
    import warnings

    model, grid, most = MODELS[each["model"]]
    scoring, seed = TABLES[each["table"]], each["seed"]
    X, y = load(each["table"], folder)
    rows = np.random.default_rng(seed).permutation(len(X))
    n = min(most, round(0.7 * len(X)))
    kept = np.isin(y, np.flatnonzero(np.bincount(y[rows[:n]]) >= 40))  # so that each fold of each subset can have a row
    train, test = (part[kept[part]] for part in (rows[:n], rows[n : n + TEST_ROWS]))
    X, X_test, y, y_test = X[train], X[test], y[train], y[test]
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    how = {"scoring": scoring, "cv": folds}
    least, largest = round(LADDER[0] * len(X)), round(LADDER[-1] * len(X))
    searches = {
        "full": GridSearchCV(model, grid, **how),
        "random halving": HalvingGridSearchCV(
            model, grid, factor=3, min_resources=least, max_resources=largest, random_state=seed, **how
        ),
        "coresets": CoresetSearchCV(model, grid, ladder=LADDER, random_state=seed, **how),
    }
    found: Record = {"rows": len(X)}
    for name, search in searches.items():
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # twenty epochs are what is compared
            search.fit(X, y)
        seconds = time.process_time() - started
        results = search.cv_results_
        first = results["mean_test_score"][: len(searches["full"].cv_results_["params"])]
        all_rows = searches["full"].cv_results_["mean_test_score"]
        order = [results["params"].index(params) for params in searches["full"].cv_results_["params"]]
        found[name] = {
            "seconds": round(seconds, 2),
            "test": float(get_scorer(scoring)(search.best_estimator_, X_test, y_test)),
            "rank": float(spearmanr(first[order], all_rows).statistic),
            "params": str(search.best_params_),
        }
    return found


def study(folder: Path | None, *, part: int = 0, parts: int = 1, out: Path = OUT) -> str:
    """Run what is missing; without a folder write the page. Return what was done."""
    log = Log(out / "search.jsonl")
    if folder is not None:
        log.run_missing(runs(), lambda each: run(each, folder), part, parts)
        return f"{len(Log(log.path).records)} of {len(list(runs()))} searches are in {log.path.name}."
    write(log.records, out)
    return f"Wrote {out / 'README.md'}."


def write(records: list[Record], out: Path) -> None:
    """Write the tables and the figure."""
    lines = [
        "# Search on subsets",
        "",
        "`python -m paper run search --data-dir FOLDER` measures, `python -m paper run search` writes this page.",
        f"Three folds, {SEEDS} seeds, ladder {', '.join(f'{share:.0%}' for share in LADDER)}.",
        "*Regret*: test score of the search on all rows less that of the method, in points; negative where the method",
        "did better. *Rank*: Spearman's correlation of the scores of all candidates in the first step with those on",
        "all rows. *Time*: processor time over that of the search on all rows, refit included. Means over seeds, with",
        "the standard error of the regret.",
        "",
        "![Regret against time](search.svg)",
        "",
    ]
    header = [f"{what}, {name}" for what in ("regret", "rank", "time") for name in ("random", "coresets")]
    rows, means = [], []
    for model in MODELS:
        for table, scoring in TABLES.items():
            if mine := [r for r in records if (r["model"], r["table"]) == (model, table)]:
                quality = f"{100 * np.mean([r['full']['test'] for r in mine]):.1f}"
                rows.append([model, table, scoring, quality, *_summary(mine)])
        if mine := [r for r in records if r["model"] == model]:
            means.append([model, str(len(mine)), *_summary(mine)])
    lines += markdown(["model", "table", "score", "all rows", *header], rows, left=3)
    lines += ["", "Means over all tables:", "", *markdown(["model", "searches", *header], means)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text("\n".join(lines) + "\n")
    _draw(records, out / "search.svg")


def regrets(records: list[Record], name: str) -> tuple[float, float]:
    """Mean regret of a method in points, and its standard error."""
    each = 100 * np.array([r["full"]["test"] - r[name]["test"] for r in records])
    return float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5) if len(each) > 1 else np.nan


def share_of_time(records: list[Record], name: str) -> float:
    """Mean time of a method over that of the search on all rows."""
    return float(np.mean([r[name]["seconds"] / r["full"]["seconds"] for r in records]))


def _summary(records: list[Record]) -> list[str]:
    return [
        *("{:.2f} ± {:.2f}".format(*regrets(records, name)) for name in METHODS[1:]),
        *(f"{np.nanmean([r[name]['rank'] for r in records]):.2f}" for name in METHODS[1:]),
        *(f"{share_of_time(records, name):.2f}" for name in METHODS[1:]),
    ]


def _draw(records: list[Record], path: Path) -> None:
    from .plots import BLUE, GREY, new_figure, save_figure

    with new_figure(6.4, 3.8) as figure:
        axes = figure.subplots()
        for name, marker, colour in zip(METHODS[1:], "os", (GREY, BLUE), strict=True):
            for model in MODELS:
                if mine := [r for r in records if r["model"] == model]:
                    (mean, error), share = regrets(mine, name), share_of_time(mine, name)
                    axes.errorbar(share, mean, error, fmt=marker, color=colour)
                    where = (5, 4 if name == METHODS[-1] else -11)
                    axes.annotate(model, (share, mean), xytext=where, textcoords="offset points", fontsize=8)
            axes.plot([], [], marker, color=colour, label=name)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set(xscale="log", xlabel="time over that of the search on all rows", ylabel="regret in points")
        axes.legend()
        save_figure(figure, path)
