"""The three figures of RBF networks: small runs end to end, and the numbers that are committed."""

from pathlib import Path

import numpy as np
import pytest

from paper.__main__ import main
from paper.circle import lower_bound_circle
from paper.covtype import METHODS as COST_METHODS, CostError, median_gains
from paper.function_approximation import METHODS, Fit, Plan, SurfacePoint, measure, summarise, surfaces, target
from paper.lower_bound import (
    CircleSensitivities,
    Plan as CirclePlan,
    SubsetError,
    measure as measure_circle,
    sensitivities,
)
from paper.tables import read_table, write_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results" / "rbf-networks"
PAGE = ROOT / "docs" / "rbf-networks.md"


def is_image(path: Path) -> bool:
    start = path.read_bytes()[:8]
    return start.startswith((b"\x89PNG", b"<?xml"))


def test_target():
    X = np.array([[0.0, 0.0], [np.pi / 4, 0.0], [0.0, -np.pi / 4]])
    np.testing.assert_allclose(target(X), [1.2, *[np.exp(-(np.pi**2) / 16) - 0.2] * 2])


@pytest.mark.slow
def test_function_approximation_measures_every_combination_with_the_same_seeds():
    plan = Plan(n_samples=300, size=60, neurons=(5, 10), n_seeds=2)
    steps = []
    found = list(measure(plan, lambda: steps.append(1)))
    assert len(steps) == plan.n_steps
    keys = {(fit.design, fit.neurons, fit.seed, fit.method) for fit in found}
    assert len(keys) == len(found) == 2 * 2 * 2 * len(METHODS)
    assert {fit.n_points for fit in found if fit.method in ("uniform", "ours", "ours refined")} == {60}
    assert {fit.n_points for fit in found if fit.method == "all"} == {300}
    assert all(0 < fit.rmse <= fit.max_error for fit in found)
    assert found == list(measure(plan))  # the same seeds, the same numbers


def test_summaries_are_means_and_paired_tests():
    fits = [
        Fit("normal", 10, 1.0, 5, seed, method, 4, error, error, "0")
        for method, errors in (("uniform", (1.0, 2.0, 4.0)), ("ours", (0.5, 1.4, 3.6)))
        for seed, error in enumerate(errors)
    ]
    plain, ours = summarise(fits[::-1])  # in any order
    assert (plain.method, plain.gain, plain.p_value) == ("uniform", 1.0, 1.0)
    assert ours.mean == pytest.approx(5.5 / 3)
    assert ours.deviation == pytest.approx(np.std([0.5, 1.4, 3.6], ddof=1))
    assert ours.gain == pytest.approx(7 / 5.5)
    differences = np.array([0.5, 0.6, 0.4])
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(3))
    assert t == pytest.approx(8.66, abs=0.01)
    # the tail of the t distribution with two degrees of freedom is known in closed form
    assert ours.p_value == pytest.approx(1 - t / np.sqrt(2 + t**2))


@pytest.mark.slow
def test_function_approximation_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "figure"
    arguments = ["figure", "function-approximation", "--seeds", "2", "--rows", "400", "--size", "80"]
    assert main([*arguments, "--out", str(out)]) == 0
    assert "paired seeds" in capsys.readouterr().out
    table, beside = tmp_path / "figure.csv", tmp_path / "figure-surfaces.csv"
    assert is_image(tmp_path / "figure.svg")
    assert is_image(tmp_path / "figure.png")
    assert len(read_table(table, Fit)) == 2 * 2 * 3 * len(METHODS)
    points = read_table(beside, SurfacePoint)
    assert {point.method for point in points} == {"all", "uniform", "paper", "ours"}
    for point in points[::500]:
        assert point.truth == pytest.approx(float(target(np.array([[point.x, point.y]]))[0]), abs=1e-5)
    again = tmp_path / "again.svg"
    assert main(["figure", "function-approximation", "--from", str(table), "--out", str(again), "-q"]) == 0
    assert again.read_bytes() == (tmp_path / "figure.svg").read_bytes()


@pytest.mark.slow
def test_covtype_from_the_command_line(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.integers(0, 1000, (200, 10)), rng.random((200, 44)) < 0.1)).astype(np.int16)
    np.savez(tmp_path / "rows.npz", X=X, y=np.ones(200, np.int16))
    arguments = ["figure", "covtype", "--data", str(tmp_path / "rows.npz"), "--draws", "2", "--rows", "150"]
    assert main([*arguments, "--out", str(tmp_path / "a.svg"), "-q"]) == 0
    assert is_image(tmp_path / "a.svg")
    rows = read_table(tmp_path / "a.csv", CostError)
    assert "150 random rows of 200; columns to mean 0 and deviation 1" in rows[0].preparation
    assert {row.method for row in rows} == set(COST_METHODS)
    assert {row.size for row in rows} == {30}  # a fifth of the rows, where the plan's sizes are too many
    assert all(0 <= row.random_error <= row.optimised_error for row in rows)
    assert main(["figure", "covtype", "--data", str(tmp_path / "no.npz"), "--out", str(tmp_path / "b.svg")]) == 1
    assert "no.npz: no such file" in capsys.readouterr().err
    table = ["--from", str(tmp_path / "a.csv")]
    assert main([*arguments, *table, "--out", str(tmp_path / "b.svg")]) == 2


def test_median_gains():
    rows = [
        CostError("", 1, 1, 1.0, 1.0, 1.0, 1.0, method, 10, seed, error, 2 * error, "0")
        for method, errors in (("uniform", (3.0, 9.0, 4.0)), ("ours", (1.0, 2.0, 50.0)))
        for seed, error in enumerate(errors)
    ]
    gains = median_gains(rows, "random_error")
    assert gains.loc[10].to_dict() == {"uniform": 1.0, "ours": 2.0}


def test_the_circle_in_small():
    plan = CirclePlan(counts=(8, 20), n_samples=30, shares=(0.5, 1.0), n_draws=2)
    circles = sensitivities(plan)
    assert all(0.5 < row.smallest <= row.largest <= 1 for row in circles)
    assert [row.spacing for row in circles] == pytest.approx([np.sqrt(np.log(n)) for n in (8, 20)])
    assert circles[0].circle_radius == pytest.approx(np.linalg.norm(lower_bound_circle(8)[0]))
    found = list(measure_circle(plan))
    half = [row.found for row in found if row.data == "circle" and row.size == 15]
    assert min(half) > 0.9  # a point that is missing is missed
    assert max(row.found for row in found if row.size == 30) < 1e-9


@pytest.mark.slow
def test_lower_bound_from_tables(tmp_path):
    plan = CirclePlan(counts=(8, 16), n_samples=12, shares=(0.5, 1.0), n_draws=2)
    write_table(tmp_path / "t.csv", list(measure_circle(plan)))
    write_table(tmp_path / "t-sensitivities.csv", sensitivities(plan))
    arguments = ["figure", "lower-bound", "--from", str(tmp_path / "t.csv")]
    assert main([*arguments, "--out", str(tmp_path / "a.png"), "-q"]) == 0
    assert is_image(tmp_path / "a.png")
    (tmp_path / "t-sensitivities.csv").unlink()
    assert main([*arguments, "--out", str(tmp_path / "a.png"), "-q"]) == 1


# What is committed


@pytest.mark.slow
def test_committed_function_approximation():
    fits = read_table(RESULTS / "function-approximation.csv", Fit)
    page = PAGE.read_text()
    found = {(row.design, row.neurons, row.method): row for row in summarise(fits)}
    assert {row.n_seeds for row in found.values()} == {50}
    for (design, neurons, method), row in found.items():
        p_value = "" if method == "uniform" else f"{row.p_value:.0e}"
        cells = (method, f"{row.mean:.4f}", f"{row.deviation:.4f}", f"{row.gain:.2f}", p_value)
        assert f"| {design} | {neurons} | {' | '.join(cells)} |" in page
    # the aim: clearly below uniform on normal points
    for neurons in (100, 150):
        ours = found["normal", neurons, "ours"]
        assert ours.gain > 1.8
        assert ours.p_value < 0.01
    narrow = {
        row.method: f"{row.mean:.4f}"
        for row in summarise(read_table(RESULTS / "function-approximation-narrow.csv", Fit))
        if (row.design, row.neurons) == ("normal", 100)
    }
    sentence = f"{narrow['ours']} against {narrow['uniform']}, and {narrow['ours refined']} refined"
    assert sentence in page
    # a number of the table is what its command computes, up to the BLAS of the machine
    plan = Plan(neurons=(100,), n_seeds=1)
    points = {(p.method, p.x, p.y): p.value for p in surfaces(plan)}
    stored = read_table(RESULTS / "function-approximation-surfaces.csv", SurfacePoint)
    gaps = [abs(points[p.method, p.x, p.y] - p.value) for p in stored]
    assert np.median(gaps) < 1e-3


def test_committed_covtype():
    rows = read_table(RESULTS / "covtype.csv", CostError)
    page = PAGE.read_text()
    assert "of 92,962" in rows[0].preparation
    assert len({row.seed for row in rows}) == 30
    for bandwidth in sorted({row.bandwidth for row in rows}, reverse=True):
        here = [row for row in rows if row.bandwidth == bandwidth]
        by_error = [median_gains(here, over) for over in ("optimised_error", "random_error")]
        for size in sorted({row.size for row in rows}):
            gains = [
                f"{found.loc[size, method]:.2f}"
                for found in by_error
                for method in ("paper", "ours", "ours reweighted")
            ]
            assert f"| {bandwidth:g} | {size} | {' | '.join(gains)} |" in page
        if bandwidth == 0.2:
            assert by_error[0].loc[1000, "ours"] > 1.5


def test_committed_lower_bound():
    circles = read_table(RESULTS / "lower-bound-sensitivities.csv", CircleSensitivities)
    assert all(row.smallest > 0.5 and row.total > row.n_samples / 2 for row in circles)
    rows = read_table(RESULTS / "lower-bound.csv", SubsetError)
    for row in rows:
        if row.data == "circle" and row.size < row.n_samples:
            assert row.found > 0.9
    of_disc = [row.found for row in rows if row.data == "disc" and row.size == 0.4 * row.n_samples]
    assert np.median(of_disc) < 0.3


@pytest.mark.slow
def test_committed_figures_are_those_of_the_tables(tmp_path):
    for name in ("function-approximation", "covtype", "lower-bound"):
        out = tmp_path / f"{name}.svg"
        assert main(["figure", name, "--from", str(RESULTS / f"{name}.csv"), "--out", str(out), "-q"]) == 0
        committed = ROOT / "docs" / "figures" / f"{name}.svg"
        # the bytes depend on the version of Matplotlib, the size hardly
        assert 0.5 < out.stat().st_size / committed.stat().st_size < 2.0
