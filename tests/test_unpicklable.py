"""Which value is named when a task cannot be pickled."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from spliter import Partition, TaskNotSerializableError, split, task
from spliter_backends._shared.unpicklable import not_serializable

LOCK = threading.Lock()
PARTS = split([np.ones(3)])


class Model:
    """Holds a lock, among other things."""

    def __init__(self) -> None:
        self.settings = {"depth": 3, "lock": LOCK}

    def score(self, partition: Partition) -> int:
        return len(partition)


class Odd:
    """Cannot be pickled, for a reason of its own."""

    def __reduce__(self) -> str:
        raise RuntimeError("no way\nat all")


def by_value(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is pickled with what it uses, as those of a main program are."""
    fn.__module__ = "__main__"
    return fn


def closing_over(value: object) -> Callable[..., Any]:
    @task
    def uses(partition: Partition) -> object:
        return value

    return uses


@task
@by_value
def in_a_nested_function(partition: Partition) -> list[int]:
    return sorted([1, 2], key=lambda number: -number * len(PARTS))


@by_value
def with_default(partition: Partition, model: object = Model()) -> object:
    return model


def count_up() -> Iterator[int]:
    yield 1


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (closing_over(PARTS), (), {}, r"^uses .*: value is a spliter._split.Split, .*Pass the values"),
    (in_a_nested_function, (), {}, r"^in_a_nested_function .*: PARTS is a spliter._split.Split"),
    (with_default, (), {}, r": model is a .*Model, "),
    (closing_over(Odd()), (), {}, r"value is a .*Odd, which cannot be pickled \(no way\)\. "),
    (Model().score, (), {}, r": self.settings\['lock'\] is a _thread.lock, .*inside the task"),
    (functools.partial(divmod, LOCK), (), {}, r"^divmod .*argument 1 of the partial is a _thread"),
    (divmod, (1, PARTS), {}, r": argument 2 is a spliter._split.Split"),
    (divmod, (), {"key": [0, LOCK]}, r": argument 'key'\[1\] is a _thread.lock"),
    (divmod, (count_up(),), {}, r": argument 1 is a generator"),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "says"), CASES)
def test_the_innermost_value_is_named(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=r"pickle|Split stays|no way") as raised:
        cloudpickle.dumps((fn, args, kwargs))
    found = not_serializable(fn, args, kwargs, raised.value, cloudpickle.dumps)
    with pytest.raises(TaskNotSerializableError, match=says):
        raise found


def test_without_a_culprit_the_reason_is_given() -> None:
    error = not_serializable(len, (), {}, ValueError("too large"), cloudpickle.dumps, "a node")
    assert str(error).startswith("len cannot be sent to a node: it or one of its arguments")
    assert "(too large)" in str(error)
