"""What shares memory in NumPy, and other ways to change arrays: right or refused, never silent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError
from spliter.pipeline import pipeline
from tests.pipeline.checks import attempt, same

pytestmark = pytest.mark.usefixtures("small_batches")

TABLE = np.arange(24.0).reshape(8, 3)


def in_a_view(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed_after(x: Any) -> Any:
        y = x * 2
        part = view(y)
        y += 1
        return np.asarray(part), y

    return changed_after


def through_a_view(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed_through(x: Any) -> Any:
        y = x * 2
        part = view(y)
        part += 1
        return y, np.asarray(part)

    return changed_through


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "swapped": lambda x: np.swapaxes(x, 0, 1),
    "moved": lambda x: np.moveaxis(x, 0, 1),
    "reshaped": lambda x: x.reshape(3, 8),
    "flat": lambda x: x.ravel(),
    "flattened": lambda x: x.flatten(),
    "new axis": lambda x: x[:, None],
    "column": lambda x: x[:, 1],
    "row": lambda x: x[2],
    "backwards": lambda x: x[::-1],
    "flipped": np.flip,
    "squeezed": np.squeeze,
    "expanded": lambda x: np.expand_dims(x, 1),
    "real": lambda x: x.real,
    "plain": np.asarray,
    "any": np.asanyarray,
    "viewed": lambda x: x.view(),
    "integers": lambda x: x.view("i8"),
    "diagonal": lambda x: x[:3].diagonal(),
    "split": lambda x: np.split(x, 2)[0],
    "same dtype": lambda x: x.astype("f8", copy=False),
    "no copy": lambda x: np.array(x, copy=False) if np.__version__ < "2" else np.asarray(x),
    "numbers": lambda x: np.nan_to_num(x, copy=False),
    "filter": lambda x: x[x[:, 0] > 3],
    "chosen": lambda x: x[[0, 2]],
    "copy": lambda x: x.copy(),
    "rolled": lambda x: np.roll(x, 1),
    "where": lambda x: np.where(x > 3, x, 0),
    "two axes": np.atleast_2d,
    "iterated": lambda x: next(iter(x)),
    "broadcast": lambda x: np.broadcast_to(x, (2, 8, 3)),
    "strided": lambda x: np.lib.stride_tricks.as_strided(x, (2, 3)),
    "memory": lambda x: np.frombuffer(np.asarray(x).data),  # type: ignore[arg-type, unused-ignore]
}


@pytest.mark.parametrize("make", [in_a_view, through_a_view])
@pytest.mark.parametrize("name", VIEWS)
def test_what_shares_memory_is_right_or_refused(make: Any, name: str) -> None:
    """In NumPy some of these share memory, and a change of one is seen in the other."""
    body = make(VIEWS[name])
    try:
        expected = body(TABLE)
    except ValueError:
        expected = None  # diagonals are read-only in NumPy, too
    found = attempt(pipeline(body), TABLE)
    if isinstance(found, Exception):
        assert re.search(r"test_shared_memory\.py:|read-only", str(found)), found
    else:
        assert expected is not None
        same(found, expected)


METHODS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(axis=0),
    "fill": lambda x: x.fill(0.0),
    "partition": lambda x: x.partition(1, axis=0),
    "put": lambda x: x.put([0], [5.0]),
    "resize": lambda x: x.resize((4, 6), refcheck=False),
    "byteswap": lambda x: x.byteswap(inplace=True),
    "shape": lambda x: setattr(x, "shape", (24,)),
    "dtype": lambda x: setattr(x, "dtype", "i8"),
    "flat": lambda x: x.flat.__setitem__(0, 5.0),
    "at": lambda x: np.add.at(x, [0], 5.0),
    "copyto": lambda x: np.copyto(x, 1.0),
    "putmask": lambda x: np.putmask(x, x > 2, 0.0),
    "place": lambda x: np.place(x, x > 2, [0.0]),
    "diagonal": lambda x: np.fill_diagonal(x, 0.0),
    "along axis": lambda x: np.put_along_axis(x, np.zeros((1, 3), int), 9.0, 0),
    "shuffle": lambda x: np.random.default_rng(0).shuffle(x),
    "draw": lambda x: np.random.default_rng(0).random(out=x),
    "matmul": lambda x: x.__imatmul__(np.eye(3)),
    "out by position": lambda x: np.negative(x, x),
    "memory": lambda x: memoryview(x).cast("B").__setitem__(7, 1),
    "deleted": lambda x: x.__delitem__(0),
    "plain item": lambda x: np.asarray(x).__setitem__(0, 7.0),
    "plain items": lambda x: np.asarray(x).__iadd__(1),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:you are shuffling:UserWarning")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("source", ["argument", "value"])
def test_other_ways_to_change_are_right_or_refused(name: str, source: str) -> None:
    def body(x: Any) -> Any:
        y = x if source == "argument" else x * 2
        before = y + 1
        METHODS[name](y)
        return np.asarray(before), np.asarray(y + 0)

    try:
        expected = body(TABLE.copy())
    except Exception:  # noqa: BLE001 -- NumPy refuses it as well
        expected = None
    given = TABLE.copy()
    try:
        found = pipeline(body)(given)
    except (InvalidArgumentError, TypeError, ValueError, AttributeError, BufferError):
        np.testing.assert_array_equal(given, TABLE)
    else:
        assert expected is not None
        same(found, expected)
