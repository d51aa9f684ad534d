"""Plain arrays, matrices, sparse arrays and frames that meet lazy values in the body."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from spliter.pipeline import Rows, lazy, mut, options, pipeline, splittable
from tests.pipeline.test_user_programs import check

MATRIX = np.matrix([[1.0, 2.0], [0.0, 1.0]])


def filled_anew(x: Any) -> Any:
    factors, found = np.zeros(8), []
    for at in range(3):
        factors[at] = at + 1
        found.append(np.where(factors > 1, x, x * factors))
    return found


def drawn_into(x: Any) -> Any:
    noise, found = np.empty(8), []
    rng = np.random.default_rng(0)
    for _ in range(3):
        rng.standard_normal(out=noise)
        found.append(x + noise)
    return found


@pipeline
def less_one(values: Any) -> Any:
    values -= 1
    return values


def changed_by_another_pipeline(x: Any) -> Any:
    values = np.arange(8.0)
    before = x + values
    less_one(values)
    return before, values


def view_of_what_is_to_change(x: Any) -> Any:
    whole = np.asarray(x)
    part = whole[:4]
    x *= 2
    return x[4:] + part, np.add(part, x[:4], out=part)


def series_changed(x: Any) -> Any:
    values, more = pd.Series(x * 1), pd.Series(np.arange(8.0))
    found = values + more, x + more
    more.iloc[0] = 55
    more += 1
    return found, more


def other_class(kind: Any) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        view = x.view(kind)
        before = x * 2
        view[...] = 7
        return before, x + 1

    return body


def multiplied_in_place(x: Any) -> Any:
    matrix = MATRIX.copy()
    matrix *= x[:4].reshape(2, 2)
    square = x[4:].reshape(2, 2)
    square @= matrix
    return np.asarray(matrix), square


def vector_in_place(x: Any) -> Any:
    x @= x


def caught(x: Any) -> Any:
    with np.errstate(invalid="raise"):
        try:
            root = float(np.sqrt(x - 4).max())
        except FloatingPointError:
            root = -1.0
    return root, x + 1


def of_objects(x: Any) -> Any:
    objects = x.astype("i8").astype(object)
    return type(objects.max()), objects.sum(), objects * 2


def multiplied(x: Any) -> Any:
    x = x[:4].reshape(2, 2)
    return [np.asarray(each) for each in (MATRIX * x, x * MATRIX, MATRIX + x, MATRIX @ x)]


def added_to_sparse(x: Any) -> Any:
    square = x[:4].reshape(2, 2)
    rows = scipy.sparse.csr_array(MATRIX)
    total = square * 1
    total += rows
    return rows + square, square - rows, rows @ square, rows.multiply(square).toarray(), total


@splittable(total=mut(Rows()), more=Rows(), returns=None)
def increase(total: Any, more: Any) -> None:
    total += more


multiply = splittable(lambda a, b: a * b, a=Rows(), b=Rows(), returns=Rows())


def given_to_annotated_functions(x: Any) -> Any:
    total, factors = np.zeros(8), np.ones(8)
    increase(total, x)
    found = total.sum(), total * 2
    product = multiply(x, factors)
    factors[:] = 0
    return found, product


def lists_that_grow(x: Any) -> Any:
    edges, found = [0.0], []
    for at in range(3):
        edges.append(at + 2.0)
        found += [np.digitize(x, edges), np.isin(x, edges)]
    return found


def compared_with_none(x: Any) -> Any:
    nothing: Any = None
    pending = x > 3
    np.equal(x, nothing, out=pending)
    flags = np.ones(8, bool)
    np.not_equal(x, nothing, out=flags[:8])
    np.equal(flags, nothing, out=flags)
    return pending, flags


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "filled anew": filled_anew,
    "drawn into": drawn_into,
    "changed by another pipeline": changed_by_another_pipeline,
    "view of what is to change": view_of_what_is_to_change,
    "series changed": series_changed,
    "records": other_class(np.recarray),
    "matrix": other_class(np.matrix),
    "matrices": multiplied,
    "matrix in place": multiplied_in_place,
    "vector in place": vector_in_place,
    "sparse": added_to_sparse,
    "caught": caught,
    "compared with None": compared_with_none,
    "given to annotated functions": given_to_annotated_functions,
    "lists that grow": lists_that_grow,
    "objects": of_objects,
    "repeated": lambda x: ([1, 2] * x.astype(int).max(), (x.astype(int)[1] + 1) * "ab"),
    "an axis twice": lambda x: np.roll(x, (1, 2), axis=(0, 0)),
    "an axis twice, summed": lambda x: x.sum(axis=(0, 0)),
    "integers as dtype": lambda x: (np.std(x, dtype="i4"), np.mean(x, dtype="i4")),
    "times": lambda x: x.astype("m8[s]").mean(dtype="f8"),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plain_program_does_the_same(name: str) -> None:
    check(PROGRAMS[name])


@pytest.mark.parametrize("rows", [1000, 100_000])
def test_an_array_may_change_after_the_call(rows: int) -> None:
    factors = np.ones(rows)

    def body(x: Any) -> Any:
        found = x * factors
        factors[0] += 5
        last = factors[::-1]
        return found, last, x + factors

    expected = body(np.ones(rows))
    factors[0] = 1
    with options(batch=rows // 3):
        found = pipeline(body)(np.ones(rows))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.flags.writeable


def test_a_small_array_is_copied_if_values_are_lazy_without_a_pipeline() -> None:
    factors = np.ones(8)
    found = lazy(np.arange(8.0)) * factors
    factors[:] = 0
    np.testing.assert_array_equal(found, np.arange(8.0))


def as_is(x: Any) -> Any:
    return x


VIEWS: dict[str, Callable[[Any], Any]] = {
    "real": lambda x: x.real,
    "squeeze": np.squeeze,
    "atleast_1d": np.atleast_1d,
    "real_if_close": np.real_if_close,
    "split": lambda x: np.split(x, 2)[0],
    "astype": lambda x: x.astype("f8", copy=False),
    "nan_to_num": lambda x: np.nan_to_num(x, copy=False),
    "slice": lambda x: x[:5],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("source", [as_is, lambda x: x + 1])
def test_arrays_that_share_memory_may_change_without_a_pipeline(name: str, source: Any) -> None:
    def body(x: Any) -> Any:
        y = source(x)
        before, view = y * 2, VIEWS[name](y)
        after = y * 3
        view[:2] = 7
        return np.asarray(before), np.asarray(after)

    for one, other in zip(body(lazy(np.arange(10.0))), body(np.arange(10.0)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("batch", ["auto", 3])
def test_copies_keep_the_order_in_memory(batch: Any) -> None:
    def body(x: Any) -> Any:
        first, second, third = x * 2, x * 2, x * 2
        first += 1
        second[second > 5] = 0
        third[:] = 1
        results = first, second, third, copy.copy(x), x * column
        for each in results:
            each.T.ravel()[1:3] = 7
        return results

    x = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    column = np.broadcast_to(np.arange(4.0)[:, None], (4, 3))
    expected = body(x.copy("K"))
    with options(batch=batch):
        found = pipeline(body)(x.copy("K"))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
        assert one.strides == other.strides
