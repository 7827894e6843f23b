"""Settings of the whole suite."""

import os

# Before NumPy is imported: one thread per process, so that times and sums do not depend on the machine's cores.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, so that a red run can be repeated; HYPOTHESIS_PROFILE=explore looks for new ones.
# No deadline: a shared machine may stop for longer than any sensible one.
settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def _logger_as_it_was() -> Iterator[None]:
    """The command line configures the package's logger; the next test finds it as it was."""
    logger = logging.getLogger("coresift")
    before = (logger.level, list(logger.handlers), logger.propagate)
    yield
    logger.setLevel(before[0])
    logger.handlers, logger.propagate = before[1], before[2]
