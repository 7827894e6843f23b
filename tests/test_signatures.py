"""Arguments after the data are keyword-only, with one name and one order everywhere."""

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

import coresift
import coresift.coresets

# what may be given by position: the data, and what the frozen interface has there
DATA = {"X", "y", "data", "core", "path", "made", "rows", "source", "indices", "weights", "n_samples", "arrays"}
FIRST = {
    "RBFCoreset": {"radius"},
    "LinearCoreset": {"loss"},
    "KMeansCoreset": {"n_clusters"},
    "StreamingCoreset": {"size"},
    "CoresetClassifier": {"estimator"},  # scikit-learn's convention, as are the next three
    "CoresetSearchCV": {"estimator", "params"},
    "CoresetRegressor": {"estimator"},
    "score": {"sample_weight"},
    "nested_coresets": {"sizes"},
    "select": {"budget"},
    "fit_model": {"budget"},
    "sample": {"size"},
    "advice": {"size"},
    "cost": {"centers"},
    "sample_size": {"eps", "delta"},
    "fit": {"sample_weight"},  # scikit-learn's convention
    "from_certificate": {"certificate"},
    "from_dict": {"plain"},
    "from_json": {"text"},
    "get_feature_names_out": {"input_features"},  # scikit-learn's convention
    "certify_model": {"model"},
}
ORDER = ["sample_weight", "radius", "random_state"]
SYNONYMS = {"coreset", "subset", "sample_weights", "rng", "fraction", "n_jobs"}


def public_callables() -> Iterator[tuple[str, Any]]:
    """Functions, constructors and methods; not the constructors of results, nor the protocol of ``Rows``."""
    for module in (coresift, coresift.coresets):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield name, found
            if not inspect.isclass(found) or issubclass(found, Exception | coresift.Rows):
                continue
            if not is_dataclass(found):
                yield name, found.__init__
            for method, function in inspect.getmembers(found, inspect.isroutine):
                function = getattr(function, "__func__", function)
                if not method.startswith("_") and function.__module__.startswith("coresift."):
                    yield f"{name}.{method}", function


CALLABLES = dict(public_callables())


def parameters(function: Any) -> list[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return [p for p in found if p.name not in ("self", "cls") and p.kind is not p.VAR_KEYWORD]


@pytest.mark.parametrize("name", CALLABLES)
def test_only_data_may_be_positional(name):
    allowed = DATA | FIRST.get(name.split(".")[-1], set())
    positional = {p.name for p in parameters(CALLABLES[name]) if p.kind is not p.KEYWORD_ONLY}
    assert positional <= allowed


@pytest.mark.parametrize("name", CALLABLES)
def test_one_name_and_one_order(name):
    names = [p.name for p in parameters(CALLABLES[name])]
    common = [n for n in names if n in ORDER]
    assert common == sorted(common, key=ORDER.index)
    assert name == "CoresetSearchCV" or not SYNONYMS & set(names)  # named like GridSearchCV's


def test_the_walk_sees_the_public_interface():
    assert len(CALLABLES) > 30
    assert {"audit", "Coreset.certify", "RBFCoreset", "RBFCoreset.fit", "LeastSquaresCoreset.certify"} <= set(CALLABLES)
    assert {"Certificate", "SampleSize", "Guarantee", "SquaresCertificate"} <= set(coresift.__all__)
