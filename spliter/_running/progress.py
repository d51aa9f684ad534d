"""``as_completed`` and ``progress``: wait for the futures of any engine as they finish.

For programs that run on several engines; an engine's own tools (Dask's ``as_completed`` and
``progress``) accept the same futures.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import queue
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from spliter._errors import PackageMissingError, TaskTimeoutError
from spliter._running.futures import executor_of, list_futures
from spliter._running.results import check_may_wait
from spliter.backend.executor import Executor

POLL_INTERVAL: Final = 1.0
"""Seconds without a callback after which futures are polled: a closed client runs no callbacks."""


def as_completed(futures: Iterable[Any], timeout: float | None = None) -> Iterator[Any]:
    """Yield futures as they finish, with a result or an error.

    Parameters
    ----------
    futures : iterable of future
        Futures returned by :func:`task`, :meth:`Partition.submit` or :meth:`Split.map`.
    timeout : float, optional
        Seconds for all of them together; no limit by default. Ignored by engines whose futures
        have no callbacks (COMPSs).

    Yields
    ------
    future
        Each future once; on engines without callbacks (COMPSs) in the given order.

    Raises
    ------
    TaskTimeoutError
        If some have not finished within `timeout`.
    InvalidArgumentError
        If one is not a future of a known engine, or this is the engine's event loop, which
        must not wait.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import as_completed, split
    >>> parts = split([np.ones(3), np.ones(2)], partitions_per_location=2)
    >>> futures = parts.map(lambda part: sum(len(block) for block in part))
    >>> sorted(future.result() for future in as_completed(futures))
    [2, 3]
    """
    return _as_completed(list_futures(futures, "as_completed"), timeout, "as_completed")


def _as_completed(pending: list[Any], timeout: float | None, caller: str) -> Iterator[Any]:
    if not pending:
        return iter(())
    executor = executor_of(pending, caller)
    check_may_wait(executor)
    if all(hasattr(future, "add_done_callback") for future in pending):
        return _by_callbacks(pending, timeout)
    return _one_by_one(pending, executor)


def _by_callbacks(futures: Sequence[Any], timeout: float | None) -> Iterator[Any]:
    completed = queue.SimpleQueue[int]()
    for at, future in enumerate(futures):
        future.add_done_callback(lambda _, at=at: completed.put(at))
    left = set(range(len(futures)))
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    while left:
        rest = deadline - time.monotonic()
        try:
            finished = [completed.get(timeout=max(min(rest, POLL_INTERVAL), 0))]
        except queue.Empty:
            # A closed client runs no callbacks.
            finished = [at for at in left if futures[at].done()]
            if not finished and rest <= 0:
                raise TaskTimeoutError(
                    f"{len(left)} of {len(futures)} tasks have not finished within {timeout:g} s; "
                    "they continue to run: wait again, or cancel them"
                ) from None
        for at in finished:
            if at in left:
                left.remove(at)
                yield futures[at]


def _one_by_one(futures: Sequence[Any], executor: Executor) -> Iterator[Any]:
    for future in futures:
        with contextlib.suppress(Exception):  # an error stays in the future for its user
            executor.gather([future])
        yield future


def progress(
    futures: Iterable[Any], /, *, timeout: float | None = None, **options: Any
) -> list[Any]:
    """Wait for tasks and show a progress bar, on a terminal or in a notebook.

    The bar is tqdm's (``pip install 'pyspliter[progress]'``): a widget in a notebook with
    ipywidgets, text elsewhere.

    Parameters
    ----------
    futures : iterable of future
        Futures returned by :func:`task`, :meth:`Partition.submit` or :meth:`Split.map`.
    timeout : float, optional
        Seconds for all of them together; no limit by default.
    **options
        Options of tqdm: ``desc="pass 3"``, ``disable=True``, ``file=...``

    Returns
    -------
    list of future
        All futures, in the given order, finished. Errors of tasks stay in their futures.

    Raises
    ------
    PackageMissingError
        If tqdm is not installed.
    TaskTimeoutError, InvalidArgumentError
        As :func:`as_completed`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import gather, progress, split
    >>> parts = split([np.ones(3), np.ones(2)], partitions_per_location=2)
    >>> gather(progress(parts.map(len), desc="lengths", disable=True))
    [1, 1]
    """
    bar = _bar()
    pending = list_futures(futures, "progress")
    # With a fixed width, a narrow notebook leaves no room for the bar next to its text.
    usual = {"total": len(pending), "unit": "task", "dynamic_ncols": True}
    finished = _as_completed(pending, timeout, "progress")
    with bar(**usual | options) as shown:
        for _ in finished:
            shown.update()
    return pending


def _bar() -> Any:
    """Return tqdm's bar class: a widget where the notebook supports it, else text."""
    # find_spec, not try/except: a chained import traceback would bury the message.
    if importlib.util.find_spec("tqdm") is None:
        raise PackageMissingError(
            "a progress bar needs tqdm, which is not installed; pip install 'pyspliter[progress]', "
            "or count the futures from spliter.as_completed"
        )
    with warnings.catch_warnings():
        # tqdm's warning in notebooks without ipywidgets, where the text bar works as well.
        warnings.filterwarnings("ignore", "IProgress not found")
        return importlib.import_module("tqdm.auto").tqdm
