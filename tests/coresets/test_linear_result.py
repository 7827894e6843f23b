"""A linear model as a value: predictions like scikit-learn's, a JSON file, and ``fit_model``, which makes one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss, mean_poisson_deviance

from coresift import InvalidInputError, LinearModel, fit_model, open_rows
from coresift.coresets.linear_result import Evaluation, predicted

N = 3000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(N, 3)) * [1, 20, 0.1] + [0, 50, 0], columns=["a", "b", "c"])
    score = made["a"] + 0.05 * (made["b"] - 50)
    made["y"] = np.where(rng.random(N) < 1 / (1 + np.exp(1 - score)), "yes", "no")
    made["kind"] = np.digitize(score + rng.normal(size=N), [-1, 1])
    made["price"] = 3 * score + rng.normal(size=N)
    made["count"] = rng.poisson(np.exp(0.5 * score - 1))
    made["w"] = rng.random(N)
    return made


@pytest.fixture
def file(table: pd.DataFrame, tmp_path: Path) -> Path:
    parquet.write_table(pa.Table.from_pandas(table), tmp_path / "rows.parquet", row_group_size=500)
    return tmp_path / "rows.parquet"


FEATURES = ["a", "b", "c"]
MODEL = LinearModel([[1.0, 2.0]], [0.5], "logistic", 0.1, classes=["no", "yes"], names=["a", "b"])


def fitted(estimator: Any, table: pd.DataFrame, label: str, loss: str) -> tuple[Any, LinearModel]:
    estimator.fit(table[FEATURES], table[label])
    classes = getattr(estimator, "classes_", None)
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    return estimator, LinearModel(coef, intercept, loss, 1.0, classes=classes, names=FEATURES)


@pytest.mark.parametrize("label", ["y", "kind"])
def test_a_classifier_predicts_as_scikit_learn_does(table: pd.DataFrame, label: str) -> None:
    theirs, ours = fitted(LogisticRegression(max_iter=1000), table, label, "logistic")
    X = table[FEATURES]
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-9)
    np.testing.assert_array_equal(ours.predict(sp.csr_array(X.to_numpy())), theirs.predict(X))
    found = evaluated(ours, open_rows(table, columns=FEATURES, label=label, weight="w"))
    assert found["accuracy"] == pytest.approx(theirs.score(X, table[label], table["w"]))
    assert found["loss"] == pytest.approx(log_loss(table[label], theirs.predict_proba(X), sample_weight=table["w"]))


@pytest.mark.parametrize(
    ("estimator", "label", "loss"), [(Ridge(), "price", "squared"), (PoissonRegressor(), "count", "poisson")]
)
def test_a_regression_predicts_as_scikit_learn_does(table: pd.DataFrame, estimator: Any, label: str, loss: str) -> None:
    theirs, ours = fitted(estimator, table, label, loss)
    means = theirs.predict(table[FEATURES])
    np.testing.assert_allclose(ours.predict(table), means, rtol=1e-9)
    found = evaluated(ours, open_rows(table, columns=FEATURES, target=label))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((means - table[label]) ** 2)))
    expected = mean_poisson_deviance(table[label], means) if loss == "poisson" else found["rmse"] ** 2
    assert 2 * found["loss"] == pytest.approx(expected)
    with pytest.raises(InvalidInputError, match="gives no probabilities"):
        ours.predict_proba(table)


def evaluated(model: LinearModel, rows: Any) -> dict[str, float]:
    found = Evaluation(model)
    for _ in predicted(model, rows, found):
        pass
    return found.figures()


def test_columns_are_found_by_name(table: pd.DataFrame, file: Path, tmp_path: Path) -> None:
    X = table[["a", "b"]]
    expected = MODEL.predict(X.to_numpy())
    np.testing.assert_array_equal(MODEL.predict(table[["c", "b", "a"]]), expected)
    np.testing.assert_array_equal(MODEL.predict(open_rows(table[["c", "b", "a"]])), expected)
    np.testing.assert_array_equal(MODEL.predict(file), expected)
    np.testing.assert_array_equal(MODEL.predict([str(file)]), expected)
    np.save(tmp_path / "rows.npy", X.to_numpy())
    np.testing.assert_array_equal(MODEL.predict(tmp_path / "rows.npy"), expected)
    for data in (table[["a", "c"]], open_rows(table[["a", "c"]])):
        with pytest.raises(InvalidInputError, match="no column 'b'"):
            MODEL.predict(data)
    with pytest.raises(InvalidInputError, match="3 columns, but the model was fitted to 2"):
        MODEL.predict(table[FEATURES].to_numpy())
    holed = X.copy()
    holed.loc[7, "b"] = np.nan
    with pytest.raises(InvalidInputError, match=r"NaN in column 1 \('b'\), row 7"):
        MODEL.predict(holed)


def test_labels_of_other_types_and_unknown_ones() -> None:
    model = LinearModel([[1.0]], [0.0], "logistic", 0.1, classes=[0, 1])
    X = np.array([[-1.0], [1.0], [2.0]])
    for labels in (np.array([0, 1, 0]), np.array(["0", "1", "0"])):
        assert evaluated(model, open_rows(X, labels=labels))["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(InvalidInputError, match="label '2' is not a class of the model: 0, 1"):
        evaluated(model, open_rows(X, labels=[0, 1, 2]))
    counts = LinearModel([[1.0]], [0.0], "poisson", 0.1)
    with pytest.raises(InvalidInputError, match="-1 is below 0"):
        evaluated(counts, open_rows(X, targets=[0, 1, -1]))


def test_a_file_holds_the_model(file: Path, tmp_path: Path) -> None:
    model = fit_model(file, 300, label="y", columns=FEATURES, weight="w", seed=3, preparation=None)
    path = tmp_path / "model.json"
    model.save(path)
    again = LinearModel.load(path)
    assert again == model
    assert again.certificate == model.certificate
    assert again != MODEL
    plain = json.loads(path.read_text())
    assert plain["names"] == FEATURES
    assert plain["classes"] == ["no", "yes"]
    assert plain["size"] == 300
    assert plain["run"]["seed"] == 3
    assert not model.coef.flags.writeable


def test_infinite_bounds_survive(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40.0)})
    fit = fit_model(table, 40, label="y", columns=["a"], model="squared")
    unknown = type(fit.certificate)(**{**vars(fit.certificate), "relative": np.inf})  # type: ignore[arg-type]
    model = LinearModel(fit.coef, fit.intercept, "squared", fit.alpha, certificate=unknown)
    model.save(tmp_path / "model.json")
    assert LinearModel.load(tmp_path / "model.json") == model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "not a model file, or damaged"),
        (lambda text: text.replace("2.0", "2.5"), "the checksum does not match"),
        (lambda text: text.replace("coresift.model", "coresift.coreset"), "not a model file"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "install a newer coresift"),
        (lambda text: "[1, 2]", "not a model file"),
        (lambda text: "", "not a model file"),
        (lambda text: '{"a":' * 100_000, "not a model file"),
        (lambda text: "{\x00\ud800".encode("utf-8", "surrogatepass"), "not a model file"),
    ],
)
def test_other_and_damaged_files_are_refused_by_name(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    MODEL.save(path)
    changed = change(path.read_text())
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    with pytest.raises(InvalidInputError, match=f"model.json: .*{message}"):
        LinearModel.load(path)
    with pytest.raises(InvalidInputError, match=r"nosuch.json: no such file"):
        LinearModel.load(tmp_path / "nosuch.json")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"loss": "hinge"}, "loss = 'hinge'"),
        ({"classes": None}, "0 classes"),
        ({"loss": "squared"}, "does not go with 2 classes"),
        ({"loss": "squared_hinge", "classes": [1, 2, 3]}, "takes two classes"),
        ({"classes": ["a", "b", "c"]}, "3 rows of coefficients"),
        ({"names": ["a"]}, "1 names, but 2 coefficients"),
        ({"coef": [[1.0, np.nan]]}, "coef contains NaN"),
        ({"intercept": [0.0, 1.0]}, "intercept"),
        ({"loss": "huber", "classes": None, "threshold": -1.0}, "threshold = -1"),
    ],
)
def test_what_is_no_model_is_refused(about: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"coef": [[1.0, 2.0]], "intercept": [0.5], "loss": "logistic", "alpha": 0.1}
    with pytest.raises(InvalidInputError, match=message):
        LinearModel(**{**whole, "classes": ["a", "b"], **about})


def test_fit_model_is_close_to_the_fit_of_all_rows(table: pd.DataFrame, file: Path) -> None:
    model = fit_model(file, "20%", label="y", columns=FEATURES, alpha=1e-3, preparation=None)
    full = LogisticRegression(C=1 / (1e-3 * N), tol=1e-10, max_iter=10_000).fit(table[FEATURES], table["y"])
    np.testing.assert_allclose(model.coef, full.coef_, rtol=0.02, atol=0.01)
    assert model.certificate is not None
    assert model.certificate.relative < 1e-3
    in_memory = fit_model(table, "20%", label="y", columns=FEATURES, alpha=1e-3, preparation=None)
    np.testing.assert_array_equal(in_memory.coef, model.coef)
