"""GradMatch: a weighted subset whose gradient is that of all data, by orthogonal matching pursuit."""

from dataclasses import dataclass

import numpy as np

from .._progress import logger
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Array, Gradients
from .inputs import Floats, Indices
from .strategy import ONE_BLAS_THREAD, Selector, setting

_REFRESH = 64  # changes after which an inverse is recomputed, as rounding errors accumulate
_DEPENDENT = 1e-10  # an atom with a smaller part (squared) outside the span of the others adds nothing


@dataclass(frozen=True, eq=False)
class GradMatch(Selector):
    r"""Samples and weights that match the gradient (Killamsetty et al., ICML 2021).

    .. math:: \min_{|S| \le k,\; x \ge 0} \; \Bigl|\sum_i a_i - \sum_{j \in S} x_j a_j\Bigr|^2 + \lambda |x|^2

    by orthogonal matching pursuit, with the weights x solved for exactly after each pick; within a class, only its own
    row of the layer is matched. If the pursuit ends early (the gradient is matched to 1e-4 of its length, far below the
    noise of a step, or no sample helps) or gives a pick no weight, random samples of weight 1 fill the budget.

    Parameters
    ----------
    ridge : float, default 0.5
        The :math:`\lambda` above.
    """

    ridge: float = setting(0.5, at_least=0.0)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        atoms, sizes = context.gradients(output=context.class_output).double(), context.sizes
        with ONE_BLAS_THREAD:
            rows, weights = nonnegative_omp(atoms, atoms.total(sizes), size, self.ridge)
        rows, weights = rows[weights > 0], weights[weights > 0]
        remark = "in part filled at random" if len(rows) < size else ""
        if remark:
            rest = np.setdiff1d(np.arange(len(atoms)), rows, assume_unique=True)
            filled = rng.choice(rest, size - len(rows), replace=False)
            logger.info("GradMatch: %d picks match the gradient; %d drawn at random.", len(rows), len(filled))
            rows, weights = np.concatenate((rows, filled)), np.concatenate((weights, sizes[filled]))
        return self.coreset(context, rows, weights, remark)


def nonnegative_omp(
    atoms: Gradients, target: Array, size: int, ridge: float = 0.0, tol: float = 1e-4
) -> tuple[Indices, Floats]:
    r"""Approximate a target b by a non-negative combination of few atoms; return them and their coefficients.

    Each step adds the atom with the largest :math:`a_j \cdot r`, r the residual of b, then solves for the coefficients
    by the active-set method of Lawson and Hanson, started at the previous solution. It stops after ``size`` steps, when
    :math:`|r| \le` ``tol`` :math:`|b|` or no product is positive. O(n C H) for the products, O(min(|S|, width)^2) for
    every change of the active set: hundreds in a step if r is close to 0.
    """
    atoms = atoms.double()
    pursuit = _Pursuit(target, size, ridge)
    available = np.ones(len(atoms), dtype=bool)
    limit = tol * float(np.linalg.norm(target))
    noise = np.finfo(np.float64).eps * np.sqrt(atoms.sq_norms()) * float(np.linalg.norm(target))
    order: list[int] = []
    while len(order) < size:
        residual = pursuit.residual()
        if np.linalg.norm(residual) <= limit:
            break
        products = atoms.along(residual)
        useful = available & (products > noise)
        if not useful.any():
            break
        pick = int(np.argmax(np.where(useful, products, -np.inf)))
        available[pick] = False
        if pursuit.add(atoms.take(np.array([pick])).dense()[0]):
            order.append(pick)
    return np.array(order, dtype=np.int64), pursuit.x[: len(order)]


class _Pursuit:
    """The atoms of S, and non-negative least squares over them."""

    def __init__(self, target: Array, size: int, ridge: float) -> None:
        self.target = target
        self.rows = np.empty((size, len(target)))
        self.x = np.zeros(size)
        self.count = 0
        system = _DualSystem if ridge > 0 and len(target) < size else _GramSystem
        self.system: _GramSystem | _DualSystem = system(self.rows, target, ridge)

    def residual(self) -> Floats:
        passive = self.system.passive
        return self.target - self.x[passive] @ self.rows[passive]

    def add(self, atom: Floats) -> bool:
        """Add an atom to S and solve; return False if it depends linearly on the others."""
        self.rows[self.count] = atom
        if not self.system.insert(self.count):
            return False
        self.count += 1
        # each round lowers the objective; the limit guards against rounding
        for _ in range(3 * self.count + 10):
            self._descend()
            resting = np.setdiff1d(np.arange(self.count), self.system.passive, assume_unique=True)
            if not len(resting):
                break
            slopes = self.rows[resting] @ self.residual()
            scale = np.linalg.norm(self.rows[resting], axis=1) * np.linalg.norm(self.target)
            slopes[slopes <= 1e-12 * scale] = 0.0
            if not slopes.any() or not self.system.insert(int(resting[np.argmax(slopes)])):
                break
        return True

    def _descend(self) -> None:
        """Move to the solution over the passive atoms, dropping each atom whose coefficient reaches zero on the way."""
        while self.system.passive:
            passive = np.array(self.system.passive)
            wanted, now = self.system.solve(), self.x[passive]
            if wanted.min() > 0:
                self.x[passive] = wanted
                return
            falling = wanted <= 0
            steps = np.ones(len(passive))
            np.divide(now, now - wanted, out=steps, where=falling & (now > wanted))
            steps[falling & (now <= 0)] = 0.0
            first = int(np.argmin(steps))
            self.x[passive] = np.maximum(now + steps[first] * (wanted - now), 0.0)
            self.x[passive[first]] = 0.0
            self.system.remove(first)


class _System:
    """Least squares over the passive atoms: (A A' + ridge) x = A b, with these atoms as the rows of A."""

    def __init__(self, rows: Floats, target: Array, ridge: float, inverse: Array) -> None:
        self.rows, self.target, self.ridge, self.inverse = rows, target, ridge, inverse
        self.passive: list[int] = []
        self.n_changes = 0

    def _is_refreshed(self, *, in_dual: bool) -> bool:
        """Count a change, and invert anew if it is time to."""
        self.n_changes += 1
        if self.n_changes % _REFRESH:
            return False
        atoms = self.rows[self.passive]
        gram = atoms.T @ atoms if in_dual else atoms @ atoms.T
        self.inverse = np.linalg.inv(gram + self.ridge * np.eye(len(gram)))
        return True


class _GramSystem(_System):
    """Maintain the inverse of A A' + ridge: bordered when an atom is added, reduced when one is removed."""

    def __init__(self, rows: Floats, target: Array, ridge: float) -> None:
        super().__init__(rows, target, ridge, np.empty((0, 0)))
        self.moments = np.zeros(len(rows))  # products of all rows with b

    def insert(self, position: int) -> bool:
        atom = self.rows[position]
        along = self.rows[self.passive] @ atom
        carried = self.inverse @ along
        own = float(atom @ atom) + self.ridge
        beyond = own - float(along @ carried)  # Schur complement: squared distance to the span, plus ridge
        if beyond <= _DEPENDENT * own:
            return False
        column = np.append(carried, -1.0)
        bordered = np.multiply.outer(column / beyond, column)
        bordered[:-1, :-1] += self.inverse
        self.inverse = bordered
        self.passive.append(position)
        self.moments[position] = atom @ self.target
        self._is_refreshed(in_dual=False)
        return True

    def remove(self, place: int) -> None:
        column = np.delete(self.inverse[:, place], place)
        pivot = self.inverse[place, place]
        reduced = np.delete(np.delete(self.inverse, place, axis=0), place, axis=1)
        self.inverse = reduced - np.multiply.outer(column / pivot, column)
        del self.passive[place]
        self._is_refreshed(in_dual=False)

    def solve(self) -> Floats:
        return self.inverse @ self.moments[self.passive]


class _DualSystem(_System):
    r"""For more atoms than dimensions: :math:`x = A (A^\top A + \lambda)^{-1} b`, by rank-one updates."""

    def __init__(self, rows: Floats, target: Array, ridge: float) -> None:
        super().__init__(rows, target, ridge, np.eye(len(target)) / ridge)

    def insert(self, position: int) -> bool:
        self.passive.append(position)
        self._update(self.rows[position], 1.0)
        return True

    def remove(self, place: int) -> None:
        self._update(self.rows[self.passive.pop(place)], -1.0)

    def solve(self) -> Floats:
        return self.rows[self.passive] @ (self.inverse @ self.target)

    def _update(self, atom: Floats, sign: float) -> None:
        if not self._is_refreshed(in_dual=True):
            moved = self.inverse @ atom  # Sherman-Morrison
            self.inverse -= np.multiply.outer(moved * (sign / (1.0 + sign * float(atom @ moved))), moved)
