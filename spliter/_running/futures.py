"""Check the futures that users pass to ``gather``, ``reduce``, ``as_completed``, ``progress``."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter.backend.executor import Executor
from spliter.backend.registry import executor_of_future


def list_futures(futures: Iterable[Any], caller: str) -> list[Any]:
    """Return the futures as a list; `caller` is the public function. Users often pass a single one.

    Examples
    --------
    >>> list_futures(iter("ab"), "gather")
    ['a', 'b']
    """
    try:
        iterator = iter(futures)
    except TypeError:
        raise InvalidArgumentError(
            f"{caller}() takes a list of futures, got {reprlib.repr(futures)}; put one future into "
            "a list, or wait for it with its own result()"
        ) from None
    return list(iterator)  # outside of the try: a generator's own TypeError is the user's


def executor_of(futures: Sequence[Any], caller: str) -> Executor:
    """Return the executor of the one engine that made the futures; refuse others.

    Only one future of each type is checked.
    """
    one_of_each_type = {type(future): future for future in reversed(futures)}
    executors = [_executor_of_one(future, caller) for future in one_of_each_type.values()]
    if len(engines := {type(executor).__name__ for executor in executors}) > 1:
        raise InvalidArgumentError(
            f"{caller}() got futures of different engines ({', '.join(sorted(engines))}); call it "
            "once per engine"
        )
    return executors[-1]


def _executor_of_one(future: Any, caller: str) -> Executor:
    if isinstance(future, Partition):
        raise InvalidArgumentError(
            f"{caller}() takes futures, got {future!r}; start a task on each partition first: "
            f"{caller}({'fn, ' if caller == 'reduce' else ''}parts.map(task))"
        )
    try:
        return executor_of_future(future)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{caller}() got {reprlib.repr(future)}: {error}") from None
