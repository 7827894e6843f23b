"""Certify a fitted linear model: a proved bound on how far its loss is above the smallest possible one."""

from dataclasses import replace
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import check_number
from ..core.duality import DualSums, ModelCertificate as ModelCertificate, bound_excess, exact_excess
from ..core.linear import LinearProblem
from ..core.linear_losses import Huber, Squared
from .linear_models import DescribedModel, class_factors, read_model
from .linear_rows import LinearRows, linear_rows

_MOST_PARAMETERS = 2000  # for which a Hessian is formed
_MOST_PASSES = {2: 30, 1: 60}  # with Hessians, and without


def certify_model(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    loss: str | None = None,
    alpha: float | None = None,
    threshold: float | None = None,
    sample_weight: Any = None,
    tolerance: float = 0.0,
) -> ModelCertificate:
    r"""Bound how far a fitted linear model is from the best one, over all rows: proved, without a probability.

    :math:`F(\theta) = \sum_i w_i l(\theta; x_i, y_i) / W + (\alpha / 2) |coef|^2`, and :math:`F^*` is its minimum over
    all models. The model may have been fitted to other rows, such as a coreset. ``docs/theory.md`` has the proof.

    Parameters
    ----------
    model : fitted estimator, LinearModel or tuple (coef, intercept)
        LogisticRegression, LogisticRegressionCV, LinearSVC (squared hinge), Ridge, RidgeCV, RidgeClassifier,
        LinearRegression, PoissonRegressor, SGDClassifier or SGDRegressor of scikit-learn: loss, penalty and class
        weights are read from the model, as if it had been fitted to these rows, a penalised intercept too. Or a
        :class:`LinearModel`. Or coefficients of shape (d,) or (K, d) and an intercept, None if the model has none;
        scores are positive for the second class.
    X, y : array, sparse matrix or frame, and array-like of shape (n,); or Rows and None
        The rows, and their labels or targets; ``Rows`` are opened with them.
    loss, alpha, threshold : str, float, float, optional
        For a pair, as in :class:`LinearCoreset`. Loss and alpha together replace what is read from an estimator, whose
        intercept is then free; alpha alone replaces its penalty.
    sample_weight : array-like of shape (n,), optional
    tolerance : float, default 0
        Stop when ``relative`` is at most this. By default the search stops within a tenth of the excess that it found.

    Returns
    -------
    ModelCertificate

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import scale
    >>> from coresift import certify_model
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> print(certify_model(LogisticRegression().fit(X[:400], y[:400]), X, y))  # fitted to some of the rows
    At most 12 % above the smallest possible loss; proved, in 4 passes.

    """
    check_number(tolerance, "tolerance", at_least=0.0)
    described = read_model(model, loss, alpha, threshold)
    goal = described.objective
    rows = linear_rows(X, y, sample_weight, is_classifier=described.is_classifier)
    _check_columns(described, rows)
    mass, made = rows.moments.mass, rows.loss(goal.loss, goal.threshold)
    if len(described.coef) != made.n_outputs:
        raise InvalidInputError(
            f"model has {len(described.coef)} rows of coefficients; {made.name} regression of these rows needs "
            f"{made.n_outputs}. One-versus-rest models are certified class by class."
        )
    signed = described.is_classifier and not made.is_classifier
    if signed and rows.response.classes is not None and len(rows.response.classes) > 2:
        raise InvalidInputError("A regression on the classes -1 and 1 needs two classes; certify them one by one.")
    factors = None
    if described.class_weight is not None and rows.response.classes is not None:
        masses = rows.by_class(rows.moments.label_mass)
        factors = class_factors(described.class_weight, rows.response.classes, masses)
        mass = float(factors @ masses)
    rows = replace(rows, response=replace(rows.response, factors=factors, signed=signed))
    problem = rows.problem(
        made,
        goal.alpha(mass, rows.runner.rows.n),
        fit_intercept=described.intercept is not None,
        intercept_penalty=goal.intercept_penalty,
    )
    theta = problem.from_data(described.coef, np.zeros(1) if described.intercept is None else described.intercept)
    found = certify_linear(rows, problem, theta, tolerance=tolerance)
    return replace(found, n_passes=found.n_passes + 1)  # the survey


@np.errstate(over="ignore", invalid="ignore")  # a loss may be infinite
def certify_linear(
    rows: LinearRows, problem: LinearProblem, theta: np.ndarray, tolerance: float = 0.0, step: np.ndarray | None = None
) -> ModelCertificate:
    """Certify ``theta``, in the columns of ``problem``, over rows that are open and surveyed already.

    ``step`` is a guess of the way to the minimum, which saves passes if it is good.
    """
    order = 2 if theta.size <= _MOST_PARAMETERS else 1

    def sums_at(theta: np.ndarray, base: np.ndarray, step: np.ndarray | None) -> DualSums:
        return rows.run("certificate", DualSums(problem, theta, order, base, step))[0]

    moments, factors = rows.moments, rows.response.factors
    mean_squares = (moments.scatter / moments.mass + (moments.mean - problem.shift) ** 2) / problem.spread**2
    if factors is not None:
        mean_squares *= factors.max() * moments.mass / (factors @ rows.by_class(moments.label_mass))
    rms = 1.01 * np.sqrt(mean_squares) + 1e-15 * np.abs(moments.mean) / problem.spread  # of the columns, rounded
    rms = np.append(rms, 1.0) if problem.fit_intercept else rms
    gram = None
    if problem.alpha == 0.0:
        if type(problem.loss) is not Squared or order < 2:
            raise InvalidInputError(
                f"alpha = 0: without a penalty the {problem.loss.name} loss is not strongly convex, and only the "
                f"squared loss of at most {_MOST_PARAMETERS:,} columns can be certified. Fit with a small penalty."
            )
        found = exact_excess(sums_at(theta, theta, None), rms)
    else:
        if order == 1 and problem.n_columns <= _MOST_PARAMETERS:
            squares = rows.least_squares(problem)
            gram = squares.hessian[0, :, 0] / squares.weight
        is_huber = isinstance(problem.loss, Huber) and order == 2  # which is flat far from the targets
        anew = (lambda: rows.least_squares(problem).newton_step()[0]) if is_huber else None
        limits: dict[str, Any] = {"max_passes": _MOST_PASSES[order], "tolerance": tolerance}
        found = bound_excess(sums_at, theta, rms, step=step, anew=anew, gram=gram, **limits)
    return replace(found, n_passes=found.n_passes + (gram is not None))


def _check_columns(model: DescribedModel, rows: LinearRows) -> None:
    ours, d = rows.runner.rows, model.coef.shape[1]
    if ours.d != d:
        raise InvalidInputError(f"{ours.name} has {ours.d} columns, but the model was fitted on {d}.")
    if model.names is not None and ours.names is not None and model.names != ours.names:
        at = next(i for i, (here, there) in enumerate(zip(ours.names, model.names, strict=True)) if here != there)
        raise InvalidInputError(
            f"{ours.name}: column {at} is {ours.names[at]!r}, but the model was fitted on {model.names[at]!r} "
            "there. Pass the columns of the fit, in the same order."
        )
    classes = rows.response.classes
    if model.classes is not None and classes is not None and not np.array_equal(model.classes, classes):
        known = f"the classes of the model are {_listed(model.classes)}"
        raise InvalidInputError(f"{ours.name}: the labels are {_listed(classes)}, but {known}.")


def _listed(classes: np.ndarray) -> str:
    return ", ".join(map(repr, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")
