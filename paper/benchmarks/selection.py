"""Speed of the strategies against straightforward vectorised NumPy versions of each, at equal objective values."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import nnls
from scipy.special import log_softmax, softmax

from coresift.core.budgets import class_budgets
from coresift.selection import (
    RBF,
    AdaptiveRandom,
    Craig,
    Glister,
    Gradients,
    GradMatch,
    PerClass,
    SelectionContext,
    Validation,
)
from coresift.selection.gradmatch import nonnegative_omp

from .measure import Table, data_dir, mnist_arrays, peak_bytes, seconds, section, table, timed

N, N_VAL, HIDDEN, CLASSES = 60_000, 6_000, 84, 10
BUDGETS = (0.01, 0.1)
ETA, RIDGE = 0.01, 0.5


# The data: gradients of a network that has begun to learn.


def images() -> tuple[np.ndarray, np.ndarray, str]:
    """MNIST, train and test, where CORESIFT_DATA names a folder that has it; else ten overlapping clusters."""
    found = mnist_arrays(data_dir())
    if found is not None:
        X, y, X_test, y_test = found
        return np.concatenate([X, X_test])[: N + N_VAL], np.concatenate([y, y_test])[: N + N_VAL], "MNIST"
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=N + N_VAL)
    X = rng.normal(size=(CLASSES, 784))[y] * 0.1 + rng.normal(size=(N + N_VAL, 784))
    return X.astype(np.float32), y, "ten clusters"


@cache
def prepared() -> SelectionContext:
    """Gradients of 784-84-10 after one epoch; the pass itself is timed in ``context.costs``."""
    import torch
    from torch import nn

    X, y, _ = images()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for rows in torch.randperm(N).split(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.from_numpy(X)[rows]), torch.from_numpy(y)[rows]).backward()
            optimizer.step()
    context = SelectionContext(X[:N], y[:N], model=model, X_val=X[N:], y_val=y[N:])
    context.gradients()
    context.validation()
    return context


# The straightforward versions.


def naive_craig(gradients: Gradients, size: int) -> np.ndarray:
    """All distances in memory, all gains at every pick."""
    A = gradients.double().dense()
    squares = np.einsum("ij,ij->i", A, A)
    D = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * (A @ A.T), 0.0))
    np.fill_diagonal(D, 0.0)
    nearest, picks = np.full(len(D), D.max()), []
    for _ in range(size):
        gains = np.maximum(nearest - D, 0.0).sum(axis=1)
        gains[picks] = -1.0
        picks.append(int(np.argmax(gains)))
        nearest = np.minimum(nearest, D[picks[-1]])
    return np.array(picks)


def naive_gradmatch(gradients: Gradients, size: int) -> np.ndarray:
    """Ridge regression on the picks at every step, by ``nnls`` where a coefficient is negative."""
    A = gradients.double().dense()
    target, picks, x = A.sum(axis=0), [], np.empty(0)
    for _ in range(size):
        products = A @ (target - x @ A[picks])
        products[picks] = -np.inf
        if products.max() <= 0:
            break
        picks.append(int(np.argmax(products)))
        S = A[picks]
        x = np.linalg.solve(S @ S.T + RIDGE * np.eye(len(S)), S @ target)
        if x.min() < 0:
            x = nnls(
                np.vstack([S.T, np.sqrt(RIDGE) * np.eye(len(S))]),
                np.append(target, np.zeros(len(S))),
                maxiter=30 * len(S),
            )[0]
    return np.array(picks)


def naive_glister(
    dense: np.ndarray, layer: np.ndarray, inputs: np.ndarray, y: np.ndarray, size: int, n_steps: int, seed: int
) -> np.ndarray:
    """The gradient of every validation sample, multiplied out and averaged, after each pick."""
    rng, left = np.random.default_rng(seed), np.arange(len(dense))
    pool = int(np.ceil(len(dense) / size * np.log(100.0)))
    onehot, picks = np.eye(CLASSES)[y], []
    for _ in range(n_steps):
        residuals = softmax(inputs @ layer.T, axis=1) - onehot
        mean = (residuals[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1).mean(axis=0)
        places = rng.choice(len(left), pool, replace=False)
        place = places[np.argmax(dense[left[places]] @ mean)]
        picks.append(int(left[place]))
        layer = layer - ETA * dense[picks[-1]].reshape(layer.shape)
        left[place] = left[-1]
        left = left[:-1]
    return np.array(picks)


# Objective values.


def craig_value(gradients: Gradients, rows: np.ndarray) -> float:
    """Sum of the distances to the nearest pick."""
    A = gradients.double()
    squares = A.sq_norms()
    distances = squares[rows, None] + squares - 2.0 * A.products(A.take(rows))
    return float(np.sqrt(np.maximum(distances, 0.0)).min(axis=0).sum())


def gradmatch_value(gradients: Gradients, rows: np.ndarray) -> float:
    """The least of the ridge objective over these rows."""
    A = gradients.double().dense()
    system = np.vstack([A[rows].T, np.sqrt(RIDGE) * np.eye(len(rows))])
    return float(nnls(system, np.append(A.sum(axis=0), np.zeros(len(rows))), maxiter=30 * len(rows))[1]) ** 2


def with_ones(inputs: np.ndarray) -> np.ndarray:
    return np.hstack([inputs.astype(np.float64), np.ones((len(inputs), 1))])


# The tables.


def speed() -> Table:
    """Ours on all classes; the naive versions on one class or on some steps, and what that makes for all."""
    context = prepared()
    rows = []
    counts = np.array([len(rows) for rows in context.classes().values()])
    for budget in BUDGETS:
        budgets = class_budgets(counts, int(budget * N), min_per_class=0)
        _, part = next(iter(context.parts()))
        for name, strategy, naive, value in (
            ("CRAIG", Craig(), naive_craig, craig_value),
            ("GRADMATCH", GradMatch(), naive_gradmatch, gradmatch_value),
        ):
            gradients = strategy.atoms(part) if isinstance(strategy, GradMatch) else part.gradients()
            rng = np.random.default_rng(0)
            ours, _ = timed(lambda s=strategy, b=budget, r=rng: PerClass(s).select(context, b, r))
            peak = peak_bytes(lambda s=strategy, p=part, k=int(budgets[0]), r=rng: s.select(p, k, r))
            one, core = timed(lambda s=strategy, p=part, k=int(budgets[0]), r=rng: s.select(p, k, r))
            theirs, picks = timed(lambda f=naive, g=gradients, k=int(budgets[0]): f(g, k))
            their_peak = peak_bytes(lambda f=naive, g=gradients: f(g, 3))  # grows little with the steps
            chosen = core.indices
            if isinstance(strategy, GradMatch):  # without the random samples that fill the budget
                atoms = gradients.double()
                chosen, _ = nonnegative_omp(atoms, atoms.total(), int(budgets[0]), RIDGE)
            values = value(gradients, chosen), value(gradients, picks)
            rows.append(_row(name, budget, (ours, one, theirs), values, (peak, their_peak)))
        rows.append(glister_row(context, budget))
    return table(
        "selection",
        f"{images()[2]}, gradients of the last layer of 784-84-10 after one epoch: {N:,} x 850, ten classes. "
        "Seconds of the processor, one thread. Ours on all of it, then the same piece of work by both: CRAIG and "
        "GRADMATCH the first class with its budget, GLISTER the first 600 picks of the budget (a pick costs the same "
        "at each step; ours is that share of the whole). Objective: sum of distances to the nearest pick; ridge "
        "objective of the pursuit's own picks; validation loss after the step. Memory of that piece, beside the "
        f"gradients as they come from the model ({N:,} x 94 in float32). The naive CRAIG holds and scans all "
        "distances of a class; GRADMATCH solves anew at every step; GLISTER multiplies out all gradients, and those "
        "of the validation samples after each pick. Wanted at 10 %: at least 5 times faster, the same value to 1e-6.",
        rows,
    )


def _row(
    name: str, budget: float, times: tuple[float, float, float], values: tuple[float, float], peaks: tuple[float, float]
) -> dict[str, str]:
    """Write times of ours on all data, ours and the naive version on the same piece, and what both reach."""
    whole, ours, naive = times
    return {
        "strategy": name,
        "budget": f"{budget:.0%}",
        "ours, all data": f"{whole:.2f} s",
        "ours, that piece": f"{ours:.2f} s",
        "naive, that piece": f"{naive:.2f} s",
        "times faster": f"**{naive / ours:.0f}**",
        "objective, relative difference": f"{abs(values[0] / values[1] - 1.0):.1e}",
        "peak memory, ours": f"{peaks[0] / 2**20:.0f} MB",
        "peak memory, naive": f"{peaks[1] / 2**20:.0f} MB",
    }


def glister_row(context: SelectionContext, budget: float, n_steps: int = 600) -> dict[str, str]:
    """The first picks of ours are what the naive version picks from the same generator."""
    strategy, size = Glister(eta=ETA), int(budget * N)
    ours, core = timed(lambda: strategy.select(context, size, np.random.default_rng(0)))
    peak = peak_bytes(lambda: strategy.select(context, size // 10, np.random.default_rng(0)))
    validation: Validation = context.validation()
    last = context.model[-1]  # type: ignore[index]
    layer = np.hstack([last.weight.detach().numpy(), last.bias.detach().numpy()[:, None]]).astype(np.float64)
    inputs = with_ones(np.asarray(validation.gradients.inputs))
    _, y, _ = images()
    y_val = y[N:]

    def naive() -> np.ndarray:
        dense = context.gradients().double().dense()
        return naive_glister(dense, layer, inputs, y_val, size, min(size, n_steps), 0)

    theirs, picks = timed(naive)
    their_peak = peak_bytes(
        lambda: naive_glister(context.gradients().double().dense(), layer, inputs, y_val, size, 3, 0)
    )
    piece = ours * len(picks) / size
    gradients = context.gradients().double()
    first = glister_picks(strategy, context, size, len(picks))
    assert set(first) <= set(core.indices.tolist())

    def loss(rows: np.ndarray) -> float:
        moved = layer - ETA * gradients.take(rows).total().reshape(layer.shape)
        return -float(log_softmax(inputs @ moved.T, axis=1)[np.arange(len(y_val)), y_val].mean())

    return _row("GLISTER", budget, (ours, piece, theirs), (loss(first), loss(picks)), (peak, their_peak))


def glister_picks(strategy: Glister, context: SelectionContext, size: int, count: int) -> np.ndarray:
    """Our first picks of a larger budget, in their order."""
    from coresift.selection.glister import LookAhead, greedy

    pool = int(np.ceil(N / size * np.log(100.0)))
    loss = LookAhead(context.validation(), strategy.eta)
    return greedy(context.gradients(), loss, count, pool, np.random.default_rng(0))


def whole() -> Table:
    """Without classes: the case whose matrix would be n x n."""
    context = prepared()
    spent, core = timed(lambda: GradMatch().select(context, 0.01, np.random.default_rng(0)))
    rows = [["GRADMATCH, all classes together", f"{spent:.1f} s", core.method]]
    _, part = next(iter(context.parts()))
    for name, limit in (("a matrix", 2.0**30), ("blocks", 1.0)):
        strategy = Craig(memory_limit=limit)
        size = part.n_samples // 100
        spent, _ = timed(lambda s=strategy, k=size: s.select(part, k, np.random.default_rng(0)))
        peak = peak_bytes(lambda s=strategy, k=size: s.select(part, k, np.random.default_rng(0)))
        rows.append([f"CRAIG, the first class, distances as {name}", f"{spent:.1f} s", f"peak {peak / 2**20:.0f} MB"])
    cost = context.costs["gradients"]
    rows.append(["the gradients themselves: one forward pass", f"{cost.seconds / cost.calls:.2f} s", ""])
    return Table(
        "selection without classes",
        f"1 % of {N:,} samples at once; the matrix of distances would take {8 * N * N / 2**30:.0f} GiB. Seconds of the "
        "processor, one thread.",
        ["selection", "time", "method, as the coreset states it, or memory"],
        rows,
    )


def redraw() -> Table:
    """A redraw of RBF against a uniform one."""
    context = prepared()
    rows = []
    rng = np.random.default_rng(0)
    for method in ("keys", "systematic"):
        strategy = RBF(method=method)
        fit, _ = timed(lambda s=strategy: s.select(context, 0.05, rng))
        uniform, draw = seconds(
            lambda: AdaptiveRandom().select(context, 0.05, rng), lambda s=strategy: s.select(context, 0.05, rng)
        )
        rows.append([method, f"{fit:.2f} s", f"{1e3 * draw:.2f} ms", f"{1e3 * uniform:.2f} ms"])
    return Table(
        "RBF redraw",
        f"5 % of {N:,} x 784 at every selection, after the first one has fitted the sensitivities.",
        ["draw", "first selection (fit)", "redraw", "adaptive random"],
        rows,
    )


selection = section("selection", "Time the strategies against plain NumPy versions.", speed, whole, redraw)
