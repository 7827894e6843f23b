"""Excess loss of a logistic regression against the size of the subset, drawn as a figure.

``python examples/linear_models.py [FOLDER] [--figure FILE]``: with a FOLDER that has ``covtype/``, Forest CoverType;
without, scikit-learn's digits ("is it even?"), which are few but need no download.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

from coresift import LinearCoreset, certify_model
from coresift.data.datasets import find_dataset
from coresift.data.standard import read_covtype

ALPHA, SEEDS = 1e-4, range(3)
LINES = {  # colours for colour-blind readers too
    "uniform": {"color": "#000000", "marker": "o", "linestyle": ":"},
    "two-step": {"color": "#E69F00", "marker": "D", "linestyle": "--"},
    "calibrated": {"color": "#0072B2", "marker": "^", "linestyle": "-"},
    "certificate": {"color": "#D55E00", "marker": "_", "linestyle": "", "markersize": 18, "markeredgewidth": 2},
}


def load(folder: Path | None):
    """Name, standardised columns, a label of two classes, and the sizes to try."""
    if folder is None:
        X, y = load_digits(return_X_y=True)
        return "digits, even or odd", scale(X[:, X.std(axis=0) > 0]), y % 2, (300, 500, 800, 1200)
    X, y = read_covtype(find_dataset("covtype", folder)[0])
    return "CovType, lodgepole pine or not", scale(X[:, X.std(axis=0) > 0]), y == 2, (1000, 2000, 5000, 10_000, 20_000)


def fit(X, y, weights):
    return LogisticRegression(C=1 / (ALPHA * weights.sum()), max_iter=5000, tol=1e-8, solver="newton-cholesky").fit(
        X, y, sample_weight=weights
    )


def measure(X, y, sizes):
    """Relative excess loss by line and size, one entry for each seed."""
    n = len(X)
    best = certify_model(fit(X, y, np.ones(n)), X, y, alpha=ALPHA).lower_bound
    found = {name: {size: [] for size in sizes} for name in LINES}
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        estimator = LinearCoreset("logistic", alpha=ALPHA, random_state=seed).fit(X, y)
        for size in sizes:
            rows = rng.choice(n, size, replace=False)
            subsets = {
                "uniform": (X[rows], y[rows], np.full(size, n / size)),
                "two-step": estimator.sample(size, calibrate=False).take(X, y),
                "calibrated": estimator.sample(size).take(X, y),
            }
            for name, subset in subsets.items():
                certificate = certify_model(fit(*subset), X, y, alpha=ALPHA)
                found[name][size].append(certificate.objective / best - 1)
            found["certificate"][size].append(certificate.relative)
    return found


def draw(found, title, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=160, layout="constrained")
    ax = figure.subplots()
    for name, by_size in found.items():
        sizes, values = list(by_size), np.array(list(by_size.values()))
        middle = np.exp(np.log(values).mean(axis=1))
        if name != "certificate":
            ax.fill_between(sizes, values.min(axis=1), values.max(axis=1), color=LINES[name]["color"], alpha=0.12)
        ax.plot(sizes, middle, label="calibrated, certified" if name == "certificate" else name, **LINES[name])
    ax.set(xscale="log", yscale="log", xlabel="rows in the subset", title=title)
    ax.set_ylabel(f"relative excess loss (mean, range of {len(SEEDS)} seeds)")
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.minorticks_off()
    ax.grid(color="#D8D8D8", linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="folder that has covtype/")
    parser.add_argument("--figure", type=Path, default=Path("linear-models.png"))
    arguments = parser.parse_args(argv)
    name, X, y, sizes = load(arguments.folder)
    found = measure(X, y, sizes)
    print(
        f"{name}: {X.shape[0]:,} rows, {X.shape[1]} columns; relative excess loss, geometric mean of {len(SEEDS)} seeds"
    )
    print("  rows  " + "".join(f"{each:>13}" for each in LINES))
    for size in sizes:
        print(f"{size:6,}  " + "".join(f"{np.exp(np.log(found[each][size]).mean()):13.1e}" for each in LINES))
    draw(found, f"{name}: {X.shape[0]:,} rows, {X.shape[1]} columns", arguments.figure)
    print(f"Wrote {arguments.figure}.")


if __name__ == "__main__":
    main()
