"""No call changes the state of the process: every public function, in eight threads at once."""

import inspect
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from threadpoolctl import ThreadpoolController

import coresift as cs
from coresift import coresets, data, selection, training
from coresift._threads import ONE_BLAS_THREAD, one_thread
from paper import networks

N_THREADS = 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
X[:150] = X[0]  # fewer distinct points than cells: scikit-learn's k-means warns of it
Y = (X[:, 0] > X[0, 0]).astype(int)
T = X @ np.array([1.0, -2.0, 0.5])
FRAME = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "t": T})
CORE = cs.RBFCoreset(bandwidth=2.0, random_state=0).fit(X).sample(40, random_state=0)


class Mean(RegressorMixin, BaseEstimator):
    """A model that calls nothing: those of scikit-learn exchange the warning filters themselves."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Mean":
        self.n_features_in_ = X.shape[1]
        self.mean_ = float(np.average(y, weights=sample_weight))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.mean_)


class Constant(ClassifierMixin, Mean):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Constant":
        self.classes_ = np.unique(y)
        return super().fit(X, y, sample_weight)  # type: ignore[return-value]

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.classes_[0])


def fitted(estimator: Any, *more: Any) -> Any:
    return estimator.fit(X, *more).sample(30)


def pair() -> tuple[np.ndarray, np.ndarray]:
    return X.astype(np.float32), Y


def saved(folder: Path) -> None:
    path = folder / f"core-{threading.get_ident()}.npz"
    chosen = cs.select(X, 20, bound="cells", n_cells=200)
    chosen.save(path)
    cs.Coreset.load(path)
    coresets.load_run(path)
    coresets.check_output(path)


def streamed(folder: Path) -> None:
    path = folder / f"stream-{threading.get_ident()}.npz"
    cs.StreamingCoreset(10, bandwidth=2.0).partial_fit(X).save(path)
    cs.StreamingCoreset.load(path).coreset()


def trained(folder: Path) -> None:
    training.train(
        training.build_model("mlp", n_classes=2, input_shape=(3,), width=4, seed=1),
        pair(),
        "rbf",
        "20%",
        test=pair(),
        epochs=2,
        select_every=1,
        device="cpu",
        out=folder / f"run-{threading.get_ident()}-{random.SystemRandom().random()}",
    )


def strategies(folder: Path) -> None:
    model = training.build_model("mlp", n_classes=2, input_shape=(3,), width=4, seed=1)
    half = pair()[0][::2], Y[::2]
    context = selection.SelectionContext(*pair(), model=model, X_val=half[0], y_val=half[1], n_epochs=2)
    for strategy in selection.registry().values():
        strategy.select(context, 20, np.random.default_rng(0))


def sampled(folder: Path) -> None:
    model = training.build_model("mlp", n_classes=2, input_shape=(3,), width=4, seed=1)
    sampler = training.CoresetSampler(pair()[0], "random", 20, y=Y, model=model)
    sampler.set_epoch(0)
    list(sampler)
    training.weighted_loss(torch.ones(3), torch.ones(3))


CALLS: dict[str, Callable[[Path], Any]] = {
    "Preparation": lambda _: cs.Preparation().fit(FRAME).transform(FRAME),
    "RBFCoreset": lambda _: fitted(cs.RBFCoreset(bandwidth=2.0, bound="cells", n_cells=200)),
    "LaplacianCoreset": lambda _: fitted(cs.LaplacianCoreset(bandwidth=2.0)),
    "KMeansCoreset": lambda _: fitted(cs.KMeansCoreset(5)),
    "LeastSquaresCoreset": lambda _: fitted(cs.LeastSquaresCoreset(), T),
    "LinearCoreset": lambda _: fitted(cs.LinearCoreset("squared"), T),
    "RBFNetworkCoreset": lambda _: networks.RBFNetworkCoreset(bandwidth=2.0).fit(X, T).sample(30),
    "RBFNetworkClassifier": lambda _: networks.RBFNetworkClassifier(n_centers=4).fit(X, Y).predict(X),
    "RBFNetworkRegressor": lambda _: networks.RBFNetworkRegressor(n_centers=4).fit(X, T).predict(X),
    "CoresetClassifier": lambda _: cs.CoresetClassifier(Constant(), size=60).fit(X, Y),
    "CoresetRegressor": lambda _: cs.CoresetRegressor(Mean(), size=60).fit(X, T),
    "Coreset": lambda _: (CORE.certify(X), CORE.reweight(X)),
    "StreamingCoreset": streamed,
    "audit": lambda _: cs.audit(X, CORE, n_starts=2, n_random=20),
    "certify_model": lambda _: None,  # certifies scikit-learn's models, which fit_model does without
    "fit_model": lambda _: cs.fit_model(FRAME, label="t", columns=["a", "b"], model="squared", budget=100),
    "nested_coresets": lambda _: cs.nested_coresets(X, Y, [20, 60]),
    "search_networks": lambda _: None,  # trains, again and again
    "l1_svd": lambda _: cs.l1_svd(X),
    "open_rows": lambda folder: list(cs.open_rows(folder / "rows.npy").blocks()),
    "select": saved,
    "run": lambda _: None,  # what select calls
    "check_output": lambda _: None,  # in "select"
    "load_run": lambda _: None,  # in "select"
    "available_datasets": lambda _: data.available_datasets(),
    "load_dataset": lambda _: data.load_dataset("digits"),
    "read_idx": lambda folder: data.read_idx(folder / "labels.idx"),
    "strategy_named": lambda _: selection.strategy_named("rbf"),
    "phases": lambda _: selection.phases(selection.strategy_named("rbf-warm"), 10, 0.1),
    "registry": strategies,
    "proxy_scores": lambda _: None,  # in "registry"
    "train": trained,
    "build_model": lambda _: training.build_model("mlp", n_classes=2, input_shape=(3,), width=4, seed=3),
    "CoresetSampler": sampled,
    "evaluate": lambda _: None,  # in "train"
    "sift": lambda _: None,  # a sampler and a loader
    "weighted_loss": lambda _: None,  # in "CoresetSampler"
    "normalize": lambda _: training.normalize(torch.ones(2, 3, 4, 4), [0.5] * 3, [0.5] * 3),
}
ON_PURPOSE = {"register"}  # adds a strategy to the registry
ON_PURPOSE |= {"CoresetSearchCV"}  # runs the cross-validation of scikit-learn, which exchanges the filters itself


def test_every_public_function_is_called() -> None:
    public = set()
    for package in ("coresift", *(f"coresift.{name}" for name in ("coresets", "data", "selection", "training"))):
        module = import_module(package)
        public |= {
            name
            for name in module.__all__
            if inspect.isfunction(value := getattr(module, name)) or (inspect.isclass(value) and hasattr(value, "fit"))
        }
    assert public <= set(CALLS) | ON_PURPOSE


def state() -> dict[str, Any]:
    """What a call may not change."""
    logger = logging.getLogger("coresift")
    legacy = np.random.get_state()  # noqa: NPY002
    return {
        "filters": list(warnings.filters),
        "showing": (warnings.showwarning, warnings.defaultaction),
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in legacy],
        "random": random.getstate(),
        "torch": torch.get_rng_state().tolist(),
        "errors": np.geterr(),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "threads": [(lib["filepath"], lib["num_threads"]) for lib in ThreadpoolController().info()],
        "torch threads": (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()),
        "log": (logger.level, list(logger.handlers), logger.propagate, list(logging.getLogger().handlers)),
        "folder": (os.getcwd(), sys.path[:], sys.getrecursionlimit()),
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", X)
    (tmp_path / "labels.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2]))
    return tmp_path


@pytest.mark.slow
def test_no_call_changes_the_state_of_the_process(folder: Path) -> None:
    for call in CALLS.values():  # imports, which may set what they like, are done
        call(folder)
    interval = sys.getswitchinterval()
    with ThreadpoolController().limit(limits=2):  # that of BLAS is one in the tests: nothing could be restored
        before = state()
        together = threading.Barrier(N_THREADS)

        def work(seed: int) -> None:
            for name in np.random.default_rng(seed).permutation(list(CALLS)):
                try:
                    together.wait(timeout=60)
                except threading.BrokenBarrierError:
                    return
                CALLS[name](folder)

        try:
            sys.setswitchinterval(1e-5)
            with ThreadPoolExecutor(N_THREADS) as pool:
                for done in [pool.submit(work, seed) for seed in range(N_THREADS)]:
                    try:
                        done.result()
                    except BaseException:
                        together.abort()
                        raise
        finally:
            sys.setswitchinterval(interval)
        after = state()
    for what, value in before.items():
        assert after[what] == value, what


def test_the_last_thread_restores_what_the_first_found() -> None:
    controller = ThreadpoolController().select(user_api="blas")

    def now() -> set[int]:
        return {lib["num_threads"] for lib in controller.info()}

    with controller.limit(limits=2):
        first, second = ONE_BLAS_THREAD, one_thread()
        first.__enter__()
        assert now() == {1}
        second.__enter__()
        first.__exit__()  # the other is at work still
        assert now() == {1}
        second.__exit__(None, None, None)
        assert now() == {2}
