"""One thread for BLAS while tasks run on all cores of this process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside: list[Any] = []


@functools.cache
def _controller() -> Any:
    # Finding the libraries takes milliseconds; those that count are loaded by now.
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS in this process to one thread: tasks that each start several get in their way.

    For tasks of other processes it does nothing. It may be entered by several threads: the
    first one sets the limit and the last one to leave lifts it.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_blas_thread():
    ...     {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
    {1}
    """
    with _lock:
        limit = None if _inside else _controller().limit(limits=1, user_api="blas")
        _inside.append(limit)
    try:
        yield
    finally:
        with _lock:
            # What lifts the limit stays in front until nobody is left.
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
            _inside.pop()
