"""Coresets of the loss of networks of Gaussians."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from coresift import Coreset, Guarantee, QueryBall, RBFCoreset
from coresift._errors import InvalidInputError
from coresift._validation import (
    check_count,
    check_generator,
    check_instance,
    check_positive,
    check_probability,
    check_targets,
)
from coresift.core.points import Matrix, SensitivityBound, Subset, log_shares
from coresift.core.sizes import covering, paper_formula, vc
from coresift.coresets.base import LOADED_BYTES, Fit
from coresift.coresets.certifying import certify_options
from coresift.coresets.fitting import Runner, array_runner, bound_of, geometry_of, given_rows
from coresift.coresets.options import BoundSpec
from paper.networks.results import (
    ROOT,
    NetworkCertificate,
    NetworkComparison,
    certified_network,
    checked_network,
    compared,
    family_shares,
    largest_bound,
    signed_sizes,
    target_sizes,
)
from paper.networks.sums import NetworkAudit, network_sums, worst_network


@dataclass(kw_only=True)
class TargetRunner(Runner):
    """Runs passes over rows that have targets."""

    targets: np.ndarray  # (n, K)


@dataclass(frozen=True, kw_only=True)
class NetworkFit(Fit):
    """The result of the passes; ``bound`` is the largest of those of the ``families`` of sums."""

    targets: np.ndarray  # (n, K)
    families: dict[str, SensitivityBound]


class RBFNetworkCoreset(RBFCoreset):
    r"""A weighted subset that keeps the loss of every network of Gaussians with centres in a ball.

    The loss is :math:`\sum_p w_p |y_p - \sum_i a_i e^{-|p-c_i|^2/\sigma^2}|^2`, summed over the outputs if there are
    several. Multiplied out it is made of four families of sums: :math:`w y^2`; the Gaussian sums of the rows with
    :math:`y > 0` and of those with :math:`y < 0`; and, for the square term, Gaussian sums of bandwidth
    :math:`\sigma/\sqrt 2`. Kept within a factor :math:`1 \pm \epsilon` each, they give for any number of neurons

    .. math:: |loss_S - loss_P| \le \epsilon \sum_p w_p \Bigl( |y_p| + \sum_i |a_i| f(p, c_i) \Bigr)^2 .

    One sample is drawn, by the largest of the sensitivities of a row in these families. A relative error of the loss
    itself is impossible: a network can interpolate a small subset.

    Parameters
    ----------
    radius, bandwidth, bound, n_cells, max_exact, random_state
        As for :class:`RBFCoreset`. The ball, of the centres, is around the weighted mean of the rows.

    Attributes
    ----------
    family_totals_ : dict
        Total sensitivity of each family; ``positive[k]`` and ``negative[k]`` belong to output k.
    coreset_ : Coreset
        The last draw. Other attributes are those of :class:`RBFCoreset`, of the largest sensitivity of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from paper.networks import RBFNetworkCoreset
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = np.cos(2 * X[:, 0]) * X[:, 1]
    >>> est = RBFNetworkCoreset(bandwidth=3.0, random_state=0).fit(X, y)
    >>> core = est.sample(200)
    >>> found = est.loss_error(centers=[[0.0, 1.0], [1.0, 0.0]], alphas=[1.0, -0.5])
    >>> bool(found.loss_error <= found.family_error * found.magnitude)
    True
    """

    _not_pickled = ("_rows", "_targets")
    _certified: tuple[Coreset, float, NetworkCertificate] | None  # what was certified last, and for which delta

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find how the rows are drawn.

        ``y`` are targets of shape (n,) or (n, K), also for rows of files; the rest is as in :meth:`RBFCoreset.fit`.
        """
        rows = given_rows(X, sample_weight, estimator=self)
        if y is None and rows.is_portable:
            raise InvalidInputError("y is missing: files carry labels, not targets. Pass a target for each row.")
        if y is None:
            raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
        self.fit_rows(runner=TargetRunner(rows, targets=check_targets(y, rows.n)), X=X)
        return self

    def fit_rows(self, **arguments: Any) -> NetworkFit:
        """Return the fit by a :class:`TargetRunner`, ``runner``."""
        fit = super().fit_rows(**arguments)
        assert isinstance(fit, NetworkFit)
        self.family_totals_ = {name: float(bound.values.sum()) for name, bound in fit.families.items()}
        self._targets, self._certified = fit.targets, None
        if hasattr(self, "coreset_"):  # of the last fit
            del self.coreset_
        return fit

    def sample(  # type: ignore[override]  # weights for the discrepancy of one family would not serve the others
        self, size: int | float, *, method: str | None = None, random_state: Any = None, normalize: bool = False
    ) -> Coreset:
        """Draw a coreset. The arguments are those of :meth:`RBFCoreset.sample`."""
        self.coreset_ = super().sample(size, method=method, random_state=random_state, normalize=normalize)
        return self.coreset_

    def loss_error(
        self, centers: Any, alphas: Any, *, core: Coreset | None = None, eps: float | None = None, delta: float = 0.05
    ) -> NetworkComparison:
        """How wrong a coreset is about one network, term by term, with the guarantee's right-hand side.

        Parameters
        ----------
        centers : array-like of shape (L, d)
            In the units of the data, within the ball.
        alphas : array-like of shape (L,) or (L, K)
            Outputs of the neurons, of any sign.
        core : Coreset, optional
            By default the last one drawn.
        eps : float, optional
            The error of the families to state the right-hand sides for. By default what is guaranteed for this draw
            with a probability of 1 - ``delta`` (:meth:`guaranteed_error`).
        """
        core = self._judged(core)
        with self._loaded("loss_error") as (points, shares):
            weights, targets = shares * self._total_weight, self._targets
            network_centers, outputs = checked_network(self, centers, alphas, targets.shape[1])
            if eps is None:
                found = self._certificate(core, delta)
                eps, cross_eps = _finite(found.eps), _finite(found.cross)
            else:
                eps = cross_eps = check_positive(eps, "eps")
            truth = network_sums(points, weights, targets, network_centers)
            drawn = network_sums(points, core.weights, targets, network_centers, core.indices)
        return compared(truth, drawn, outputs, eps, cross_eps)

    def certify(
        self,
        core: Coreset | None = None,
        *,
        method: str = "auto",
        n_sampled: int = 20_000,
        delta: float = 0.05,
        random_state: Any = 0,
    ) -> NetworkCertificate:
        """Return proved bounds on the errors of ``core`` for all networks, however it was drawn and weighted.

        By default the last one drawn. Each family of sums is certified as in :meth:`Coreset.certify`, with its options.
        """
        core = self._judged(core)
        options = certify_options(method, n_sampled, delta, random_state)
        with self._loaded("certify") as (points, shares):
            subset = Subset(points, shares, core.indices, core.weights / self._total_weight, self.radius_)
            return certified_network(subset, self._targets, **options)

    def guaranteed_error(self, core: Coreset | None = None, *, delta: float = 0.05) -> float | None:
        """The least eps guaranteed for the whole loss and all networks with a probability of 1 - ``delta``.

        It is that of the certificate of ``core``, by default the last one drawn; None if it is infinite.
        """
        return _finite(self._certificate(self._judged(core), check_probability(delta, "delta")).eps)

    def _certificate(self, core: Coreset, delta: float) -> NetworkCertificate:
        """The certificate, which is kept for the next call."""
        kept = self._certified
        if kept is None or kept[0] != core or kept[1] != delta:
            self._certified = kept = (core, delta, self.certify(core, delta=delta))
        return kept[2]

    def audit(
        self,
        n_neurons: int = 3,
        *,
        core: Coreset | None = None,
        n_starts: int = 8,
        max_iter: int = 60,
        random_state: Any = 0,
    ) -> NetworkAudit:
        """Search for the network of ``n_neurons``, with centres in the ball, about which ``core`` is most wrong.

        By default the last one drawn. The error is ``|loss_S - loss_P|`` over the magnitude in the guarantee: a lower
        bound on the least eps for which that holds. Return the worst of ``n_starts`` local searches of ``max_iter``
        steps, which start at random (``random_state``) and at the worst single query.
        """
        core, rng = self._judged(core), check_generator(random_state)
        counts = {"n_neurons": n_neurons, "n_starts": n_starts, "max_iter": max_iter}
        counts = {name: check_count(count, name) for name, count in counts.items()}
        with self._loaded("audit") as (points, shares):
            subset = Subset(points, shares * self._total_weight, core.indices, core.weights, self.radius_)
            return worst_network(subset, self._targets, rng=rng, **counts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def _find(self, runner: Runner, spec: BoundSpec, rng: np.random.Generator, is_sampled: bool) -> NetworkFit:
        """The largest of the bounds of the families that are not empty; rows in no family keep ``-inf``.

        A family is a set of shares of the rows, with a ball that is not centred at their mean.
        """
        assert isinstance(runner, TargetRunner)
        targets = runner.targets
        geometry = geometry_of(runner, spec, rng)

        def bounded(X: Matrix, family: np.ndarray, factor: float = 1.0) -> SensitivityBound:
            wide = replace(spec, radius=factor * spec.radius)
            ball = QueryBall("gaussian", geometry.center, geometry.scale / factor, wide.radius)
            return bound_of(array_runner(X, family), wide, rng, ball)

        families: dict[str, SensitivityBound] = {}
        with runner.rows.load(LOADED_BYTES) as everything:
            weights = np.array(everything.weights)
            shares = weights / weights.sum()
            if (of_targets := family_shares(shares, target_sizes(targets), 2)) is not None:
                note = "One sum: the sensitivities are the shares."
                families["targets"] = SensitivityBound(log_shares(of_targets), "exact", True, note)
            for name, sizes in signed_sizes(targets):
                if (own := family_shares(shares, sizes)) is not None:
                    families[name] = bounded(everything.X, own)
            # the kernel of bandwidth 1/sqrt 2: every length is sqrt 2 times as many bandwidths
            families["square"] = bounded(everything.X, shares, ROOT)
        bound = largest_bound(list(families.values()))
        return NetworkFit(geometry, bound, weights, targets=targets, families=families)

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        # A union over the families; that of the square term has the widest ball, sqrt 2 R, and the farthest points.
        each = delta / len(self.family_totals_)
        radius, max_norm = ROOT * self.radius_, ROOT * self._geometry.max_norm
        return {
            "covering": covering(t, dimension, radius, max_norm, eps, each),
            "vc": vc(t, dimension + 1, eps, each),
            "paper": paper_formula(t, len(self.center_) + 1, eps, each),
        }

    def _guarantee(self, method: str, count: int) -> Guarantee | None:
        proved = super()._guarantee(method, count)
        return proved and replace(proved, queries="families")

    def _judged(self, coreset: Any) -> Coreset:
        """The coreset that was given, or the last one drawn."""
        check_is_fitted(self, "sensitivities_")
        coreset = getattr(self, "coreset_", None) if coreset is None else coreset
        if coreset is None:
            raise InvalidInputError("there is no coreset yet: call sample(), or pass one.")
        if check_instance(coreset, "core", Coreset).n_samples != self._table.n_samples:
            n = self._table.n_samples
            raise InvalidInputError(f"core was drawn from {coreset.n_samples} rows, but {n} were fitted.")
        return coreset


def _finite(eps: float) -> float | None:
    return eps if eps < np.inf else None
