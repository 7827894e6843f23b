"""Tune a model with Ray Tune on nested coresets: a trial reports after each subset, and ASHA stops bad ones early.

python examples/ray_tune_example.py      needs coresift and pip install "ray[tune]"
"""

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from coresift import nested_coresets

X, y = load_digits(return_X_y=True)
X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
X_train, X_val, y_train, y_val = train_test_split(X_rest, y_rest, test_size=0.25, stratify=y_rest, random_state=0)
ladder = nested_coresets(X_train, y_train, (0.05, 0.2, 0.6), random_state=0)  # chosen once, shared by all trials


def trial(config, data):
    X_train, y_train, X_val, y_val, ladder = data
    for core in ladder:
        X_small, y_small, weights = core.take(X_train, y_train)
        score = SVC(**config).fit(X_small, y_small, sample_weight=weights).score(X_val, y_val)
        tune.report({"score": score})


tuner = tune.Tuner(
    tune.with_parameters(trial, data=(X_train, y_train, X_val, y_val, ladder)),
    param_space={"C": tune.loguniform(1e-2, 1e2), "gamma": tune.loguniform(1e-5, 1e-1)},
    tune_config=tune.TuneConfig(
        metric="score",
        mode="max",
        num_samples=20,
        scheduler=AsyncHyperBandScheduler(max_t=3, grace_period=1, reduction_factor=3),
    ),
    run_config=tune.RunConfig(verbose=0),
)
found = tuner.fit()
stopped = sum(len(result.metrics_dataframe) < len(ladder) for result in found)
best = SVC(**found.get_best_result().config).fit(X_rest, y_rest)
print(f"{stopped} of {len(found)} trials stopped early; test accuracy of the best: {best.score(X_test, y_test):.1%}")
