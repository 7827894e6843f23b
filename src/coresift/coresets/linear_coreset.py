"""Coresets of linear models: few weighted rows whose fit is close to the fit of all rows."""

from typing import Any, Self

from .._errors import InvalidInputError
from .._progress import logger
from .._validation import check_bool, check_budget, check_choice, check_generator, check_number, check_seed
from ..core.duality import ModelCertificate
from ..core.linear import Leverage, LinearProblem, LossSums, fit_linear
from .base import PassCoreset
from .coreset import Coreset
from .fit_options import TOLERANCE
from .fitting import Runner, children
from .linear_draw import MOST_FEATURES, calibrate_draw, draw_two_steps
from .linear_rows import LARGEST_ALPHA, LinearRows, linear_rows
from .model_certificate import certify_linear
from .options import CLASSIFIERS, LINEAR_LOSSES

_MOST_PARAMETERS = 10_000
_FEW_ROWS = 20  # a parameter; below, an even draw can be the better one


class LinearCoreset(PassCoreset):
    r"""Coresets of linear models: a few weighted rows to fit instead of all of them.

    The problem is :math:`\min_\theta F(\theta) = \sum_i w_i \ell(\theta; x_i, y_i) / W + (\alpha / 2) |coef|^2` with a
    free intercept. A draw in two steps (by leverage, then by the slopes of a pilot fit) gives unbiased weights.
    Calibration then adjusts them so that the subset reproduces the gradient of all rows where it fits.

    ``fit`` makes one pass over the rows, ``sample`` two more, and calibration one a round, at most six; nothing of
    length n is kept. Calibration gains from about 10 rows a parameter on (columns, times classes if there are more than
    two), and reliably from 50. Below 20 a plain draw of the same size is compared, in one more pass, and returned if it
    fits all rows better; ``method`` of the coreset then says so. Other losses, labels and penalties gain less.

    Parameters
    ----------
    loss : {"logistic", "squared", "squared_hinge", "poisson", "huber"}
        "logistic" takes two classes or more (multinomial), "squared_hinge" two; "poisson" takes counts (log link).
    alpha : float >= 0
        Penalty of the squared coefficients, in the units of ``X``. Columns are standardised for the numerics only.
    fit_intercept, threshold : bool; float, optional
        Whether there is an intercept, which is not penalised; for "huber", the residual above which it is linear.
    random_state
        As in :class:`RBFCoreset`.

    Attributes
    ----------
    classes_, model_ : (K,) array, (coef, intercept)
        Classes in ascending order; the fit of the last coreset in the units of the data, (1 or K, d) and (1 or K,).
    n_rounds_, objective_ : int, float or None
        Rounds of calibration that were kept, and F of all rows at ``model_``, if a pass found it.

    References
    ----------
    Wang, Zhu and Ma, "Optimal subsampling for large sample logistic regression", JASA 2018. Ting and Brochu, "Optimal
    subsampling with influence functions", NeurIPS 2018. Deville and Sarndal, "Calibration estimators", JASA 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from coresift import LinearCoreset
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 4))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(2 - X[:, 0]))
    >>> core = LinearCoreset(random_state=0).fit(X, y).sample(500)
    >>> Xs, ys, ws = core.take(X, y)
    >>> small = LogisticRegression(C=1 / (1e-4 * ws.sum())).fit(Xs, ys, ws)  # C = 1 / (alpha W)
    >>> full = LogisticRegression(C=1 / (1e-4 * len(X))).fit(X, y)
    >>> bool(np.abs(small.coef_ - full.coef_).max() < 1e-2)
    True
    """

    def __init__(
        self,
        loss: str = "logistic",
        *,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss, self.alpha, self.fit_intercept, self.threshold = loss, alpha, fit_intercept, threshold
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Survey the rows and find the leverage, in one pass; the arguments are as in :meth:`RBFCoreset.fit`."""
        self._fit(X, y, sample_weight, estimator=self)
        return self

    def fit_rows(self, *, runner: Runner, X: Any = None) -> None:
        self._fit(runner.rows, None, runner=runner)

    def _fit(self, X: Any, y: Any, sample_weight: Any = None, **how: Any) -> None:
        is_classifier = check_choice(self.loss, "loss", LINEAR_LOSSES) in CLASSIFIERS
        check_number(self.alpha, "alpha", at_least=0.0, at_most=LARGEST_ALPHA)
        check_bool(self.fit_intercept, "fit_intercept")
        rows = linear_rows(X, y, sample_weight, is_classifier=is_classifier, most_columns=_MOST_PARAMETERS, **how)
        (draw_rng,) = children(check_generator(self.random_state), 1)
        loss = rows.loss(self.loss, self.threshold)
        problem = rows.problem(loss, float(self.alpha), fit_intercept=self.fit_intercept)
        if (n_parameters := problem.shape[0] * problem.shape[1]) > _MOST_PARAMETERS:
            made = f"{n_parameters:,} parameters for {problem.shape[0]} output(s)"
            text = f"which makes {made}, more than the {_MOST_PARAMETERS:,} that are possible"
            raise InvalidInputError(f"X has {rows.runner.rows.d:,} columns, {text}. Select or hash the columns first.")
        leverage = Leverage(rows.gram(problem))
        for name in ("classes_", "model_", "n_rounds_", "objective_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self._record_columns(rows.runner.rows, X)
        if rows.response.classes is not None:
            self.classes_ = rows.response.classes
        self._runner, self._draw_rng, self._survey = rows.runner, draw_rng, (rows.response, rows.moments)
        self._problem, self._leverage = problem, leverage

    def sample(
        self, size: int | float, *, calibrate: bool = True, tolerance: float = TOLERANCE, random_state: Any = None
    ) -> Coreset:
        """Draw a coreset, fit it, and calibrate its weights.

        Parameters
        ----------
        size, random_state
            As in :meth:`RBFCoreset.sample`.
        calibrate : bool
            Adjust the weights until the fit of the subset is close to the fit of all rows. Each round is one pass, and
            is dropped if it does not lower the loss of all rows. This gives up exact unbiasedness of other sums.
        tolerance : float, default 3e-6
            Calibration stops when the loss of all rows is expected to be within this share of the least one.
        """
        rows, problem = self.fitted()
        count = check_budget(size, rows.runner.rows.n)
        check_bool(calibrate, "calibrate")
        check_number(tolerance, "tolerance", at_least=0.0)
        seed = check_seed(random_state, self._draw_rng)
        n_parameters = problem.shape[0] * problem.shape[1]
        is_small = calibrate and count < min(_FEW_ROWS * n_parameters, rows.moments.n_rows)
        drawn, totals, even = draw_two_steps(rows, problem, self._leverage, count, seed, with_even=is_small)
        self.n_rounds_, method, self._step = 0, "two-step", None
        fitted = fit_linear(problem, drawn.X, drawn.y, drawn.weights, totals)
        has_all = len(drawn.indices) == rows.moments.n_rows
        theta, self.objective_ = fitted.theta, fitted.objective if has_all else None
        if calibrate and not has_all and (count < problem.n_columns or theta.size >= MOST_FEATURES):
            few = f"size = {count} is below the {problem.n_columns} columns of the model"
            many = f"the model has {theta.size:,} parameters, above the {MOST_FEATURES - 1:,} that can be calibrated"
            reason = few if count < problem.n_columns else many
            logger.warning("LinearCoreset: %s, so the weights are not calibrated.", reason)
        elif calibrate and totals is not None:
            drawn, best, self.n_rounds_, self._step = calibrate_draw(rows, drawn, fitted, totals, tolerance)
            theta, self.objective_ = best.theta, best.objective
        if even is not None:
            rival = fit_linear(problem, even.X, even.y, even.weights).theta
            ours, theirs = rows.run("calibration", *(LossSums(problem, at, order=0) for at in (theta, rival)))
            self.objective_ = ours.objective
            if not ours.objective <= theirs.objective:
                drawn, theta, self.objective_, self.n_rounds_, self._step = even, rival, theirs.objective, 0, None
                method = "uniform" if rows.response.classes is None else "stratified"
        self.model_, self._theta = problem.to_data(theta), theta
        return Coreset(
            indices=drawn.indices,
            weights=drawn.weights,
            n_samples=rows.runner.rows.n,
            method=method,
            bound="leverage and slopes" if method == "two-step" else None,
            seed=seed,
            total_weight=rows.moments.mass,
            adjustments=("calibrated",) if self.n_rounds_ else (),
        )

    def certified(self, *, tolerance: float = 0.0) -> ModelCertificate:
        """Return a certificate of the last model, often after one pass; stop at an excess of ``tolerance``."""
        rows, problem = self.fitted()
        return certify_linear(rows, problem, self._theta, tolerance=tolerance, step=self._step)

    def fitted(self) -> tuple[LinearRows, LinearProblem]:
        """The rows and the problem, for passes that follow."""
        return LinearRows(self._fitted_runner(), *self._survey), self._problem

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
