"""The result of every sensitivity bound."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SensitivityBound:
    """Upper bounds on sensitivities, kept as logarithms so that no constant of the paper overflows.

    Attributes
    ----------
    log_values : ndarray of shape (n,)
        ``log s(p)``; ``-inf`` for points of weight zero. Certificates are at most 0; the paper's scores may exceed 0.
    name : str
    is_certified : bool
        Whether ``s(p)`` is proved to dominate the sensitivity of ``p`` for these points and this radius.
    note : str
        One sentence: why it is certified, or what is missing.
    gap : ndarray of shape (n,) or None
        For bounds found by ascent: the duality gap, ``log s(p)`` minus the logarithm of the ratio reached.
    """

    log_values: np.ndarray
    name: str
    is_certified: bool
    note: str
    gap: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """The bounds themselves; one beyond the range of floats becomes a very large float."""
        return np.exp(np.minimum(self.log_values, LARGEST_EXPONENT))


LARGEST_EXPONENT = float(np.log(np.finfo(np.float64).max)) - 50.0  # so that sums of bounds stay finite


def rounding_slack(max_norm: float, radius: float) -> float:
    """What to add to an exponent so that rounding cannot push a certificate below the truth.

    Exponents are sums of a few terms no larger than ``(max_norm + radius)^2``, each with a relative error of some
    ``d * 2^-53``. ``1e-12`` of that magnitude covers it for every dimension that fits into memory (float64 sums by
    blocks err by far less than the worst case), and moves a sensitivity by a part in 10^12 on normalised data.
    """
    return 1e-12 * (1.0 + (max_norm + radius) ** 2)


def log_shares(shares: np.ndarray) -> np.ndarray:
    """Logarithms; ``-inf`` for a share of zero."""
    with np.errstate(divide="ignore"):
        return np.log(shares)
