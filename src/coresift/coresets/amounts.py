"""Numbers of rows and of bytes, and shares, as users write them."""

import re
from decimal import Decimal
from typing import Any

from .._errors import InvalidInputError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_budget(budget: Any, n_rows: int) -> int:
    """A number of rows from ``"5%"``, ``"0.05"``, ``"1000"``, or a number."""
    from .._validation import check_budget  # imports NumPy, which the help of a command does not need

    if isinstance(budget, str):
        text = budget.strip().replace("_", "")
        if re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+", text):  # 1,000,000; elsewhere a comma may mean a point
            text = text.replace(",", "")
        try:
            budget = int(text) if re.fullmatch(r"[+-]?\d+", text) else share(text)
        except (ValueError, ArithmeticError):
            raise InvalidInputError(
                f"budget = {budget!r} must be a number of rows, a fraction such as 0.05 or a percentage such as 5%."
            ) from None
    return check_budget(budget, n_rows, "budget")


def share(text: str) -> float:
    """A share from ``"5%"`` or ``"0.05"``; 0.7% is the float 0.007, which 0.7 / 100 is not."""
    return float(Decimal(text[:-1]) / 100) if text.endswith("%") else float(text)


def parse_bytes(text: Any, name: str) -> float:
    """A number of bytes from ``"2GB"``, ``"500M"``, or a number."""
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]?)i?b?\s*", str(text).lower())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise InvalidInputError(f"{name} = {text!r} must be a size such as 500MB or 4GB.")
    return value
