"""Annotations, options and functions that are refused, with what to do."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spliter import AnnotationError, InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import (
    Groups,
    Reduction,
    Rows,
    SplitType,
    explain,
    mut,
    options,
    pipeline,
    splittable,
    unknown,
)

pytestmark = pytest.mark.usefixtures("small_batches")

N = 100


def numbers() -> Any:
    return np.arange(1.0, N + 1)


class NoMerge(SplitType):
    def split(self, value: Any, start: int, stop: int) -> Any:
        return value[start:stop]


class WrongLength(SplitType):
    def length(self, value: Any) -> Any:
        return float("nan")

    def merge(self, pieces: Any) -> Any:
        return pieces


@dataclass(frozen=True)
class Lists(SplitType):
    """Lists, with a wrong length or wrong bytes, or with a parameter that has no hash."""

    items: Any = 8
    size: Any = 64

    def length(self, value: Any) -> Any:
        return self.items

    def nbytes(self, value: Any) -> Any:
        return super().nbytes(value) if self.size is Ellipsis else self.size

    def split(self, value: Any, start: int, stop: int) -> Any:
        return value[start:stop]


@pytest.mark.parametrize(
    "kind",
    [
        *(Lists(items="x"), Lists(items=None), Lists(items=-1), Lists(items="x", size=...)),
        *(Lists(size=None), Lists(size=float("nan")), Lists(size="x"), Lists(items=[])),
    ],
)
def test_types_with_wrong_numbers_are_named(kind: Any) -> None:
    with pytest.raises(AnnotationError, match="Lists"):
        pipeline(splittable(len, obj=kind, returns=Reduction(merge=max)))([1.0] * 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: splittable(len, obj=Rows(), returns=NoMerge()), "NoMerge has no method merge"),
        (Reduction, "Reduction has no function to merge, got None"),
        (
            lambda: pipeline(splittable(np.negative, x=Rows(), returns=Groups()))(numbers()),
            "returned a ndarray; return a frame or series",
        ),
        (
            lambda: splittable(len, obj=mut(unknown), returns=None),
            "an argument of type unknown, which is for results",
        ),
        (
            lambda: pipeline(splittable(len, obj=WrongLength(), returns=Rows()))(numbers()),
            "has no length",
        ),
    ],
)
def test_types_that_lack_something(make: Any, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        make()


@pytest.mark.parametrize("wrong", ["no", 1])
def test_pedantic_is_a_bool(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="pass True or False"), options(pedantic=wrong):
        pass


def test_changes_of_arguments_over_a_split_are_named() -> None:
    def scale(x: Any) -> None:
        x *= 2

    changing = splittable(scale, x=mut(Rows()), returns=None)
    for fn in (pipeline(changing), pipeline(lambda x: changing(x * 1))):
        with pytest.raises(WholeArrayError, match="scale changes its argument 'x' in place"):
            fn(split([np.ones(3), np.ones(4)]))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "all"])
@pytest.mark.parametrize("name", ["threads", "batch"])
def test_wrong_options(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=name), options(**{name: wrong}):
        pass


def test_functions_that_cannot_be_pipelines() -> None:
    def generator(x: Any) -> Any:
        yield x

    with pytest.raises(InvalidArgumentError, match="return a list instead"):
        pipeline(generator)
    with pytest.raises(InvalidArgumentError, match="must be a function"):
        pipeline(3)  # type: ignore[arg-type]


def test_explain_takes_no_split() -> None:
    with (
        split([numbers()]) as parts,
        pytest.raises(InvalidArgumentError, match="pass rows like those of a partition"),
    ):
        explain(pipeline(np.sqrt), parts)


def test_lazy_values_in_functions_that_run_on_pieces() -> None:
    def centred(x: Any, *, evaluates: bool) -> Any:
        mean, double = x.mean(keepdims=True), x * 2
        if evaluates:
            repr(double)
        subtract = splittable(lambda a: a - mean, a=Rows(), returns=Rows())
        return subtract(x)

    x = np.arange(50.0)
    with options(batch=7, threads=2):
        found = pipeline(centred)(x, evaluates=True)
        with pytest.raises(InvalidArgumentError, match=r"test_refused.py:\d+ uses a lazy value"):
            pipeline(centred)(x, evaluates=False)
    np.testing.assert_array_equal(found, x - x.mean())


def test_batches_that_fail_where_the_whole_does_not_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def partial(x: Any) -> float:
        raise TypeError("wrong")

    kind = Reduction(partial, merge=operator.add)
    total = splittable(lambda x: float(x.sum()), x=Rows(), returns=kind)
    assert pipeline(total)(numbers()) == numbers().sum()
    (record,) = caplog.records
    assert "failed on items 0 to 7 and not on all (TypeError('wrong'))" in record.getMessage()
