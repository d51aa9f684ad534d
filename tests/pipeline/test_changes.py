"""Changes in place: what a value stands for is replaced, or it is said what to write instead."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import Rows, lazy, mut, options, pipeline, splittable
from tests.pipeline.checks import check, line_of, same

pytestmark = pytest.mark.usefixtures("small_batches")

X = np.arange(1.0, 25)
TABLE = np.arange(24.0).reshape(8, 3)


CHANGES = [
    "y = x * 2; other, held = y, [y]; before = y + 0; y += 1; y *= other; "
    "return y, other, held[0], before, y is other",
    "y = x * 2; centre(y); return y",
    "y = x * 0; step = x * 3; for n in range(30): y += step * n; return y",
    "y = x.astype('f4'); y += x; z = x.astype('i4'); z += 3; z <<= 1; "
    "return y, z, y.dtype, z.dtype",
    "few = x[x > 5]; few *= 3; few -= x[x > 5]; return few, few.sum()",
    "y = x[:, None] * np.ones(3); y += x[:, None]; y -= np.arange(3.0); y /= y.max(axis=0); "
    "return y",
    "y = x + 1; total = float(y.sum()); y += total; return y, float(y.sum())",
    "total = x.sum(); total += 1; largest = x.max(); largest *= 2; "
    "return total, largest, x - total",
    "by = np.ones(24); y = x * by; by[3] = 9.0; by += 1; return y, x * by",
    "x = x + 1; x += 1; return x",
]


def centre(value: Any) -> None:
    value -= value.mean()


@splittable(a=mut(Rows()), returns=None)
def increase(a: Any) -> None:
    a += 1


def body_of(statements: str) -> Callable[..., Any]:
    """Return a function of x with these statements, the first of which is at line 2."""
    names: dict[str, Any] = {"np": np, "centre": centre, "increase": increase}
    lines = ["def body(x):", *statements.split("; ")]
    exec(compile("\n    ".join(lines), "/body.py", "exec"), names)
    body: Callable[..., Any] = names["body"]
    return body


@pytest.mark.parametrize("statements", CHANGES)
@pytest.mark.parametrize("batch", [7, 100])
def test_values_that_the_body_made_change_as_in_numpy(statements: str, batch: int) -> None:
    check(body_of(statements), X, batch=batch, rtol=1e-12)


IN_PLACE = [
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
    *("iand", "ior", "ixor", "ilshift", "irshift"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i2", "?"])
def test_operators_cast_as_numpy_or_raise_its_error(name: str, dtype: str) -> None:
    change = getattr(operator, name)

    def body(x: Any, by: Any) -> Any:
        y = other = x.astype(dtype)
        y = change(y, by)
        return y, other

    for by in (2, 1.5, True, X.astype("i4"), X, (X > 3)):
        try:
            expected = body(X, by)
        except TypeError as error:
            with pytest.raises(type(error)):
                pipeline(body)(X, by)
        else:
            same(pipeline(body)(X, by), expected)


@pytest.mark.parametrize("by", [np.ones(7), np.ones((2, 24))])
def test_operands_that_do_not_fit_raise_numpys_error(by: Any) -> None:
    def body(x: Any) -> Any:
        y = x * 2
        y += by
        return y

    with pytest.raises(ValueError, match="broadcast"):
        pipeline(body)(X)


REFUSED = {
    "x += 1": (1, "argument.*(new name|mut)"),
    "y = x; y *= 2": (2, "argument.*(new name|mut)"),
    "y = x * 2; part = y[1:]; part += 1; return y": (3, "new name"),
    "y = x * 2; part = y[1:]; y += 1; return part": (3, "new name"),
    "part = x[2:5]; part -= 1; return x": (2, "new name|mut"),
    "y = x * 2; y[3] = 5; return y": (2, "np.where|numpy.where"),
    "y = x * 2; y[1:4] = 5; return y": (2, "np.where|numpy.where"),
    "y = x * 2; y[...] = 0; return y": (2, "where|new name"),
    "y = x * 2; y[y > 3] = 0; return y": (2, "np.where|numpy.where"),
    "y = x * 2; y[1:4] += 5; return y": (2, "np.where|numpy.where"),
    "x[0] = 1": (1, "np.where|numpy.where"),
    "y = x * 2; np.add(y, 1, out=y); return y": (2, "out.*new name"),
    "y = x * 2; np.clip(y, 0, 3, out=y); return y": (2, "out.*new name"),
    "found = np.empty(24); np.multiply(x, 2, out=found); return found": (2, "out.*new name"),
    "np.sqrt(x, out=x)": (1, "out.*new name"),
    "found = np.ones(24); found += x; return found": (2, r"operator such as \+=.*new name"),
    "return np.sum(x, axis=0, out=np.zeros(()))": (1, "out.*new name"),
    "few = x[x > 3]; column = few[:, None]; increase(few); return column": (
        3,
        "columns have been taken.*new name",
    ),
}
"""Programs that are refused: the statement of the change, and what is to be written instead."""


@pytest.mark.parametrize("statements", REFUSED)
def test_other_changes_are_refused_with_the_line_and_what_to_write(statements: str) -> None:
    ahead, advice = REFUSED[statements]
    x, body = X.copy(), body_of(statements)
    with pytest.raises(InvalidArgumentError, match=rf"(?s){line_of(body, ahead)}") as caught:
        pipeline(body)(x)
    assert re.search(f"(?s){advice}", str(caught.value)), caught.value
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("statements", REFUSED)
def test_over_a_split_the_same_is_refused(statements: str) -> None:
    blocks = np.split(X.copy(), [10])
    errors = InvalidArgumentError, WholeArrayError
    with split(blocks) as parts, pytest.raises(errors) as caught:
        pipeline(body_of(statements))(parts)
    if not re.search(r"part|column|\+= 5", statements):  # which need all rows, over a Split
        assert re.search(f"(?s){REFUSED[statements][1]}", str(caught.value))
    np.testing.assert_array_equal(np.concatenate(blocks), X)


@pytest.mark.parametrize("changed", ["column", "y"])
def test_over_a_split_columns_are_slices(changed: str) -> None:
    body = body_of(f"y = x * 2; column = y[:, 0]; {changed} += 1; return y, column")
    with (
        split([TABLE[:3], TABLE[3:]]) as parts,
        pytest.raises(InvalidArgumentError, match=line_of(body, 3)),
    ):
        pipeline(body)(parts)


def test_arguments_in_lists_are_refused_too() -> None:
    x, body = X.copy(), body_of("value = x[0]; value += 1")
    with pytest.raises(InvalidArgumentError, match=line_of(body, 2)):
        pipeline(body)([x])
    np.testing.assert_array_equal(x, X)


def test_marked_arguments_change_in_this_process_and_not_over_a_split() -> None:
    def scale(values: Any, by: Any) -> None:
        values *= by

    marked = splittable(scale, values=mut(Rows()), returns=None)
    x = X.copy()
    assert pipeline(marked)(x, 3) is None
    np.testing.assert_array_equal(x, X * 3)
    doubled = pipeline(lambda values: (marked(values, 2), values + 1)[1])(x)
    same([x, doubled], [X * 6, X * 6 + 1])

    def body(x: Any) -> Any:
        marked(x * 1, 2)
        return x + 1

    for fn in (pipeline(lambda x: marked(x, 2)), pipeline(body)):
        with (
            split(np.split(X, [10])) as parts,
            pytest.raises(InvalidArgumentError, match=r"scale.*'values' in place"),
        ):
            fn(parts)


def test_a_large_plain_array_may_change_after_the_call() -> None:
    factors = np.ones(100_000)

    def body(x: Any) -> Any:
        found = x * factors
        factors[0] += 5
        return found, x + factors[::-1]

    expected = body(np.ones(100_000))
    factors[0] = 1
    with options(batch=33_000):
        found = pipeline(body)(np.ones(100_000))
    same(found, expected)


def test_returned_arguments_are_the_callers_own() -> None:
    x = X.copy()
    found = pipeline(lambda x: (x, x + 1))(x)
    assert found[0] is x or np.shares_memory(found[0], x)
    found[1][:] = 0
    np.testing.assert_array_equal(x, X)


def test_results_are_writeable_and_share_no_memory() -> None:
    first, second = pipeline(lambda x: (x * 2, x + 1))(X)
    first += 1
    second[0] = 7
    assert not np.shares_memory(first, second)
    same(first, X * 2 + 1)


def test_lazy_values_follow_the_same_rules() -> None:
    x = X.copy()
    value = lazy(x)
    doubled = other = value * 2
    doubled += 1
    np.testing.assert_array_equal(other, X * 2 + 1)
    with pytest.raises(InvalidArgumentError, match="where"):
        doubled[0] = 1
    with pytest.raises(InvalidArgumentError, match=r"argument|lazy"):
        value += 1
    np.testing.assert_array_equal(x, X)
