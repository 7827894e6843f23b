"""Tables of any columns as matrices of numbers, as an estimator of scikit-learn."""

from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin

from ..core.points import Matrix
from .columns import Wanted
from .table_features import TableFeatures
from .tables import FrameRows


class Preparation(TransformerMixin, BaseEstimator, TableFeatures):
    """Turn a table into a matrix of numbers in which no column dominates.

    Numbers, dates (seconds, and sine and cosine of the time of day, week and year) and text that holds them are
    standardised; truth values become 0 and 1; other text becomes one feature for each value, or is hashed. Missing and
    infinite numbers become the median, and a feature of their own says where. Constant columns, ids and copies are left
    out.

    Parameters
    ----------
    columns : sequence of str, optional
        The columns to use. They are left out only if they are empty.
    categorical, drop, id : sequence of str
        Columns to read as categories whatever they hold; to leave out; to leave out because they identify rows.
    max_categories, n_buckets : int, default 32
        Values up to which a column gets one feature for each; above, they are hashed to that many features.

    Attributes
    ----------
    columns_ : list of Column
        What was decided: ``name``, ``kind`` (how it is read), ``why``, and what :meth:`transform` needs.

    Examples
    --------
    >>> import pandas as pd
    >>> from coresift import Preparation
    >>> table = pd.DataFrame({"age": [30, None, 50], "city": ["Rome", "Oslo", "Rome"], "year": [2020] * 3})
    >>> made = Preparation().fit(table)
    >>> made.get_feature_names_out().tolist()
    ['age', 'age missing', 'city=Oslo', 'city=Rome']
    >>> made.transform(table).round(2).tolist()[1]
    [0.0, 1.0, 1.0, 0.0]
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a frame, an Arrow table or a dense array; ``y`` is ignored."""
        return self.learn(FrameRows(X, Wanted(is_prepared=True)))

    def transform(self, X: Any) -> Matrix:
        """The features of any rows with these columns: (n, d), or a CSR matrix if most entries are zero.

        They are float64, or float32 if all columns are and none has missing entries. Other columns are ignored.
        Categories that were not learnt, and entries missing where none were, have no feature.
        """
        return super().transform(X)
