"""Train a network of Gaussians on 4 % of the points, and see what is known about its error.

Run it with ``python -m paper.networks.example``; it takes a few seconds.
"""

from typing import Any

import numpy as np

from paper.networks import RBFNetworkCoreset, RBFNetworkRegressor

N_POINTS, SIZE, BANDWIDTH = 10_000, 400, 1.0


def main(seed: int = 0) -> dict[str, float]:
    """Print the errors of networks trained on all points, a uniform sample and a coreset; return them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_POINTS, 2))
    radius = np.linalg.norm(X, axis=1)
    y = np.exp(-(radius**2)) + 0.2 * np.cos(4 * radius)

    # Networks with centres anywhere among the data: a ball that holds them, in units of the bandwidth.
    reach = np.linalg.norm(X - X.mean(axis=0), axis=1).max() / BANDWIDTH
    estimator = RBFNetworkCoreset(radius=reach, bandwidth=BANDWIDTH, bound="cells", random_state=seed).fit(X, y)
    core = estimator.sample(SIZE)
    X_small, y_small, weights = core.take(X, y)

    def error(X_train: Any, y_train: Any, sample_weight: Any = None) -> tuple[float, RBFNetworkRegressor]:
        model = RBFNetworkRegressor(
            n_centers=100, bandwidth=BANDWIDTH, ridge=1e-8, fit_intercept=False, random_state=seed
        ).fit(X_train, y_train, sample_weight=sample_weight)
        return float(np.sqrt(np.mean((model.predict(X) - y) ** 2))), model

    rows = rng.choice(N_POINTS, SIZE, replace=False)
    from_all, _ = error(X, y)
    from_uniform, _ = error(X[rows], y[rows])
    from_coreset, model = error(X_small, y_small, weights)
    print(f"root mean square error over all {N_POINTS:,} points, network of 100 neurons")
    print(f"  trained on all points            {from_all:.4f}")
    print(f"  trained on {SIZE} uniform points    {from_uniform:.4f}")
    print(f"  trained on {SIZE} of a coreset      {from_coreset:.4f}")

    found = estimator.loss_error(model.centers_, model.alphas_)
    print(
        f"loss of that network: {found.loss:.4g} over the data, {found.loss_coreset:.4g} by the coreset; the error is "
        f"{found.relative_error:.1e} of the magnitude in the guarantee"
    )
    worst = estimator.audit(n_neurons=3, n_starts=4, random_state=seed)
    print(f"the worst network of 3 neurons that a search found errs by {worst.worst_error:.3f} of its magnitude")
    return {
        "all": from_all,
        "uniform": from_uniform,
        "coreset": from_coreset,
        "relative": found.relative_error,
        "worst": worst.worst_error,
    }


if __name__ == "__main__":
    main()
