"""Bad input: a clear error that names argument, value and limit; everything behind may rely on the checks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift import CoresiftError, InvalidInputError, InvalidTypeError, LaplacianCoreset, RBFCoreset, audit, l1_svd
from coresift._validation import check_budget, check_features, check_generator, check_seed, check_weights

X = np.random.default_rng(0).normal(size=(10, 3))


def _with(value, row=4, column=2, dtype=np.float64):
    bad = X.astype(dtype)
    bad[row, column] = value
    return bad


class NotAnArray:
    pass


@pytest.mark.parametrize("estimator", [RBFCoreset(), LaplacianCoreset(), RBFCoreset(bound="cells")])
@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (_with(np.nan), ValueError, r"X contains NaN in column 2, row 4"),
        (_with(np.nan, dtype=np.float32), ValueError, r"X contains NaN in column 2, row 4"),
        (_with(np.inf), ValueError, r"X contains infinity in column 2, row 4"),
        (_with(-np.inf), ValueError, r"X contains infinity in column 2, row 4"),
        (_with(1e301), ValueError, r"X contains 1e\+301 in column 2, row 4.*1e\+300"),
        (sp.csr_array(_with(np.nan)), ValueError, r"X contains NaN in column 2, row 4"),
        (sp.csc_array(_with(-np.inf)), ValueError, r"X contains infinity in column 2, row 4"),
        (np.empty((0, 3)), ValueError, r"X: .*0 sample\(s\).*minimum of 1"),
        (np.empty((3, 0)), ValueError, r"X: .*0 feature\(s\).*minimum of 1"),
        ([], ValueError, r"X has shape .*Expected 2D array, got 1D"),
        (sp.csr_array((0, 3)), ValueError, r"X: .*0 sample\(s\)"),
        (X[:, 0], ValueError, r"X has shape \(.*Reshape your data"),
        (X[None], ValueError, r"X has shape .*got 3D"),
        (5.0, ValueError, r"X: Expected 2D array, got scalar"),
        (None, TypeError, r"X is None; it must be an array"),
        ("abc", TypeError, r"X is .abc.; .*open_rows"),
        ([["a", "b"]], TypeError, r"X has entries of type <U1"),
        (np.array([["1", "2"]]), TypeError, r"X has entries of type <U1"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), TypeError, r"X has entries of type datetime64"),
        (np.array([[1, "a"]], dtype=object), ValueError, r"X: could not convert"),
        (np.array([[1, NotAnArray()]], dtype=object), TypeError, r"X: .*NotAnArray"),
        (X + 1j, ValueError, r"X: Complex data not supported"),
        ([[1, 2], [3]], ValueError, r"X: .*inhomogeneous"),
        ({"a": 1}, TypeError, r"X: .*dict"),
    ],
)  # fmt: skip
def test_bad_data(estimator, bad, kind, message):
    with pytest.raises(kind, match=message) as caught:
        estimator.fit(bad)
    assert isinstance(caught.value, CoresiftError)


def test_bad_columns_are_named():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    values = {"a": [1.0, 2.0], "height": [np.nan, 1.0]}
    for frame in (pd.DataFrame(values), pl.DataFrame(values)):
        with pytest.raises(InvalidInputError, match=r"NaN in column 1 \('height'\), row 0"):
            RBFCoreset().fit(frame)
    with pytest.raises(InvalidInputError, match=r"NaN in column 0 \('n'\), row 1"):
        RBFCoreset().fit(pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int64")}))


def test_a_bad_row_of_weight_zero_is_bad():
    w = np.ones(10)
    w[4] = 0.0
    with pytest.raises(InvalidInputError, match="column 2, row 4"):
        RBFCoreset().fit(_with(np.nan), sample_weight=w)
    with pytest.raises(InvalidInputError, match=r"too small for X, which has a row"):
        RBFCoreset().fit(_with(1e200), sample_weight=w)


@pytest.mark.parametrize(
    ("weights", "kind", "message"),
    [
        (-np.ones(10), ValueError, r"sample_weight\[0\] = -1; weights must be finite and not negative \(10"),
        (np.zeros(10), ValueError, r"sample_weight sums to 0; not all may be zero"),
        (np.append(np.ones(9), np.nan), ValueError, r"sample_weight\[9\] = nan"),
        (np.append(np.ones(9), np.inf), ValueError, r"sample_weight\[9\] = inf"),
        (np.append(np.ones(9), -1e-300), ValueError, r"sample_weight\[9\] = -1e-300"),
        ([None] + [1.0] * 9, ValueError, r"sample_weight\[0\] = nan"),
        (np.full(10, 1e308), ValueError, r"sample_weight sums to inf.*at most 1e\+300"),
        (np.ones(9), ValueError, r"sample_weight has length 9, but X has 10 rows"),
        (np.ones(11), ValueError, r"sample_weight has length 11, but X has 10 rows"),
        ([], ValueError, r"sample_weight has length 0, but X has 10 rows"),
        (np.ones((10, 1)), ValueError, r"sample_weight has shape \(10, 1\)"),
        (["1"] * 10, TypeError, r"sample_weight has entries of type <U1"),
        ("abc", TypeError, r"sample_weight has entries of type <U3"),
        (np.ones(10) * 1j, TypeError, r"sample_weight must be numbers"),
        ([NotAnArray()] * 10, TypeError, r"sample_weight must be numbers"),
        ([[1, 2], [3]], TypeError, r"sample_weight must be numbers"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("estimator", [RBFCoreset(), LaplacianCoreset()])
def test_bad_weights(estimator, weights, kind, message):
    with pytest.raises(kind, match=message) as caught:
        estimator.fit(X, sample_weight=weights)
    assert isinstance(caught.value, CoresiftError)
    with pytest.raises(kind, match=message):
        l1_svd(X, sample_weight=weights)
    with pytest.raises(kind, match=message):
        audit(X, RBFCoreset().fit(X).sample(3), sample_weight=weights)


@pytest.mark.parametrize("cls", [RBFCoreset, LaplacianCoreset])
@pytest.mark.parametrize(
    ("params", "kind", "message"),
    [
        ({"bound": "closed form"}, ValueError, r"bound = 'closed form' is not one of 'auto', "),
        ({"bound": None}, ValueError, r"bound = None is not one of"),
        ({"bound": ["exact"]}, ValueError, r"bound = \['exact'\] is not one of"),
        ({"n_cells": 0}, ValueError, r"n_cells = 0 must be at least 1"),
        ({"n_cells": -3}, ValueError, r"n_cells = -3 must be at least 1"),
        ({"n_cells": 2.5}, TypeError, r"n_cells = 2.5 must be an integer"),
        ({"n_cells": True}, TypeError, r"n_cells = True must be an integer"),
        ({"n_cells": None}, TypeError, r"n_cells = None must be an integer"),
        ({"max_exact": 0}, ValueError, r"max_exact = 0 must be at least 1"),
        ({"max_exact": "many"}, TypeError, r"max_exact = 'many' must be an integer"),
        ({"bandwidth": 0}, ValueError, r"bandwidth = 0 must be above 0"),
        ({"bandwidth": -1.0}, ValueError, r"bandwidth = -1.0 must be above 0"),
        ({"bandwidth": np.nan}, ValueError, r"bandwidth = nan must be above 0"),
        ({"bandwidth": np.inf}, ValueError, r"bandwidth = inf must be above 0 and at most"),
        ({"bandwidth": "mean"}, ValueError, r"bandwidth = 'mean' must be None, 'median' or a number"),
        ({"bandwidth": [1.0]}, TypeError, r"bandwidth = \[1.0\] must be a number"),
        ({"bandwidth": True}, TypeError, r"bandwidth = True must be a number"),
        ({"bandwidth": 1e-90}, ValueError, r"bandwidth = 1e-90 is too small for X.*1e\+70"),
        ({"random_state": "x"}, ValueError, r"random_state = 'x' must be None, an integer"),
        ({"random_state": -1}, ValueError, r"random_state = -1 must be None, an integer of at least 0"),
        ({"random_state": 1.5}, ValueError, r"random_state = 1.5 must be"),
        ({"random_state": True}, ValueError, r"random_state = True must be"),
    ],
)  # fmt: skip
def test_bad_parameters(cls, params, kind, message):
    with pytest.raises(kind, match=message) as caught:
        cls(**params).fit(X)
    assert isinstance(caught.value, CoresiftError)


@pytest.mark.parametrize(
    ("radius", "kind", "message"),
    [
        (0, ValueError, r"radius = 0 must be above 0"),
        (-1.0, ValueError, r"radius = -1.0 must be above 0"),
        (np.nan, ValueError, r"radius = nan must be above 0"),
        (np.inf, ValueError, r"radius = inf must be above 0 and at most"),
        (1e160, ValueError, r"radius = 1e\+160 must be above 0 and at most"),
        ("1", TypeError, r"radius = '1' must be a number"),
        (None, TypeError, r"radius = None must be a number"),
        (True, TypeError, r"radius = True must be a number"),
    ],
)
def test_bad_radius(radius, kind, message):
    with pytest.raises(kind, match=message) as caught:
        RBFCoreset(radius).fit(X)
    assert isinstance(caught.value, CoresiftError)
    if radius is not None:
        with pytest.raises(kind, match=message):
            audit(X, RBFCoreset().fit(X).sample(3), radius=radius)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "nonsense", None, 3])
def test_only_metrics_are_metrics(metric):
    with pytest.raises(InvalidInputError, match=r"metric = .* is not one of 'euclidean', .* nor a function"):
        LaplacianCoreset(metric=metric).fit(X)


def test_other_metrics_need_exact_and_dense():
    for bound in ("cells", "paper"):
        with pytest.raises(InvalidInputError, match=rf"bound = '{bound}' needs metric='euclidean'"):
            LaplacianCoreset(metric="cityblock", bound=bound).fit(X)
    for bandwidth in (None, "median", 2.0):
        with pytest.raises(InvalidInputError, match=r"metric = 'cityblock' needs dense rows"):
            LaplacianCoreset(metric="cityblock", bandwidth=bandwidth).fit(sp.csr_array(X))


@pytest.mark.parametrize(
    ("size", "kind", "message"),
    [
        (0, ValueError, r"size = 0 must be between 1 and the number of samples, 10"),
        (-1, ValueError, r"size = -1 must be between 1 and"),
        (11, ValueError, r"size = 11 must be between 1 and the number of samples, 10"),
        (np.int64(11), ValueError, r"size = 11 must be between 1 and"),
        (0.0, ValueError, r"size = 0.0 must be above 0 and at most 1"),
        (-0.5, ValueError, r"size = -0.5 must be above 0 and at most 1"),
        (1.0001, ValueError, r"size = 1.0001 must be above 0 and at most 1.*pass an"),
        (5.0, ValueError, r"size = 5.0 must be above 0 and at most 1.*integer"),
        (np.nan, ValueError, r"size = nan must be"),
        (np.inf, ValueError, r"size = inf must be"),
        (True, TypeError, r"size = True must be a number"),
        ("5", TypeError, r"size = '5' must be a number"),
        (None, TypeError, r"size = None must be a number"),
        ([5], TypeError, r"size = \[5\] must be a number"),
        (1j, TypeError, r"size = 1j must be a number"),
    ],
)  # fmt: skip
def test_bad_budgets(size, kind, message):
    est = RBFCoreset(random_state=0).fit(X)
    expected = RBFCoreset(random_state=0).fit(X).sample(3)
    with pytest.raises(kind, match=message) as caught:
        est.sample(size)
    assert isinstance(caught.value, CoresiftError)
    assert est.sample(3) == expected  # the failed call used up nothing


def test_bad_ways_to_draw():
    est = LaplacianCoreset(random_state=0).fit(X)
    for method in ("uniform", 3):
        with pytest.raises(InvalidInputError, match=r"method = .* is not one of 'systematic', 'iid', 'keys'"):
            est.sample(3, method=method)
    for seed in ("x", -1, 1.5, True):
        with pytest.raises(InvalidInputError, match="random_state"):
            est.sample(3, random_state=seed)


@given(n=st.integers(1, 10**7), size=st.integers(1, 10**7))
def test_a_fraction_k_over_n_means_k(n, size):
    k = min(size, n)
    assert check_budget(k / n, n) == k
    assert check_budget(k, n) == k


@given(n=st.integers(1, 10**7), fraction=st.floats(0, 1, exclude_min=True))
def test_fractions_are_rounded_up_and_never_to_nothing(n, fraction):
    count = check_budget(fraction, n)
    assert 1 <= count <= n
    assert count >= fraction * n * (1 - 1e-12)
    assert count <= max(1, fraction * n + 1)


def test_a_little_more_than_a_whole_number_is_rounded_up():
    assert check_budget(10.0005 / 10**6, 10**6) == 11
    assert check_budget(0.07, 100) == 7  # 7.000000000000001 in floats


def test_float_arrays_pass_without_a_copy():
    for dtype in (np.float32, np.float64):
        for order in "CF":
            Y = np.asarray(X, dtype=dtype, order=order)
            assert np.shares_memory(check_features(Y), Y)
    S = sp.csr_array(X)
    assert np.shares_memory(check_features(S).data, S.data)


def test_the_callers_sparse_matrix_is_left_alone():
    """Duplicates and unsorted indices are put in order in a copy."""
    data, indices, indptr = np.array([1.0, 2, 3, 4]), np.array([1, 1, 2, 0]), np.array([0, 2, 4])
    S = sp.csr_matrix((data.copy(), indices.copy(), indptr.copy()), shape=(2, 3))
    checked = check_features(S)
    np.testing.assert_array_equal(checked.toarray(), [[0, 3, 0], [4, 0, 3]])
    for kept, given_ in ((S.data, data), (S.indices, indices), (S.indptr, indptr)):
        np.testing.assert_array_equal(kept, given_)
    for array in (S.data, S.indices, S.indptr):
        array.setflags(write=False)
    assert check_features(S).nnz == 3


def test_weights_are_copied_and_widened():
    w = np.array([1, 2, 3], dtype=np.int8)
    checked = check_weights(w, 3)
    assert checked.dtype == np.float64
    checked[0] = 7
    assert w[0] == 1
    assert check_weights(None, 2).tolist() == [1.0, 1.0]
    assert check_weights(2.5, 2).tolist() == [2.5, 2.5]
    assert check_weights([True, False], 2).tolist() == [1.0, 0.0]


def test_seeds_and_generators():
    rng = np.random.default_rng(0)
    assert check_generator(rng) is rng
    assert check_generator(5).integers(1000) == np.random.default_rng(5).integers(1000)
    assert check_generator(np.int32(5)).integers(1000) == np.random.default_rng(5).integers(1000)
    old = [check_generator(np.random.RandomState(3)).integers(2**60) for _ in range(2)]
    assert old[0] == old[1]
    assert check_seed(7, rng) == 7
    assert check_seed(None, np.random.default_rng(1)) == check_seed(np.random.default_rng(1), rng)
    assert check_seed(None, rng) != check_seed(None, rng)


def test_error_classes_fit_where_callers_expect_them():
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(InvalidTypeError, TypeError)
    assert issubclass(InvalidInputError, CoresiftError)
    assert issubclass(InvalidTypeError, CoresiftError)


def test_a_column_of_text_is_named():
    frame = pd.DataFrame({"a": [1.0, 2.0], "town": ["x", "y"]})
    with pytest.raises(CoresiftError, match="column 'town'"):
        RBFCoreset().fit(frame)
    assert RBFCoreset().fit(frame.assign(town=["1", "2"])).n_features_in_ == 2  # text that is numbers is converted


def test_the_message_of_a_long_vector_is_short():
    with pytest.raises(CoresiftError) as caught:
        RBFCoreset().fit(np.arange(10_000.0))
    assert len(str(caught.value)) < 200


def test_saving_into_a_missing_folder_names_the_folder(tmp_path):
    core = RBFCoreset(random_state=0).fit(np.random.default_rng(0).normal(size=(20, 2))).sample(5)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist"):
        core.save(tmp_path / "nowhere" / "core.npz")
