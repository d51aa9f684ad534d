"""The error tree: one root, the bases that callers catch, and errors that travel."""

from __future__ import annotations

import inspect
import pickle

import pytest

import spliter
from spliter import BlockLostError, SplIterError, _errors

EVERY = [
    value
    for _, value in inspect.getmembers(_errors, inspect.isclass)
    if value.__module__ == _errors.__name__
]


@pytest.mark.parametrize("kind", EVERY)
def test_every_error_is_public_and_in_the_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, SplIterError)
    assert getattr(spliter, kind.__name__) is kind
    assert kind.__name__ in spliter.__all__


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (spliter.AlignmentError, ValueError),
        (spliter.BackendNotUsableError, RuntimeError),
        (spliter.BlockLostError, RuntimeError),
        (spliter.BlockTimeoutError, TimeoutError),
        (spliter.InvalidArgumentError, ValueError),
        (spliter.LazyCollectionError, spliter.UnsupportedCollectionError),
        (spliter.TaskNotSerializableError, TypeError),
        (spliter.UnsupportedCollectionError, TypeError),
    ],
)
def test_errors_can_be_caught_as_what_python_calls_them(
    kind: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(kind, base)


@pytest.mark.parametrize("kind", EVERY)
def test_errors_raised_in_a_task_reach_the_caller(kind: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(kind("what was wrong")))
    assert type(again) is kind
    assert str(again) == "what was wrong"


def test_lost_blocks_are_named() -> None:
    error = BlockLostError("two are gone", ((0, 1), (2, 3)))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "two are gone"
    assert again.blocks == ((0, 1), (2, 3))
    assert BlockLostError("unknown which").blocks == ()
