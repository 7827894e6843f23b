"""What threads of one process share: the number of BLAS threads, and locks around code that sets global state."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

from threadpoolctl import ThreadpoolController  # comes with scikit-learn

SCIKIT_LEARN = RLock()
"""Held while scikit-learn validates or clusters: it exchanges the warning filters of the process meanwhile."""

RANDOM_STATES = RLock()
"""Held while PyTorch's global generators have another state, which is then restored."""


class _OneBlasThread:
    """Limits BLAS to one thread until the last of those who asked for it is done; then restores the number."""

    def __init__(self) -> None:
        self._lock, self._users, self._limit = RLock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit = _controller().select(user_api="blas").limit(limits=1)
            self._users += 1

    def __exit__(self, *about: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._limit is not None:
                self._limit.restore_original_limits()


ONE_BLAS_THREAD = _OneBlasThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread: sums depend on their number in the last digits. OpenMP counts each thread's own."""
    with _controller().select(user_api="openmp").limit(limits=1), ONE_BLAS_THREAD:
        yield


def _controller() -> Any:
    return _found("sklearn.cluster" in sys.modules, "torch" in sys.modules)  # they bring libraries of their own


@cache
def _found(*loaded: bool) -> ThreadpoolController:
    return ThreadpoolController()
