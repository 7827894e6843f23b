import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import CoresiftError
from paper.networks import RBFNetworkClassifier, RBFNetworkCoreset, RBFNetworkRegressor

SMALL = {"n_centers": 8, "max_iter": 3}


@parametrize_with_checks(
    [
        RBFNetworkRegressor(),
        RBFNetworkRegressor(**SMALL, centers="learned"),
        RBFNetworkRegressor(centers="random", bandwidth=None, fit_intercept=False),
        RBFNetworkClassifier(),
        RBFNetworkClassifier(**SMALL, centers="learned"),
        RBFNetworkCoreset(),
        RBFNetworkCoreset(bound="cells", n_cells=3),
    ]
)
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)


def wave(n, seed=0, d=2):
    X = np.random.default_rng(seed).normal(size=(n, d))
    r = np.linalg.norm(X, axis=1)
    return X, np.exp(-(r**2)) + 0.2 * np.cos(4 * r)


def test_a_network_is_recovered():
    """Targets made by a network with centres among the rows: the output layer is found exactly."""
    X, _ = wave(30)
    a = np.random.default_rng(1).normal(size=(30, 2))
    y = 3.0 + np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 0.3**2) @ a
    model = RBFNetworkRegressor(n_centers=30, bandwidth=0.3, ridge=0.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-8)
    np.testing.assert_allclose(np.sort(model.centers_, axis=0), np.sort(X, axis=0), atol=1e-12)
    assert model.bandwidth_ == 0.3


def test_predictions_are_the_formula():
    X, y = wave(50)
    for centers in ("k-means++", "random", "learned"):
        model = RBFNetworkRegressor(n_centers=7, centers=centers, bandwidth=0.8, max_iter=5, random_state=0).fit(
            X + 100, y
        )
        new = X[:9] * 1.1 + 100
        H = np.exp(-((new[:, None] - model.centers_) ** 2).sum(axis=2) / model.bandwidth_**2)
        np.testing.assert_allclose(model.predict(new), H @ model.alphas_[:, 0] + model.intercept_[0], rtol=1e-8)


def test_learning_lowers_the_loss_and_moves_everything():
    X, y = wave(300)
    start = RBFNetworkRegressor(n_centers=10, centers="k-means++", bandwidth=1.0, random_state=0).fit(X, y)
    learned = RBFNetworkRegressor(n_centers=10, centers="learned", bandwidth=1.0, random_state=0).fit(X, y)
    assert np.mean((learned.predict(X) - y) ** 2) < 0.3 * np.mean((start.predict(X) - y) ** 2)
    assert not np.allclose(learned.centers_, start.centers_)
    assert learned.bandwidth_ != start.bandwidth_
    assert 1 < learned.n_iter_ <= 200


@pytest.mark.parametrize("centers", ["k-means++", "random", "learned"])
def test_weights_are_repetitions(centers):
    """A row of weight 3 is the row three times, and one of weight 0 is absent, in every step of the fit."""
    X, y = wave(40)
    w = np.random.default_rng(2).integers(0, 4, size=40)
    params = {"n_centers": 8, "centers": centers, "bandwidth": "median", "max_iter": 10, "random_state": 0}
    weighted = RBFNetworkRegressor(**params).fit(X, y, sample_weight=w)
    repeated = RBFNetworkRegressor(**params).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6, atol=1e-7)
    unweighted = RBFNetworkRegressor(**params).fit(X, y)
    assert not np.allclose(unweighted.predict(X), repeated.predict(X), atol=1e-3)


def test_the_total_of_the_weights_does_not_matter():
    X, y = wave(60)
    models = [
        RBFNetworkRegressor(n_centers=10, ridge=1e-2, random_state=0).fit(X, y, np.full(60, total))
        for total in (1e-6, 1e6)
    ]
    np.testing.assert_allclose(models[0].predict(X), models[1].predict(X), rtol=1e-8)


def test_fewer_distinct_rows_than_centres():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], 10, axis=0)
    y = np.repeat([1.0, -1.0, 3.0], 10)
    for centers in ("k-means++", "random", "learned"):
        model = RBFNetworkRegressor(n_centers=50, centers=centers, bandwidth=1.0, max_iter=3).fit(X, y)
        assert model.centers_.shape == (3, 2)
        np.testing.assert_allclose(model.predict(X), y, atol=1e-2)
    one = RBFNetworkRegressor().fit(np.zeros((5, 2)), np.arange(5.0))  # one distinct row: its mean target
    assert one.predict([[0.0, 0.0]]) == pytest.approx(2.0)


def test_spread_centres_cover_what_random_ones_miss():
    rng = np.random.default_rng(0)
    X = np.concatenate((rng.normal(size=(990, 2)) * 0.1, rng.normal(size=(10, 2)) * 0.1 + 10))
    reached = {
        centers: np.mean(
            [
                (
                    RBFNetworkRegressor(n_centers=4, centers=centers, bandwidth=1.0, random_state=s)
                    .fit(X, X[:, 0])
                    .centers_[:, 0]
                    > 5
                ).any()
                for s in range(30)
            ]
        )
        for centers in ("k-means++", "random")
    }
    assert reached["k-means++"] > 0.95  # the far group has 99.9 % of the squared distance from a first centre
    assert reached["random"] < 0.5  # 1 - 0.99^4 = 4 %


def test_classes_weights_and_decisions():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(40, 2)) + c for c in ([0, 0], [5, 0], [0, 5])])
    y = np.repeat(["a", "b", "c"], 40)
    model = RBFNetworkClassifier(n_centers=20, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.decision_function(X).shape == (120, 3)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])
    two = RBFNetworkClassifier(n_centers=20, random_state=0).fit(X[:80], y[:80])
    np.testing.assert_array_equal(two.predict(X), np.where(two.decision_function(X) > 0, "b", "a"))
    heavy = RBFNetworkClassifier(n_centers=2, random_state=0).fit(X, y, np.where(y == "c", 1e6, 1.0))
    assert (heavy.predict(X) == "c").mean() > 0.9


@pytest.mark.slow
def test_it_trains_on_a_coreset():
    X, y = wave(2000)
    est = RBFNetworkCoreset(radius=4.0, bandwidth=1.0, n_cells=32, random_state=0).fit(X, y)
    scores = []
    for seed in range(3):  # a network of few rows may be far off where it saw none
        Xs, ys, ws = est.sample(200, random_state=seed).take(X, y)
        model = RBFNetworkRegressor(n_centers=60, bandwidth=1.0, random_state=0).fit(Xs, ys, sample_weight=ws)
        scores.append(model.score(X, y))
    assert np.median(scores) > 0.95


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_centers": 0}, "n_centers = 0"),
        ({"centers": "grid"}, "centers = 'grid'"),
        ({"bandwidth": -1.0}, "bandwidth = -1.0"),
        ({"bandwidth": "mean"}, "bandwidth = 'mean'"),
        ({"ridge": -1e-3}, "ridge = -0.001"),
        ({"ridge": "x"}, "ridge = 'x'"),
        ({"solver": "adam"}, "solver = 'adam'"),
        ({"max_iter": -1}, "max_iter = -1"),
        ({"random_state": "x"}, "random_state"),
    ],
)
def test_bad_parameters(params, message):
    X, y = wave(10)
    with pytest.raises(CoresiftError, match=message):
        RBFNetworkRegressor(**params).fit(X, y)


def test_bad_data():
    X, y = wave(10)
    for bad_X, bad_y, w in (
        (X, np.r_[np.nan, y[1:]], None),
        (X, y[:9], None),
        (np.where(X > 1, np.inf, X), y, None),
        (X, y, -np.ones(10)),
        (X, y, np.ones(9)),
    ):
        with pytest.raises(CoresiftError):
            RBFNetworkRegressor().fit(bad_X, bad_y, sample_weight=w)
    with pytest.raises(CoresiftError, match="continuous"):
        RBFNetworkClassifier().fit(X, y)
    with pytest.raises(CoresiftError, match="3 features"):
        RBFNetworkRegressor().fit(X, y).predict(np.zeros((1, 3)))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_probabilities_are_the_nearest_to_the_outputs(n_classes: int) -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.integers(0, n_classes, 80)
    model = RBFNetworkClassifier(n_centers=12, random_state=0).fit(X, y)
    found, outputs = model.predict_proba(X * 2), model._outputs(X * 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.min() >= 0
    np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X * 2))
    total = {"type": "eq", "fun": lambda p: p.sum() - 1}
    for row, p in zip(outputs[:8], found, strict=False):
        best = minimize(lambda q, v=row: ((q - v) ** 2).sum(), np.full(n_classes, 1 / n_classes), method="SLSQP",
                        bounds=[(0, 1)] * n_classes, constraints=[total], options={"ftol": 1e-14})  # fmt: skip
        np.testing.assert_allclose(p, best.x, atol=1e-5)
