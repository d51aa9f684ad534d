"""Futures in the order in which they finish, for every engine; and a bar that shows how many have.

An engine's own tools (Dask's ``as_completed`` and ``progress``) take the futures too. These here
are for programs that run on any engine.
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
from spliter._futures import executor_of, list_futures
from spliter._task import check_may_wait
from spliter.backend.protocols import Executor

LOOK_INTERVAL: Final = 1.0
"""Seconds without news after which futures are asked whether they are done."""


def as_completed(futures: Iterable[Any], timeout: float | None = None) -> Iterator[Any]:
    """Yield futures as they finish, with a result or with an error.

    Parameters
    ----------
    futures : iterable of future
        What :func:`task`, :meth:`Partition.submit` or :meth:`Split.map` returned.
    timeout : float, optional
        Seconds for all of them; by default as long as it takes. (Engines whose futures cannot be
        waited for with a limit, as COMPSs', do not know it.)

    Yields
    ------
    future
        Each once. COMPSs does not tell what has finished: there they come in the given order.

    Raises
    ------
    TaskTimeoutError
        If some have not finished by then.
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
        return _as_they_tell(pending, timeout)
    return _one_by_one(pending, executor)


def _as_they_tell(futures: Sequence[Any], timeout: float | None) -> Iterator[Any]:
    told = queue.SimpleQueue[int]()
    for at, future in enumerate(futures):
        future.add_done_callback(lambda _, at=at: told.put(at))
    left = set(range(len(futures)))
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    while left:
        rest = deadline - time.monotonic()
        try:
            finished = [told.get(timeout=max(min(rest, LOOK_INTERVAL), 0))]
        except queue.Empty:
            # A client that was closed calls nobody back.
            finished = [at for at in left if futures[at].done()]
            if not finished and rest <= 0:
                raise TaskTimeoutError(
                    f"{len(left)} of {len(futures)} tasks have not finished within {timeout:g} s; "
                    "they go on: wait again, or cancel them"
                ) from None
        for at in finished:
            if at in left:
                left.remove(at)
                yield futures[at]


def _one_by_one(futures: Sequence[Any], executor: Executor) -> Iterator[Any]:
    for future in futures:
        with contextlib.suppress(Exception):  # whoever asks the future for its result gets it
            executor.gather([future])
        yield future


def progress(
    futures: Iterable[Any], /, *, timeout: float | None = None, **options: Any
) -> list[Any]:
    """Wait for tasks and show a bar meanwhile, on a terminal or in a notebook.

    The bar is that of tqdm (``pip install 'pyspliter[progress]'``): a widget in a notebook that has
    ipywidgets, text elsewhere.

    Parameters
    ----------
    futures : iterable of future
        What :func:`task`, :meth:`Partition.submit` or :meth:`Split.map` returned.
    timeout : float, optional
        Seconds for all of them; by default as long as it takes.
    **options
        Of tqdm: ``desc="pass 3"``, ``disable=True``, ``file=...``

    Returns
    -------
    list of future
        All of them, in the given order, finished. Errors of tasks stay in their futures.

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
    # In a narrow notebook a bar of fixed width would be left no room at all beside its words.
    usual = {"total": len(pending), "unit": "task", "dynamic_ncols": True}
    finished = _as_completed(pending, timeout, "progress")
    with bar(**usual | options) as shown:
        for _ in finished:
            shown.update()
    return pending


def _bar() -> Any:
    """Return tqdm's bar for where this is: a widget if there can be one, else text."""
    # Not try and except: the traceback of a failed import is longer than what it has to say.
    if importlib.util.find_spec("tqdm") is None:
        raise PackageMissingError(
            "a progress bar needs tqdm, which is not installed: pip install 'pyspliter[progress]'; "
            "without it, count what spliter.as_completed yields"
        )
    with warnings.catch_warnings():
        # Said of a notebook without ipywidgets, where a bar of text does as well.
        warnings.filterwarnings("ignore", "IProgress not found")
        return importlib.import_module("tqdm.auto").tqdm
