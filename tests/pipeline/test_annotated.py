"""Annotated functions with every split type, and what is known of results that are declared."""

from __future__ import annotations

import ctypes
import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from spliter import AnnotationError, InvalidArgumentError
from spliter.pipeline import (
    Axis,
    Generic,
    Reduction,
    Rows,
    SplitType,
    broadcast,
    explain,
    lazy,
    module,
    mut,
    options,
    pipeline,
    splittable,
    unknown,
)
from tests.pipeline.checks import attempt, check, line_of, same

pytestmark = pytest.mark.usefixtures("small_batches")

ROWS = Rows()
VALUES = np.random.default_rng(0).random(40) * 9
TABLE = np.random.default_rng(1).random((12, 5))
SEEN: list[int] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def counting(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function of one argument that notes the rows it is called with."""

    def counted(x: Any) -> Any:
        SEEN.append(len(x))
        return fn(x)

    return counted


@dataclass(frozen=True)
class Bag(SplitType):
    """Items in a dict."""

    def length(self, value: Any) -> int:
        return len(value["items"])

    def split(self, value: Any, start: int, stop: int) -> Any:
        return {"items": value["items"][start:stop]}

    def merge(self, pieces: Any) -> Any:
        return {"items": [item for piece in pieces for item in piece["items"]]}


add = functools.partial(Reduction, merge=operator.add)
scaled = splittable(lambda x, by: x * by, x=ROWS, by=broadcast, returns=Rows(like="x"))
product = splittable(lambda x, y: x * y, x=ROWS, y=ROWS, returns=Rows(like="x"))
running = splittable(lambda t: np.cumsum(t, axis=0), t=Axis(1), returns=Axis(1))
last_axis = splittable(lambda t: np.cumsum(t, axis=0), t=Axis(-1), returns=Axis(-1))
positive = splittable(lambda x: x[x > 4], x=ROWS, returns=unknown)
total = splittable(lambda x: float(x.sum()), x=ROWS, returns=add())
longest = splittable(lambda names: max(map(len, names)), names=ROWS, returns=Reduction(merge=max))
mean = splittable(
    lambda x: float(x.mean()),
    x=ROWS,
    returns=Reduction(
        lambda x: (float(x.sum()), len(x)),
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        lambda last: last[0] / last[1],
    ),
)
largest_at = splittable(
    lambda x: int(x.argmax()),
    x=ROWS,
    returns=Reduction(
        lambda x, start: (x.max(), start + int(x.argmax())),
        lambda one, other: max(one, other, key=lambda each: each[0]),
        lambda last: last[1],
        takes_start=True,
    ),
)
anything = splittable(lambda x: x + 1, x=Generic("S"), returns=Generic("S"))
bag = splittable(lambda x: {"items": [*x]}, x=ROWS, returns=Bag())
doubled_bag = splittable(lambda b: {"items": [2 * v for v in b["items"]]}, b=Bag(), returns=Bag())
unbag = splittable(lambda b: np.array(b["items"]), b=Bag(), returns=ROWS)
several = splittable(
    lambda x: (x * 2, float(x.max()), x[x > 4], "unit"),
    x=ROWS,
    returns=(Rows(like="x"), Reduction(merge=max), unknown, broadcast),
)
listed = splittable(lambda x: [f"{each:.1f}" for each in x], x=ROWS, returns=ROWS)
sparse = splittable(
    lambda x: scipy.sparse.csr_array(np.stack([x, x * 0], axis=1)), x=ROWS, returns=ROWS
)
sums = splittable(lambda m: np.asarray(m.sum(axis=1)), m=ROWS, returns=ROWS)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "rows and whole": lambda x: scaled(x, 3) + scaled(x + 1, by=np.float64(2)),
    "two rows": lambda x: product(x, x + 1) - product(y=x, x=x),
    "numbers as operands": lambda x: scaled(x, x.max()) / total(np.abs(x)),
    "unknown": positive,
    "of unknown": lambda x: (np.sqrt(positive(x)) * 2, positive(x).max(), len(positive(x))),
    "two uses of one filter": lambda x: (y := positive(x)) + y * 2,
    "reductions": lambda x: (total(x), mean(x + 1), largest_at(x)),
    "of a filter": lambda x: (total(x[x > 2]), mean(x[x > 2])),
    "generic": lambda x: (anything(x), anything(positive(x))),
    "own type": lambda x: doubled_bag(bag(x * 2)),
    "back from an own type": lambda x: unbag(doubled_bag(bag(x))) + x,
    "several": lambda x: several(x + 1),
    "one of several": lambda x: several(x)[2] * 2,
    "lists": lambda x: (listed(x * 2), longest(listed(x * 100))),
    "sparse": lambda x: sums(sparse(x)) + x,
    "nested": lambda x: scaled(scaled(scaled(x, 2), 3), 4).sum(),
    "whole function": total,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_programs_give_what_they_give_without_a_pipeline(name: str, batch: int) -> None:
    check(PROGRAMS[name], VALUES, batch=batch, rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_other_axes_are_cut(batch: int) -> None:
    check(lambda t: running(t * 2) + 1, TABLE, batch=batch)
    check(lambda t: running(anything(running(t))), TABLE, batch=batch)
    check(last_axis, TABLE, batch=batch)
    check(lambda t: last_axis(t).sum(axis=1), TABLE, batch=batch, rtol=1e-12)


def test_lists_tuples_and_objects_are_arguments() -> None:
    check(longest, ["a", "bcd", "ef"] * 5, batch=2)
    check(doubled_bag, {"items": [*range(20)]}, batch=3)
    pair = splittable(lambda p: p[0] * p[1], p=ROWS, returns=ROWS)
    check(pair, (VALUES, VALUES + 1))
    check(lambda x, held: scaled(x, held["by"][0]), VALUES, {"by": [2.0]})
    matrix = scipy.sparse.random_array((20, 3), density=0.4, format="csr", rng=1)
    np.testing.assert_allclose(pipeline(sums)(matrix), sums(matrix))


def test_called_with_plain_values_it_is_the_plain_function() -> None:
    assert several(VALUES)[3] == "unit"
    assert type(scaled(VALUES, 2)) is np.ndarray
    assert scaled.__wrapped__ is not None  # type: ignore[attr-defined]


def test_arguments_that_are_marked_change() -> None:
    def fill(out: Any, x: Any) -> None:
        out[:] = x * 2

    def accumulate(out: Any, x: Any) -> Any:
        out += x
        return out * 1

    filled = splittable(fill, out=mut(ROWS), x=ROWS, returns=None)
    accumulated = splittable(accumulate, out=mut(ROWS), x=ROWS, returns=Rows(like="out"))
    out = np.zeros(40)
    assert pipeline(filled)(out, VALUES) is None
    same(out, VALUES * 2)
    found = pipeline(lambda out, x: accumulated(out, x + 1) + accumulated(out, x))(out, VALUES)
    plain = VALUES * 2
    expected = accumulate(plain, VALUES + 1) + accumulate(plain, VALUES)
    same([out, found], [plain, expected])


def test_c_functions_run_on_rows() -> None:
    libc = ctypes.CDLL(None)

    def swapped(samples: Any) -> Any:
        result = np.empty_like(samples)
        pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
        libc.swab(pointer(samples.ctypes.data), pointer(result.ctypes.data), size(samples.nbytes))
        return result

    fn = splittable(swapped, samples=ROWS, returns=Rows(like="samples"))
    check(lambda x: fn(x) + 1, np.arange(40, dtype="i2"))


class Model:
    """With annotated methods."""

    def __init__(self, by: float) -> None:
        self.by = by

    @splittable(x=ROWS, returns=Rows(like="x"))
    def scale(self, x: Any) -> Any:
        return x * self.by

    @classmethod
    @splittable(x=ROWS, returns=ROWS)
    def shift(cls, x: Any) -> Any:
        return x + 1

    @pipeline
    def both(self, x: Any) -> Any:
        return self.scale(x) + self.shift(x)


def test_methods_are_annotated_as_functions_are() -> None:
    model = Model(3)
    same(model.both(VALUES), VALUES * 3 + (VALUES + 1))
    same(pipeline(model.scale)(VALUES), VALUES * 3)
    same(pipeline(Model.shift)(VALUES), VALUES + 1)


@pytest.mark.parametrize(
    ("returns", "fn", "known"),
    [
        (Rows(like="x"), lambda x: x + 1, ((40,), "f8")),
        (Rows(dtype="f4", shape=()), lambda x: x.astype("f4"), ((40,), "f4")),
        (Rows(dtype="i8", shape=(2,)), lambda x: np.ones((len(x), 2), "i8"), ((40, 2), "i8")),
        (Rows(dtype="i8"), lambda x: x.astype("i8"), ((40,), "i8")),
        (Rows(), lambda x: x + 1, None),
    ],
)
def test_what_is_declared_is_known_and_anything_else_evaluates(
    returns: Any, fn: Any, known: Any
) -> None:
    marked = splittable(counting(fn), x=ROWS, returns=returns)

    def body(x: Any) -> Any:
        found = marked(x * 1)
        shifted = found + 1 if known else x
        assert not SEEN
        shape, dtype = found.shape, found.dtype
        assert bool(SEEN) is (known is None)
        if known:
            assert (shape, dtype) == (known[0], np.dtype(known[1]))
            assert shifted.shape == known[0]
        return found, shape, dtype

    with options(threads=1):
        found = pipeline(body)(VALUES)
    same(found, (fn(VALUES), fn(VALUES).shape, fn(VALUES).dtype))
    assert SEEN == [7, 7, 7, 7, 7, 5]  # nothing was called on rows to find out


def test_what_is_opaque_is_passed_on_without_evaluation() -> None:
    pairs = splittable(counting(lambda x: np.stack([x, x * x], axis=1)), x=ROWS, returns=ROWS)
    norm = splittable(lambda p: np.sqrt((p**2).sum(axis=1)), p=ROWS, returns=ROWS)

    def body(x: Any) -> Any:
        pair = pairs(x)
        seen = len(SEEN)
        return norm(pair) + x, norm(pair * 2 - 1) > 3, -norm(pair), seen

    found = pipeline(body)(VALUES)
    assert found[3] == 0
    same(found[:3], body(VALUES)[:3], rtol=1e-15)
    assert len(re.findall(r"^stage", explain(pipeline(body), VALUES), re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("returns", "fn", "told"),
    [
        (Rows(dtype="f4", shape=()), lambda x: x, "float64"),
        (Rows(like="x"), lambda x: x.astype("i8"), "int64"),
        (Rows(like="x"), lambda x: np.stack([x, x], 1), r"\(7, 2\)|shape"),
        (Rows(dtype="f8", shape=(3,)), lambda x: np.ones((len(x), 2)), r"\(7, 2\)|shape"),
        (Rows(like="x"), lambda x: x[:3], "3"),
        (Rows(like="x"), lambda x: [*x], "list"),
        (Rows(like="x"), lambda x: None, "None"),
        (Rows(like="x"), lambda x: np.ma.masked_less(x, 1), "MaskedArray|masked"),
    ],
)
def test_results_that_are_not_as_declared_are_refused(returns: Any, fn: Any, told: str) -> None:
    def wrong(x: Any) -> Any:
        return fn(x)

    marked = splittable(wrong, x=ROWS, returns=returns)
    for body in (marked, lambda x: marked(x) + 1, lambda x: marked(x).sum()):
        with pytest.raises(AnnotationError, match=f"(?s)wrong.*({told})"):
            pipeline(body)(VALUES)


@pytest.mark.parametrize("result", [lambda x: x[:1], lambda x: None, lambda x: [1.0]])
@pytest.mark.parametrize("use", [lambda y, x: y + x, product, lambda y, x: y])
def test_rows_of_another_number_are_refused(result: Any, use: Any) -> None:
    def wrong(x: Any) -> Any:
        return result(x)

    marked = splittable(wrong, x=ROWS, returns=ROWS)
    with pytest.raises(AnnotationError, match=r"wrong.*(returned|batch)"):
        pipeline(lambda x: use(marked(x), x))(VALUES)


@pytest.mark.parametrize("result", [lambda x: x, lambda x: (x, x, x), lambda x: None])
def test_another_number_of_results_is_refused(result: Any) -> None:
    def wrong(x: Any) -> Any:
        return result(x)

    with pytest.raises(AnnotationError, match="wrong"):
        pipeline(splittable(wrong, x=ROWS, returns=(ROWS, ROWS)))(VALUES)
    if wrong(VALUES) is not None:
        with pytest.raises(AnnotationError, match=r"wrong .* annotation names 0; correct returns="):
            pipeline(splittable(wrong, x=ROWS, returns=None))(VALUES)


def test_two_results_of_unknown_rows_are_not_combined() -> None:
    halves = splittable(lambda x: (x[x > 4], x[x <= 4]), x=ROWS, returns=(unknown, unknown))
    check(halves, VALUES)
    values = np.array([1.0] + [9.0] * 6 + [1.0] * 6 + [9.0])  # in all, as many of both
    bodies: list[Any] = [lambda x: np.add(*halves(x)), lambda x: product(*halves(x))]
    for body in bodies:
        found = attempt(pipeline(body), values)
        if not isinstance(found, Exception):
            same(found, body(values))


def test_pieces_without_rows_are_not_given_to_reductions() -> None:
    best = splittable(lambda x: max(x.tolist()), x=ROWS, returns=Reduction(merge=max))
    check(lambda x: best(x[x > 8]), VALUES)
    check(lambda x: best(positive(x)), VALUES)


def test_a_lazy_value_in_a_function_on_pieces_is_refused() -> None:
    def centred(x: Any) -> Any:
        double = x * 2
        subtract = splittable(lambda a: a - double[: len(a)], a=ROWS, returns=ROWS)
        return subtract(x)

    with pytest.raises(InvalidArgumentError, match=r"test_annotated.py:|piece|annotated"):
        pipeline(centred)(VALUES)


def test_modules_have_their_annotated_functions_captured() -> None:
    color = module("skimage.color")
    picture = np.random.default_rng(1).uniform(0.05, 0.9, (20, 4, 3))
    check(lambda picture: color.rgb2lab(picture) * 2, picture)
    shown = explain(pipeline(lambda picture: color.rgb2lab(picture) * 2), picture)
    assert shown.count("stage") == 1 and "rgb2lab (" in shown
    assert color.label2rgb.__module__.startswith("skimage")
    assert module("math").sqrt(4.0) == 2.0


def test_lazy_values_without_a_pipeline() -> None:
    x = lazy(VALUES)
    found = scaled(x, 2) + 1
    assert found.shape == (40,)
    same(np.asarray(found), VALUES * 2 + 1)
    assert lazy("text") == "text"


def two_errors(x: Any) -> Any:
    return scaled(x)


def test_calls_with_wrong_arguments_raise_at_the_call() -> None:
    with pytest.raises(TypeError, match="by"):
        pipeline(two_errors)(VALUES)
    with pytest.raises(TypeError, match="nothing"):
        pipeline(lambda x: scaled(x, 2, nothing=3))(VALUES)
    other = np.ones(7)
    with pytest.raises((ValueError, InvalidArgumentError), match=r"7|40") as caught:
        pipeline(lambda x: product(x, other))(VALUES)
    assert line_of(two_errors) not in str(caught.value)
