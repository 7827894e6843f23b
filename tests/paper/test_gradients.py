"""The gradient figure: gradients against autograd, errors against their closed forms, the figure and its command."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from coresift import RBFCoreset
from coresift._errors import InvalidInputError
from coresift.training import build_model, normalize
from paper import gradients
from paper.__main__ import main
from paper.gradients import (
    METHODS,
    MODELS,
    MOMENTS,
    Measurement,
    Plan,
    _by_norms,
    _look,
    _per_class,
    expected_seconds,
    load,
    measure,
)
from paper.gradients_figure import draw
from paper.sample_gradients import gradient_norms, weighted_gradient
from paper.tables import read_table

PLAN = Plan(budgets=(0.1, 0.3), n_draws=2, n_refined=1, epochs=2)
ROWS = 150


@pytest.fixture(scope="module")
def digits():
    return load("digits", None, ROWS, 0)


@pytest.fixture(scope="module")
def tensors(digits):
    return normalize(torch.tensor(digits.train.x), digits.mean, digits.std), torch.tensor(digits.train.y)


@pytest.fixture(scope="module")
def rows(digits) -> list[Measurement]:
    steps: list[None] = []
    found = list(measure(digits, PLAN, lambda: steps.append(None)))
    assert len(steps) == PLAN.n_steps(ROWS) == len(found)
    return found


def network(name: str, digits) -> torch.nn.Module:
    width = 8 if name == "mlp" else None
    return build_model(name, n_classes=digits.n_classes, input_shape=digits.input_shape, width=width, seed=1)


def one_by_one(model: torch.nn.Module, inputs, targets) -> torch.Tensor:
    """(n, P) gradients, a backward pass each: slow and plain."""
    found = []
    for x, y in zip(inputs, targets, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad()
    return torch.stack(found).double()


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_autograd(name: str, digits, tensors) -> None:
    x, y = (part[:40] for part in tensors)
    model = network(name, digits)
    each = one_by_one(model, x, y)
    np.testing.assert_allclose(gradient_norms(model, x, y), each.norm(dim=1), rtol=1e-4)
    picked, weights = np.array([3, 7, 30]), np.array([2.0, 0.5, 4.0])
    expected = torch.tensor(weights) @ each[picked]
    np.testing.assert_allclose(weighted_gradient(model, x, y, picked, weights), expected, atol=1e-5)


def test_norms_refuse_layers_that_they_do_not_know(digits, tensors) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(784), torch.nn.Linear(784, 10))
    with pytest.raises(InvalidInputError, match="BatchNorm1d"):
        gradient_norms(model, *tensors)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["uniform", "paper"])
def test_the_formulas_are_the_mean_squares(method: str, seed: int, digits, tensors) -> None:
    x, y = tensors
    n, m, repeats = len(x), 30, 2000
    model = network("mlp", digits)
    each = one_by_one(model, x, y).numpy()
    at, rng = _look(model, x, y), np.random.default_rng(seed)
    p = np.random.default_rng(0).exponential(size=n) + 0.2
    p = p / p.sum()
    weights = np.zeros((repeats, n))
    for row in weights:
        if method == "uniform":
            row[rng.choice(n, m, replace=False)] = n / m
        else:
            np.add.at(row, drawn := rng.choice(n, m, p=p), 1 / (m * p[drawn]))
    full = each.sum(axis=0)
    squares = ((weights @ each - full) ** 2).sum(axis=1) / (full @ full)
    tolerance = 5 * squares.std() / np.sqrt(repeats)  # normal approximation: fails by chance < 1e-6
    expected = at.expected(method, m, p) ** 2
    assert abs(squares.mean() - expected) < tolerance
    # power: without the correction for a finite population, or with other probabilities, it would fail
    wrong = expected / (1 - m / n) if method == "uniform" else at.expected("paper", m, np.full(n, 1 / n)) ** 2
    assert abs(squares.mean() - wrong) > tolerance
    assert np.isnan(at.expected("ours", m, p))


@pytest.mark.slow
def test_every_combination_is_there_once(rows: list[Measurement]) -> None:
    keys = [(row.model, row.moment, row.method, row.budget, row.seed) for row in rows]
    assert len(keys) == len(set(keys))
    for model in MODELS:
        for moment in MOMENTS:
            for method in METHODS:
                for budget, size in ((0.1, 15), (0.3, 45)):
                    here = [row for row in rows if (row.model, row.moment) == (model, moment)]
                    here = [row for row in here if (row.method, row.budget) == (method, budget)]
                    assert len(here) == PLAN.draws(method, budget, ROWS)
                    assert {row.size for row in here} == {size}
    assert [PLAN.draws("ours", budget, ROWS) for budget in (0.01, 0.1, 0.3)] == [10, 4, 2]


def test_numbers_are_consistent(rows: list[Measurement]) -> None:
    for row in rows:
        assert row.error >= np.sqrt(1 - min(row.cosine, 1.0) ** 2) - 1e-6  # the nearest multiple is no nearer
        assert np.isnan(row.expected) == (row.method not in ("uniform", "paper"))
        assert row.n_points == row.size or row.method in ("paper", "ours refined")
        if row.method.startswith("uniform"):
            assert row.normalized_error == pytest.approx(row.error, rel=1e-5)  # the weights sum to n as they are
    losses = {row.moment: row.loss for row in rows if row.model == "mlp"}
    assert losses["start"] > losses["middle"] > losses["end"]
    assert {row.moment: row.epoch for row in rows} == {"start": 0, "middle": 1, "end": 2}


def test_a_row_can_be_made_by_hand(digits, tensors, rows: list[Measurement]) -> None:
    model = build_model("mlp", n_classes=10, input_shape=digits.input_shape, seed=0)
    full = weighted_gradient(model, *tensors, np.arange(ROWS), np.ones(ROWS))
    core = RBFCoreset(random_state=0).fit(digits.train.x.reshape(ROWS, -1)).sample(15, method="keys", random_state=1)
    estimate = weighted_gradient(model, *tensors, core.indices, core.weights)
    (row,) = (
        row
        for row in rows
        if (row.model, row.moment, row.method, row.budget, row.seed) == ("mlp", "start", "ours", 0.1, 1)
    )
    assert row.error == pytest.approx(float((estimate - full).norm() / full.norm()), rel=1e-5)
    assert row.gradient_norm == pytest.approx(float(full.norm()) / ROWS, rel=1e-5)


def test_no_independent_draws_are_better_than_by_norms(digits, tensors) -> None:
    at = _look(network("mlp", digits), *tensors)
    best = at.expected("paper", 15, at.norms / at.norms.sum())
    rng = np.random.default_rng(0)
    for power in (0.0, 0.5, 2.0):  # of the norms, made a little uneven
        p = at.norms**power * rng.uniform(0.9, 1.1, ROWS)
        assert best < at.expected("paper", 15, p / p.sum())
    drawn = list(_by_norms(at.norms, PLAN))
    assert [subset.size for subset in drawn] == [15] * 4 + [45] * 2
    assert all(len(set(subset.rows.tolist())) == subset.size for subset in drawn)
    # larger gradients are drawn more often, and weigh less
    often = np.mean([at.norms[subset.rows].mean() for subset in drawn])
    assert often > at.norms.mean()
    for subset in drawn:
        assert np.all(np.diff(subset.weights[np.argsort(at.norms[subset.rows])]) <= 1e-9)


def test_classes_have_their_shares() -> None:
    y = np.repeat([0, 1, 2], [60, 30, 10])
    picked, weights = _per_class(y, 20, np.random.default_rng(0))
    assert np.bincount(y[picked]).tolist() == [12, 6, 2]
    np.testing.assert_allclose(weights, 5.0)
    assert len(set(picked.tolist())) == 20


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"budgets": (0.1, 1.0)}, r"budget = 1\.0 must be a fraction above 0 and below 1"),
        ({"budgets": (0.0,)}, "budget = 0.0"),
        ({"budgets": (0.999,)}, "all of the 150"),
        ({"budgets": ()}, "empty"),
        ({"models": ("resnet18",)}, "model"),
        ({"n_draws": 0}, "n_draws"),
    ],
)
def test_bad_plans_are_refused(change: dict, complaint: str, digits) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        next(measure(digits, replace(PLAN, **change)))


def test_more_work_is_expected_to_take_longer() -> None:
    assert expected_seconds(2000, PLAN) < expected_seconds(2000, replace(PLAN, n_draws=20))


def test_the_lines_are_the_numbers(rows: list[Measurement]) -> None:
    figure = draw(rows)
    axes = figure.axes
    assert len(axes) == 2 * len(MODELS) * len(MOMENTS)
    (line,) = (line for line in axes[0].lines if line.get_label() == "ours (RBF)")
    here = [r for r in rows if (r.model, r.moment, r.method) == ("lenet", "start", "ours")]
    expected = [np.sqrt(np.mean([r.error**2 for r in here if r.budget == b])) for b in PLAN.budgets]
    np.testing.assert_allclose(line.get_ydata(), expected)
    (theory,) = (line for line in axes[0].lines if line.get_label() == "uniform, by the formula")
    uniform = [r for r in rows if (r.model, r.moment, r.method) == ("lenet", "start", "uniform")]
    assert list(theory.get_ydata()) == [next(r.expected for r in uniform if r.budget == b) for b in PLAN.budgets]


@pytest.mark.slow
def test_files_and_the_figure_from_the_table_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fig"
    small = ["--dataset", "digits", "--rows", "120", "--budgets", "30%,0.1", "--draws", "1", "--epochs", "2"]
    assert main(["figure", "gradients", *small, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert f"Wrote {out}.svg, {out}.png, {out}.csv." in printed.out
    assert "refined" in printed.out
    table = read_table(tmp_path / "fig.csv", Measurement)
    assert {(row.budget, row.n_samples) for row in table} == {(0.1, 120), (0.3, 120)}
    again = tmp_path / "again.svg"
    assert main(["figure", "gradients", "--from", f"{out}.csv", "--out", str(again), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert again.read_bytes() == (tmp_path / "fig.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--dataset", "nosuch"], 1, "dataset = 'nosuch' is not one of"),
        (["--dataset", "mnist", "--data-dir", "."], 1, "is not in"),
        (["--dataset", "digits", "--budgets", "0%"], 1, "must be a fraction above 0"),
        (["--dataset", "digits", "--budgets", "150%"], 1, "must be a fraction above 0"),
        (["--dataset", "digits", "--budgets", "a few"], 1, "'a few' is not a share"),
        (["--dataset", "digits", "--budgets", ","], 1, "names none"),
        (["--dataset", "digits", "--draws", "0"], 2, "draws"),
        (["--from", "a.csv", "--data-dir", "."], 2, "--data-dir do not go with it"),
        (["--from", "nosuch.csv"], 1, r"nosuch\.csv: no such file"),
    ],
)
def test_errors_are_one_line_before_the_work(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nothing should have been computed")

    monkeypatch.setattr(gradients, "measure", never)
    monkeypatch.chdir(tmp_path)
    assert main(["figure", "gradients", "--out", "a.svg", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"python -m paper: error: .*{complaint}.*\n", err)
    assert list(tmp_path.iterdir()) == []


# The committed table, and the page that quotes it.

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "paper" / "results" / "gradients" / "gradients.csv"
PAGE = ROOT / "docs" / "gradients.md"
needs_results = pytest.mark.skipif(not TABLE.exists(), reason="source archives carry no results")


def rms(rows: list[Measurement]) -> float:
    return float(np.sqrt(np.mean([row.error**2 for row in rows])))


def quoted_lines(rows: list[Measurement], budget: float) -> list[str]:
    titles = {"lenet": "LeNet-5", "mlp": "MLP"}
    lines = []
    for model in MODELS:
        for moment in MOMENTS:
            here = [row for row in rows if (row.model, row.moment, row.budget) == (model, moment, budget)]
            by = {method: [row for row in here if row.method == method] for method in METHODS}
            cells = [titles[model], moment, f"{by['uniform'][0].expected:.2g}"]
            cells += [f"{rms(by[method]):.2g}" for method in METHODS]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


@needs_results
def test_the_committed_table_is_complete_and_uniform_draws_lie_on_their_formula() -> None:
    rows = read_table(TABLE, Measurement)
    plan = Plan()
    assert {row.dataset for row in rows} == {"mnist"}
    assert len(rows) == plan.n_steps(rows[0].n_samples)
    quotients = [
        rms(here) / here[0].expected
        for model in MODELS
        for moment in MOMENTS
        for method in ("uniform", "paper")
        for budget in plan.budgets
        if (
            here := [
                row
                for row in rows
                if (row.model, row.moment, row.method, row.budget) == (model, moment, method, budget)
            ]
        )
    ]
    assert np.median(quotients) == pytest.approx(1.0, abs=0.1)


@needs_results
def test_the_page_quotes_the_table() -> None:
    rows, page = read_table(TABLE, Measurement), PAGE.read_text(encoding="utf-8").splitlines()
    wanted = [line for budget in (0.01, 0.1) for line in quoted_lines(rows, budget)]
    assert [line for line in wanted if line not in page] == []
