"""Tune a model with Optuna on nested coresets: a trial reports after each subset, and a pruner stops bad ones early.

python examples/optuna_example.py      needs coresift and pip install optuna
"""

import optuna
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from coresift import nested_coresets

X, y = load_digits(return_X_y=True)
X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
X_train, X_val, y_train, y_val = train_test_split(X_rest, y_rest, test_size=0.25, stratify=y_rest, random_state=0)
ladder = nested_coresets(X_train, y_train, (0.05, 0.2, 0.6), random_state=0)  # chosen once, shared by all trials


def objective(trial):
    settings = {
        "C": trial.suggest_float("C", 1e-2, 1e2, log=True),
        "gamma": trial.suggest_float("gamma", 1e-5, 1e-1, log=True),
    }
    for step, core in enumerate(ladder):
        X_small, y_small, weights = core.take(X_train, y_train)
        score = SVC(**settings).fit(X_small, y_small, sample_weight=weights).score(X_val, y_val)
        trial.report(score, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return score


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
)
study.optimize(objective, n_trials=40)
pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
best = SVC(**study.best_params).fit(X_rest, y_rest)
print(f"{pruned} of {len(study.trials)} trials pruned; test accuracy of the best: {best.score(X_test, y_test):.1%}")
