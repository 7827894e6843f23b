"""What is asked of a fit of a linear model, and the plan that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._errors import InvalidInputError
from .options import LINEAR_LOSSES, Plan, RunOptions, option, priced

if TYPE_CHECKING:
    from ..rows.rows import Rows

# As in `options`, everything else is imported where it is used.

TOLERANCE = 3e-6  # relative excess that is not worth another pass
_TYPICAL_PASSES = {"columns": 1, "pilot": 1, "scores": 1, "calibration": 3, "certificate": 3}


@dataclass(frozen=True, kw_only=True)
class FitOptions(RunOptions):
    """How to fit a linear model; see :func:`coresift.fit_model`. What is wrong whatever the data is refused here."""

    model: str = option("logistic", "Loss of the model; squared is ridge.", flags=("-m",), choices=LINEAR_LOSSES)
    budget: str | int | float = option("10%", "Rows to fit to: 1%, 0.01 or 1000.", flags=("-b",))
    alpha: float = option(1e-4, "Penalty: alpha / 2 times the squared coefficients is added to the mean loss.")
    threshold: float | None = option(None, "For huber: the residual above which the loss is linear.")
    fit_intercept: bool = option(True, "Fit an intercept, without penalty.", flags=("--intercept/--no-intercept",))
    calibrate: bool = option(True, "Adjust the weights of the chosen rows to match sums over all rows.")
    certify: bool = option(True, "Prove a bound on how far the loss is above the best possible.")
    tolerance: float = option(TOLERANCE, "Stop when the loss is within this share of the best possible.")

    def __post_init__(self) -> None:
        from .._validation import check_choice, check_number, check_positive, parse_budget

        super().__post_init__()
        check_choice(self.model, "model", LINEAR_LOSSES)
        check_number(self.alpha, "alpha", at_least=0.0, at_most=1e100)
        check_number(self.tolerance, "tolerance", at_least=0.0)
        if (self.model == "huber") != (self.threshold is not None):
            raise InvalidInputError(f"threshold = {self.threshold!r}: model='huber' needs one, other models have none.")
        if self.threshold is not None:
            check_positive(self.threshold, "threshold")
        if self.certify and self.alpha == 0.0 and self.model != "squared":
            text = f"alpha = 0 cannot be certified for model={self.model!r}"
            raise InvalidInputError(f"{text}: take a small penalty, model='squared', or certify=False.")
        parse_budget(self.budget, 2**53)  # the number of rows is not known yet


def plan_fit(rows: Rows, options: FitOptions) -> Plan[FitOptions]:
    """What a fit will do, before it is done."""
    from .._validation import parse_budget

    budget, width = parse_budget(options.budget, rows.n), rows.d + 1
    is_done = {"calibration": options.calibrate, "certificate": options.certify}
    passes = [name for name, count in _TYPICAL_PASSES.items() if is_done.get(name, True) for _ in range(count)]
    aim = f"Choosing {budget:,} rows and fitting them: {options.model} loss, alpha {options.alpha:g}."
    kept = 4.0 * budget * (8.0 * width + 60.0)  # candidates and copies of the rows chosen
    # a Gram matrix in the passes for leverage and certificate; a few products with vectors in the others
    work = 2.0 * rows.n * width * (width * (1 + passes.count("certificate")) + 10.0 * len(passes))
    return priced(rows, options, budget, aim, passes, kept=kept, work=work, loaded=0.0)
