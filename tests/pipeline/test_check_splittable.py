"""``check_splittable`` finds wrong annotations, says what is wrong, and passes right ones."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from spliter import AnnotationError, InvalidArgumentError, split
from spliter.pipeline import Reduction, Rows, SplitType, broadcast, lazy, mut, pipeline, splittable
from spliter.testing import check_splittable

NUMBERS = np.arange(9.0)
DATES = np.array(["2020-01-01", "NaT", "2020-03-01", "2020-04-01"], "M8[D]")
RECORDS = np.array([(1.0, 2), (np.nan, 3), (-0.0, 4)], [("a", "f8"), ("b", "i4")])
SERIES = pd.Series([1.0, np.nan, -0.0, 4.0], name="s")
FRAME = pd.DataFrame({"a": SERIES, "b": ["x", None, "y", "z"]})
SPARSE: Any = scipy.sparse.random_array((9, 4), density=0.4, format="csr", rng=1)


def test_a_function_needs_an_annotation() -> None:
    with pytest.raises(AnnotationError, match="<lambda> has no annotation"):
        check_splittable(lambda x: x, NUMBERS)


def by_rows(fn: Any) -> Any:
    return splittable(fn, **dict.fromkeys([*inspect.signature(fn).parameters, "returns"], Rows()))


def doubled(x: Any) -> Any:
    x *= 2
    return x + 1


def test_an_argument_that_changes_must_be_marked() -> None:
    with pytest.raises(AnnotationError, match=r"changes its argument 'x'.*mut\(Rows\(\)\)"):
        check_splittable(splittable(doubled, x=Rows(), returns=Rows()), NUMBERS)
    check_splittable(splittable(doubled, x=mut(Rows()), returns=Rows()), NUMBERS)
    check_splittable(pipeline(doubled), NUMBERS)  # the body's own changes need no annotation


class Bag:
    """Numbers in an object that can be compared, and has no method to copy it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and self.numbers == other.numbers


@dataclass(frozen=True)
class Bags(SplitType):
    """Bags, cut into copies."""

    def length(self, value: Any) -> int:
        return len(value.numbers)

    def split(self, value: Any, start: int, stop: int) -> Any:
        return Bag(value.numbers[start:stop])

    def merge(self, pieces: Any) -> Any:
        return Bag([each for piece in pieces for each in piece.numbers])


def test_changes_of_copies_are_found() -> None:
    def double(bag: Any) -> None:
        bag.numbers[:] = [2 * each for each in bag.numbers]

    bag = Bag([1, 2, 3])
    with pytest.raises(AnnotationError, match="double gives another result in batches of 1"):
        check_splittable(splittable(double, bag=mut(Bags()), returns=None), bag)
    with pytest.raises(AnnotationError, match="changes its argument 'bag' in place"):
        check_splittable(splittable(double, bag=Bags(), returns=None), bag)
    assert bag.numbers == [1, 2, 3]


def test_the_argument_that_changes_is_named() -> None:
    def moved(x: Any, *others: Any, by: Any) -> None:
        x += by
        by[:] = 0

    wrong = splittable(moved, x=mut(Rows()), others=Rows(), returns=None)
    with pytest.raises(AnnotationError, match=r"argument 'by'.*mut\(broadcast\)"):
        check_splittable(wrong, NUMBERS, NUMBERS, by=np.ones(1))


@pytest.mark.parametrize(
    "short",
    [
        by_rows(lambda x: x if len(x) > 2 else 1 / 0),
        splittable(
            lambda x: x.sum() if len(x) > 2 else 1 / 0, x=Rows(), returns=Reduction(merge=max)
        ),
        pipeline(by_rows(lambda x: x if len(x) > 2 else 1 / 0)),
    ],
    ids=["rows", "reduction", "pipeline"],
)
def test_a_function_that_raises_on_a_batch_is_not_splittable(short: Any) -> None:
    with pytest.raises(AnnotationError, match=r"ZeroDivisionError.*items 0 to 1") as raised:
        check_splittable(short, NUMBERS)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def failing_merge(one: Any, other: Any) -> Any:
    raise KeyError("no such part")


def test_a_merge_that_raises_is_named_with_its_function() -> None:
    total = splittable(np.sum, a=Rows(), returns=Reduction(merge=failing_merge))
    with pytest.raises(
        AnnotationError, match=r"sum raised KeyError\('no such part'\), but"
    ) as raised:
        check_splittable(total, np.arange(9.0))
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_batch_that_raises_after_a_change_in_place() -> None:
    def change(x: Any) -> None:
        x[:2] += 1 if len(x) > 2 else 1 // 0

    with pytest.raises(AnnotationError, match=r"ZeroDivisionError.*items 0 to 1"):
        check_splittable(splittable(change, x=mut(Rows()), returns=None), NUMBERS)


def test_errors_of_the_whole_call_are_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        check_splittable(by_rows(lambda x: 1 / 0), NUMBERS)


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda d: d + np.timedelta64(1, "D"), DATES),
        (lambda d: d - DATES[0], DATES),
        (lambda s: s.copy(), RECORDS),
        (lambda s: s * 2, SPARSE),
        (lambda s: s * 2, SPARSE.tocsc()),
        (lambda s: s * 2, scipy.sparse.csr_matrix(SPARSE)),
        (lambda x: x * (1 + 0j), np.array([1.0, np.nan, -0.0, 2.0])),
        (lambda x: x.copy(), np.array([1, None, np.nan, "a"], object)),
        (lambda s: -s, SERIES),
        (lambda s: s.rename("other"), SERIES),
        (lambda f: f.rename_axis(index="row", columns="column"), FRAME),
        (lambda s: s + 1, pd.Series([1, None, 3], dtype="Int64")),
    ],
)
def test_right_rows_pass(fn: Any, value: Any) -> None:
    check_splittable(by_rows(fn), value)


@pytest.mark.parametrize(
    "value", [float("nan"), np.float32("nan"), np.datetime64("NaT", "s"), pd.NA]
)
def test_missing_values_equal_themselves(value: Any) -> None:
    returned = splittable(lambda x, other: other, x=Rows(), other=broadcast, returns=broadcast)
    check_splittable(returned, NUMBERS, type(value)(value) if value is not pd.NA else value)


def first_differs(x: Any, value: Any, other: Any) -> Any:
    return np.where(np.arange(len(x)) == 0, value, other)


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda x: first_differs(x, -0.0, 0.0), NUMBERS),
        (lambda x: first_differs(x, complex(0, -0.0), 0j), NUMBERS),
        (lambda x: first_differs(x, np.nan, 0.0), NUMBERS),
        (lambda x: first_differs(x, np.datetime64("NaT", "s"), DATES[0]), NUMBERS),
        (lambda x: np.array([(len(x), 1.0)] * len(x), "i8, f8"), NUMBERS),
        (lambda s: s * s.shape[0], SPARSE),
        (lambda s: s.rename(str(len(s))), SERIES),
        (lambda s: s.rename_axis(str(len(s))), SERIES),
        (lambda f: f.rename_axis(columns=str(len(f))), FRAME),
        (lambda f: f.rename(columns={"a": str(len(f))}), FRAME),
        (lambda f: f.assign(a=first_differs(f, -0.0, 0.0)), FRAME),
        (lambda f: f.reset_index(drop=True), FRAME),
    ],
)
def test_wrong_rows_are_found(fn: Any, value: Any) -> None:
    with pytest.raises(AnnotationError):
        check_splittable(by_rows(fn), value)


def total(x: Any) -> float:
    return float(x.sum())


def test_tolerance() -> None:
    numbers = np.random.default_rng(1).uniform(size=1000)
    added = splittable(total, x=Rows(), returns=Reduction(merge=lambda a, b: a + b))
    with pytest.raises(AnnotationError, match="another result"):
        check_splittable(added, numbers)
    check_splittable(added, numbers, rtol=1e-12)
    mean = by_rows(lambda s: s - s.mean() * 1e-15)
    check_splittable(mean, pd.Series(numbers + 1), rtol=1e-12)
    with pytest.raises(AnnotationError, match="another result"):
        check_splittable(mean, pd.Series(numbers + 1))


@pytest.mark.parametrize(
    ("merge", "is_right"), [(max, True), (lambda one, _: one, False), (lambda a, b: a - b, False)]
)
def test_commutative_reductions_are_combined_in_another_order(merge: Any, is_right: bool) -> None:
    def first(x: Any) -> Any:
        return x.max() if is_right else x[0]

    rule = Reduction(merge=merge, commutative=True)
    both = (rule, Rows())
    for fn in (
        splittable(first, x=Rows(), returns=rule),
        splittable(lambda x: (first(x), x), x=Rows(), returns=both),
    ):
        if is_right:
            check_splittable(fn, NUMBERS)
        else:
            with pytest.raises(AnnotationError):
                check_splittable(fn, NUMBERS)
    in_order = Reduction(merge=lambda one, _: one)
    check_splittable(splittable(lambda x: x[0], x=Rows(), returns=in_order), NUMBERS)
    with pytest.raises(AnnotationError, match="omit commutative=True"):
        check_splittable(
            splittable(
                lambda x: x[0], x=Rows(), returns=Reduction(merge=lambda a, _: a, commutative=True)
            ),
            NUMBERS,
        )


class Model:
    """With annotated methods, some of which are wrong."""

    @splittable(x=Rows(), returns=Reduction(merge=lambda _, b: b, commutative=True))
    def last(self, x: Any) -> Any:
        return x[-1]

    @splittable(x=Rows(), returns=Rows())
    def doubled(self, x: Any) -> Any:
        return doubled(x)

    @splittable(x=Rows(), returns=Rows())
    def right(self, x: Any) -> Any:
        return x + 1

    @classmethod
    @splittable(x=Rows(), returns=Rows())
    def of_class(cls, x: Any) -> Any:
        return x + 1


def test_methods_are_checked_as_functions_are() -> None:
    model = Model()
    for wrap in (lambda method: method, pipeline):
        check_splittable(wrap(model.right), NUMBERS)
        check_splittable(wrap(Model.of_class), NUMBERS)
        with pytest.raises(AnnotationError, match="omit commutative=True"):
            check_splittable(wrap(model.last), NUMBERS)
        with pytest.raises(AnnotationError, match="changes its argument 'x'"):
            check_splittable(wrap(model.doubled), NUMBERS)


def test_what_checks_nothing_is_refused() -> None:
    fn = by_rows(np.negative)
    for value in (lazy(NUMBERS), split([NUMBERS, NUMBERS])):
        with pytest.raises(InvalidArgumentError, match="check_splittable got batches="):
            check_splittable(fn, value)
    with pytest.raises(InvalidArgumentError, match=r"check_splittable got batches=\(\)"):
        check_splittable(fn, NUMBERS, batches=())
    with pytest.raises(InvalidArgumentError, match="a tuple of one number of items or more"):
        check_splittable(fn, NUMBERS, batches=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"rtol=-1 .* a tolerance of 0 or more"):
        check_splittable(fn, NUMBERS, rtol=-1)


def test_arguments_that_cannot_be_copied() -> None:
    chosen = splittable(lambda x, keys: x * len(keys), x=Rows(), returns=Rows())
    check_splittable(chosen, NUMBERS, {"a": 1}.keys())
    check_splittable(chosen, NUMBERS, MappingProxyType({"a": 1}))


def test_arguments_keep_their_class() -> None:
    converted = splittable(lambda x, to: x.astype(to), x=Rows(), returns=Rows())
    check_splittable(converted, NUMBERS, np.float32)
    counted = splittable(lambda x, counts: x + counts["b"], x=Rows(), returns=Rows())
    check_splittable(counted, NUMBERS, Counter("aab"))


def test_errors_name_the_line_of_the_check() -> None:
    with pytest.raises(AnnotationError, match=r"test_check_splittable\.py"):
        check_splittable(splittable(lambda x: x[:-1], x=Rows(), returns=Rows()), NUMBERS)
