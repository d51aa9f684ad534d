"""Options of pipelines: threads and batch size."""

from __future__ import annotations

import contextlib
import contextvars
import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, SupportsIndex, TypeAlias

from spliter._errors import InvalidArgumentError
from spliter._machine.cache import cache_nbytes

MAX_PLAIN_ROWS: Final = 2**19
"""Rows of a frame from which on batches pay: to capture, plan and run a call of pandas on pieces
takes half a millisecond more. With 270, 530 and 1,100 thousand rows, on 2 cores, pandas took 0.4,
0.6 and 0.9 times as long as pipelines of ten programs."""


def plain_nbytes() -> int:
    """Return the most bytes of a value that stays in the cache from call to call."""
    return cache_nbytes() // 4


Count: TypeAlias = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Options:
    """What :func:`options` sets for the calls of its ``with`` block."""

    threads: Count = "auto"
    batch: Count = "auto"

    @property
    def thread_count(self) -> int:
        """Threads that run batches."""
        if self.threads != "auto":
            return self.threads
        has_affinity = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1

    def runs_plain(self, share: float) -> bool:
        """Return whether calls run at once, not in batches."""
        return self.batch == "auto" and share <= 1


CURRENT: Final = contextvars.ContextVar("spliter_pipeline_options", default=Options())  # noqa: B039 -- it is frozen
"""The options of this thread or asynchronous task."""


@contextlib.contextmanager
def options(*, threads: Count | None = None, batch: Count | None = None) -> Iterator[None]:
    """Set options of what is evaluated in the ``with`` block, by this thread or asynchronous task.

    Parameters
    ----------
    threads : int or "auto", optional
        Threads that run batches. ``"auto"`` uses every CPU that this process may use, for frames
        at most four; in tasks of a Split, one.
    batch : int or "auto", optional
        Items (rows) of a batch. ``"auto"`` chooses as many as fit the level-2 cache, and runs
        the plain calls if all values are small.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import options, pipeline
    >>> with options(threads=1, batch=2):
    ...     pipeline(lambda x: 2 * x + 1)(np.arange(5))
    array([1, 3, 5, 7, 9])
    """
    now = CURRENT.get()
    token = CURRENT.set(
        Options(
            now.threads if threads is None else _checked("threads", threads),
            now.batch if batch is None else _checked("batch", batch),
        )
    )
    try:
        yield
    finally:
        CURRENT.reset(token)


def _checked(name: str, value: Count) -> Count:
    is_number = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if value != "auto" and not (is_number and operator.index(value) >= 1):
        raise InvalidArgumentError(
            f'{name} is {value!r}, which is neither "auto" nor at least 1; pass {name}="auto" or a '
            "positive int"
        )
    return value if value == "auto" else operator.index(value)
