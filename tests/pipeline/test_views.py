"""Changes through views, of views, and of what NumPy's functions return: seen as in NumPy."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.pipeline.test_user_programs import check


def flipped(x: Any) -> None:
    backwards = np.flip(x)
    backwards += np.arange(len(x))


def changed_between(x: Any) -> Any:
    sums = np.cumsum(x)
    before = sums + x
    sums += 100
    between = x * sums
    sums[0] = -1
    after = np.add(sums, x, out=sums)
    after -= sums[::-1]
    return before, between, sums, after, sums - x


def of_a_dropped_array(x: Any) -> Any:
    chosen = x.reshape(4, 2)[x[::2] > 1]
    one, both, turned = chosen[:, 0], chosen[:, :], chosen[:, None, 1]
    del chosen
    both += 10
    turned *= 2
    return one, both, turned


def mean_of_no_times(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as NumPy, of an empty slice
        return str(x.astype("m8[h]")[x > 99].mean())


def reshaped(x: Any) -> Any:
    first, last = x * 2, x
    first.shape = (2, -1)
    first += [[1], [2]]
    last.shape = (4, 2)
    other = (x + 1).astype("i8")
    other.dtype = np.dtype("u4")
    return first, first.sum(axis=0), last * 2, other, other.shape


def chosen(x: Any) -> Any:
    table = x.reshape(4, 2)
    return table[table[:, 0] > 1]


def views_of_chosen(x: Any) -> Any:
    one, other, third = chosen(x), chosen(x), chosen(x)
    first, second = one[:, 0], other[:, 1]
    first += 1
    other += 1
    third[:, ::-1][:, :1][...] = 5
    np.multiply(third[:, 0], 3, out=third[:, 0])
    return one, first, other, second, third, third[:, 1]


def views_of_views(x: Any) -> Any:
    backwards = chosen(x)[:, ::-1]
    last = backwards[:, :1]
    last -= 7
    rows = chosen(x)
    right = rows[:, 1:]
    column = right[:, 0]
    total = float(column.sum())
    column += 1
    rows[rows[:, 1] > 4] = 0
    right **= 2
    np.asarray(rows[:, 0])[...] += 10
    return backwards, last, rows, right, column, total, chosen(x)[:, None] - 1


def halves(x: Any) -> Any:
    first, last = np.split(x, 2)
    x *= 10
    before = last + 1
    x[...] = 2
    last[...] = 1.5
    return before, first, np.array_split(x, 3)


def found_positions(x: Any) -> Any:
    values, positions = np.unique(x // 2, return_inverse=True)
    before = x + positions
    positions += 1
    (rows,) = np.nonzero(x > 3)
    between = rows * 2
    rows += 100
    return values, before, positions, between, rows


def iterated(x: Any) -> Any:
    elements = x.flat
    x += 1
    first = next(elements)
    view = memoryview(x.__array__())
    x *= 2
    return first, view.tolist()


def of_sums(x: Any) -> Any:
    sums = np.cumsum(x)
    table, columns, copy = sums.reshape(-1, 2), sums.reshape(2, -1).T, np.asarray(sums)
    before = x.reshape(-1, 2) * table
    table -= 1
    columns += 10
    after = copy + 0
    np.copyto(sums, 9, where=x > 3)
    return before, after, sums, columns, copy


def described_anew(x: Any) -> Any:
    one, third = np.cumsum(x), np.cumsum(x)
    other: Any = np.cumsum(x)
    one.shape = (2, -1)
    other.dtype = np.dtype("i8")
    third.real = 2
    return one, one + 1, other, third, third * x


def without_axes(x: Any) -> Any:
    first = x[..., 0]
    first += 1
    second = x.reshape(2, 4)[1, 1, ...]
    second[...] = 7
    return first, second, x[:3] * 2


def of_one_element(x: Any) -> Any:
    first, third = x[..., 0], np.squeeze(x[2:3])
    x -= first
    before = x + 3
    third += 1
    after = x * third
    x[..., 1] = 5
    x[..., 4] += first
    np.multiply(x, x[..., 1], out=x)
    return before, after


def of_objects(x: Any) -> Any:
    other = x * 2
    other[:] = np.arange(8).astype(object)
    x[:] = list("12345678")
    small = x.astype("u1")
    with contextlib.suppress(OverflowError):
        small[:4] = [300] * 4
    return other, small


def of_integers(x: Any) -> Any:
    small = x.astype("u1")
    with contextlib.suppress(OverflowError):
        small = small + 300
    with contextlib.suppress(OverflowError):
        small -= -1
    return small, small < 300, small.astype("i2") * 1000


def extremes_of_chosen(x: Any) -> Any:
    table = x.reshape(4, 2)
    found = (x + 5)[x > 5].min(), np.maximum.reduce(x[x > 6]), table[table[:, 0] > 5].max(axis=0)
    x *= 2
    return found


def of_one_row(x: Any) -> None:
    rows = (x * 2)[np.newaxis]
    x[...] = rows
    x[1:] = rows[:, :-1]
    x[:2] = np.atleast_2d(x[x > 11])


def of_like_shapes(x: Any) -> Any:
    found = [each(x.sum()) for each in (np.zeros_like, np.ones_like, np.copy)]
    found.append(np.isin(x.sum(), x).astype(float))
    for array in found:
        array += 2  # noqa: PLW2901 -- arrays without axes change
    return found, np.full_like(x, x[np.newaxis]), np.full_like(x, x[:1]), np.ones_like(x) + x


def of_a_read_only_view(x: Any) -> Any:
    before = np.broadcast_to(x, x.shape) * 2
    x[:] *= 2
    return before


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "view by flip": flipped,
    "leading ones": lambda x: x.__setitem__(..., np.ones((1, 8))),
    "leading ones, later": lambda x: (y := x * 3, y.__setitem__(..., np.ones((1, 1, 8)))),
    "changed between": changed_between,
    "views of chosen rows": views_of_chosen,
    "views of views": views_of_views,
    "flat": lambda x: setattr(x, "flat", 3),
    "real parts": lambda x: setattr(x.reshape(2, 4), "real", 3),
    "of a dropped array": of_a_dropped_array,
    "reshaped in place": reshaped,
    "halves": halves,
    "positions": found_positions,
    "iterator": iterated,
    "results of unknown shape": of_sums,
    "described anew": described_anew,
    "without axes": without_axes,
    "of one row": of_one_row,
    "of one element": of_one_element,
    "of objects": of_objects,
    "extremes of chosen": extremes_of_chosen,
    "extreme of none": lambda x: x[x > 99].min(),
    "mean of no times": mean_of_no_times,
    "extremes of none": lambda x: x.reshape(4, 2)[x[::2] > 99].max(axis=0),
    "of integers": of_integers,
    "one output of two": lambda x: np.frexp(x / 2, np.empty(8)),
    "unknown length, array as out": lambda x: np.subtract(x[x > 4], 1.5, out=np.empty(3)),
    "other output of two": lambda x: np.divmod(x, 3, np.empty(8)),
    "a list of bounds": lambda x: (np.clip(x, [[5]], None), np.clip(x, a_min=[4] * 8, a_max=6)),
    "a list of choices": lambda x: np.where(x > 3, [1] * 8, x),
    "integer and dtype": lambda x: np.add(x.astype("u1"), 300, dtype="f8"),
    "text": lambda x: (x * 1).__setitem__(slice(None), "abc"),
    "number as text": lambda x: x.__setitem__(slice(None), "5"),
    "of like shapes": of_like_shapes,
    "of a read-only view": of_a_read_only_view,
    "read-only": lambda x: (x.setflags(write=False), x.__setitem__(..., x)),
    "too long": lambda x: x.reshape(2, 4).__setitem__(..., x.reshape(4, 2)),
    "too long, chosen": lambda x: x.__setitem__(slice(2), x[x > 3]),
    "of two lengths": lambda x: x[x > 3] + x[x > 5],
    "written, chosen": lambda x: np.add(x[x > 9], 1, out=x[:0], where=x[x > 9] > 3),
    "no attribute": lambda x: x.no_attribute,
    "no attribute of sums": lambda x: np.cumsum(x).no_attribute,  # type: ignore[attr-defined]
    "where": lambda x: np.where(x > 1, x, x[:3]),
}


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # since NumPy 2.5
@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_are_those_of_the_plain_program(name: str) -> None:
    check(PROGRAMS[name])
