"""Bad and extreme input to the estimators of linear models and k-means: right results, or refused by name."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coresift import CoresetClassifier, KMeansCoreset, LeastSquaresCoreset, LinearCoreset, certify_model
from coresift._errors import InvalidInputError, InvalidTypeError
from coresift.core.linear import fit_linear

N = 300


def table(kind="logistic", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    z = X @ [0.8, 0.0, -0.8] - 0.3
    makers = {
        "logistic": lambda: (rng.random(N) < 1 / (1 + np.exp(-z))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(z)).astype(float),
    }
    y = makers[kind]() if kind in makers else z + rng.normal(size=N)
    return X, y


@pytest.mark.parametrize("weight", [1e-300, 1e-150, 1e-3, 1e150, 1e290])
def test_a_factor_of_all_weights_changes_only_the_total(weight):
    X, y = table()
    plain, scaled = (LinearCoreset(random_state=0).fit(X, y, np.full(N, w)).sample(60) for w in (1.0, weight))
    np.testing.assert_array_equal(scaled.indices, plain.indices)
    np.testing.assert_allclose(scaled.weights / weight, plain.weights, rtol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1e6, 1e10, 1e15])
def test_counts_may_be_large(factor):
    X, y = table("poisson")
    est = LinearCoreset("poisson", random_state=0).fit(X, factor * y)
    est.sample(100)
    found = certify_model(est.model_, X, factor * y, loss="poisson", alpha=1e-4)
    rows, problem = est.fitted()
    block = rows.runner.rows.take(np.arange(N))
    best = fit_linear(problem, block.X, block.targets, block.weights).objective
    assert found.objective - best <= found.excess
    assert found.relative < 1e-4


@pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge", "poisson", "huber"])
@pytest.mark.parametrize("size", [1e10, 1e150, 1e200, 1e300])
@pytest.mark.parametrize("at", ["coef", "intercept"])
def test_absurd_models_get_a_certificate_that_is_no_number_below_the_loss(loss, size, at):
    X, y = table("logistic" if loss in ("logistic", "squared_hinge") else "poisson")
    model = (np.full(3, size), 0.0) if at == "coef" else (np.ones(3), size)
    threshold = 1.0 if loss == "huber" else None
    found = certify_model(model, X, y, loss=loss, alpha=1e-3, threshold=threshold)
    assert found.excess > 1e6
    assert found.relative > 1e6
    assert len(str(found)) < 100


@pytest.mark.parametrize("alpha", [-1.0, np.inf, np.nan, 1e200])
def test_penalties_are_bounded(alpha):
    X, y = table()
    with pytest.raises(InvalidInputError, match=r"alpha = .* must be at least 0 and at most 1e\+100"):
        certify_model((np.ones(3), 0.0), X, y, loss="logistic", alpha=alpha)


@pytest.mark.parametrize("make", [LinearCoreset("squared"), LeastSquaresCoreset(), KMeansCoreset(3)])
def test_weighted_squares_that_would_overflow_are_refused(make):
    X, y = table("squared")
    with pytest.raises(
        InvalidInputError, match=r"sample_weight sums to .*e\+\d+, which times the square .* above 1e\+"
    ):
        make.fit(1e130 * X, y, sample_weight=np.full(N, 1e290))


def test_flags_are_flags():
    X, y = table()
    with pytest.raises(InvalidTypeError, match="fit_intercept = 'no' must be True or False"):
        LinearCoreset(fit_intercept="no").fit(X, y)
    est = LinearCoreset(random_state=0).fit(X, y)
    with pytest.raises(InvalidTypeError, match="calibrate = 'no' must be True or False"):
        est.sample(50, calibrate="no")
    assert est.sample(50, calibrate=np.bool_(False)).adjustments == ()


def test_complex_numbers_are_refused_in_one_line():
    with pytest.raises(InvalidInputError, match=r"^X: Complex data not supported$"):
        LinearCoreset().fit(1j * table()[0], table()[1])


def test_the_coreset_to_judge_must_be_one():
    X, y = table("squared")
    with pytest.raises(InvalidTypeError, match="core = None must be of type Coreset"):
        LeastSquaresCoreset().fit(X, y).certify(None)
    with pytest.raises(InvalidTypeError, match="core = None must be of type Coreset"):
        KMeansCoreset(2).fit(X).cost(np.zeros((2, 3)), core=None)


@pytest.mark.parametrize("size", [1e160, 1e200])
def test_centres_whose_distances_overflow_are_refused(size):
    est = KMeansCoreset(2, random_state=0).fit(table()[0])
    with pytest.raises(InvalidInputError, match=r"centers has an entry of magnitude .* above 1e\+140"):
        est.cost(np.full((2, 3), size), core=est.sample(50))


def test_clusters_without_a_spread_have_no_excess():
    est = KMeansCoreset(5, random_state=0).fit(np.repeat(table()[0][:3], 100, axis=0))
    assert est._expected_excess(60) == [0.0, 0.0]


@pytest.mark.parametrize("weight", [1e-290, 1.0, 1e295])
def test_the_expected_excess_does_not_depend_on_the_unit_of_weight(weight):
    X = table()[0]
    plain, scaled = (KMeansCoreset(3, random_state=0).fit(X, sample_weight=np.full(N, w)) for w in (1.0, weight))
    assert scaled._expected_excess(60) == pytest.approx(plain._expected_excess(60), rel=1e-6)


def test_advice_for_a_fraction_counts_rows():
    assert KMeansCoreset(3, random_state=0).fit(table()[0]).advice(0.1).startswith("With 30 rows")


def test_meta_estimators_name_the_label_and_the_class_weights():
    X, y = table()
    with pytest.raises(InvalidInputError, match="y: the label is always 'yes': 1 class"):
        CoresetClassifier(LogisticRegression(), size=100).fit(X, np.full(N, "yes"))
    model = LogisticRegression(class_weight={"no": 2.0})
    with pytest.raises(InvalidInputError, match=r"class_weight = .'no': 2.0. has keys that are not"):
        CoresetClassifier(model, size=100).fit(X, y)
