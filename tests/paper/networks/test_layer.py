import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install ".[train]"')

from coresift.core.points import Points  # noqa: E402
from paper.networks import RBFNetworkClassifier, RBFNetworkRegressor  # noqa: E402
from paper.networks.layer import RBFLayer, torch_solver  # noqa: E402
from paper.networks.sums import Network, loss_and_gradient  # noqa: E402


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(40, 3)), rng.normal(size=(40, 2)), rng.exponential(size=40)
    network = Network(rng.normal(size=(5, 3)), rng.normal(size=(5, 2)), rng.normal(size=2), 0.3)
    return Points(X, np.zeros(3), 1.0, np.inf), y, w, network


def test_the_layer_computes_what_numpy_does(problem):
    points, _, _, network = problem
    layer = RBFLayer.from_network(network)
    np.testing.assert_allclose(layer(torch.from_numpy(points.X)).detach(), network.outputs(points), rtol=1e-12)
    again = layer.to_network()
    np.testing.assert_array_equal(again.flat(), network.flat())


def test_its_gradients_are_the_analytic_ones(problem):
    points, y, w, network = problem
    layer = RBFLayer.from_network(network)
    x, targets, weights = map(torch.from_numpy, (points.X, y, w))
    loss = (weights[:, None] * (layer(x) - targets) ** 2).sum()
    loss.backward()
    value, gradient = loss_and_gradient(points, w, y, network)
    assert float(loss.detach()) == pytest.approx(value, rel=1e-12)
    pairs = (
        (layer.centers, gradient.centers),
        (layer.alphas, gradient.alphas),
        (layer.bias, gradient.intercept),
        (layer.log_bandwidth, gradient.log_bandwidth),
    )
    for parameter, expected in pairs:
        np.testing.assert_allclose(parameter.grad, expected, rtol=1e-10, atol=1e-12)


def test_parameters_that_are_not_wanted_are_not_there():
    layer = RBFLayer(3, 4, 1, bandwidth=2.0, bias=False, learn_bandwidth=False)
    assert {name for name, _ in layer.named_parameters()} == {"centers", "alphas"}
    assert float(layer.log_bandwidth) == pytest.approx(np.log(2.0))  # a constant, and in the state
    assert "log_bandwidth" in layer.state_dict()
    assert layer(torch.zeros(7, 2, 3)).shape == (7, 2, 1)


def test_centres_are_placed_and_the_layer_trains():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=generator)
    y = torch.exp(-(x**2).sum(1, keepdim=True))
    layer = RBFLayer(2, 10, 1).place(x[:10])
    torch.testing.assert_close(layer.centers.detach(), x[:10])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    first = None
    for _ in range(100):
        loss = torch.nn.functional.mse_loss(layer(x), y)
        first = first or float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.05 * first


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_torch_solver_finds_as_low_a_loss_as_scipy(fit_intercept):
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(150, 2)), rng.exponential(size=150)
    y = np.exp(-np.sum(X**2, axis=1)) + 0.2 * np.cos(4 * np.linalg.norm(X, axis=1))

    def loss(solver, max_iter):
        model = RBFNetworkRegressor(
            n_centers=8,
            centers="learned",
            bandwidth=1.0,
            ridge=1e-8,
            fit_intercept=fit_intercept,
            solver=solver,
            max_iter=max_iter,
            random_state=0,
        ).fit(X, y, w)
        if not fit_intercept:
            assert not model.intercept_.any()
        return float(w @ (model.predict(X) - y) ** 2)

    start = loss("lbfgs", 0)
    assert loss(torch_solver, 200) < 0.3 * start
    assert loss("lbfgs", 200) < 0.3 * start
    # different line searches, different local minima: within a factor of each other
    assert 0.3 < loss(torch_solver, 200) / loss("lbfgs", 200) < 3.0


def test_a_layer_of_an_estimator_predicts_the_same():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3)) * 5 + 100
    labels = (X[:, 0] > 100).astype(int) + (X[:, 1] > 103)
    model = RBFNetworkClassifier(n_centers=12, random_state=0).fit(X, labels)
    layer = RBFLayer.from_estimator(model)
    outputs = layer(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_array_equal(model.classes_[outputs.argmax(axis=1)], model.predict(X))
