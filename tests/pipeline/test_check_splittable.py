"""``check_splittable`` finds wrong annotations, says what is wrong, and passes right ones."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from spliter import AnnotationError, InvalidArgumentError, split
from spliter.pipeline import Reduction, Rows, broadcast, lazy, mut, pipeline, splittable, unknown
from spliter.testing import check_splittable

NUMBERS = np.arange(9.0)
DATES = np.array(["2020-01-01", "NaT", "2020-03-01", "2020-04-01"], "M8[D]")
SERIES = pd.Series([1.0, np.nan, -0.0, 4.0], name="s")
FRAME = pd.DataFrame({"a": SERIES, "b": ["x", None, "y", "z"]})
SPARSE: Any = scipy.sparse.random_array((9, 4), density=0.4, format="csr", rng=1)


def by_rows(fn: Any) -> Any:
    return splittable(fn, **dict.fromkeys([*inspect.signature(fn).parameters, "returns"], Rows()))


def first_differs(x: Any, value: Any, other: Any) -> Any:
    return np.where(np.arange(len(x)) == 0, value, other)


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda d: d + np.timedelta64(1, "D"), DATES),
        (lambda s: s * 2, SPARSE),
        (lambda x: x * (1 + 0j), np.array([1.0, np.nan, -0.0, 2.0])),
        (lambda x: x.copy(), np.array([1, None, np.nan, "a"], object)),
        (lambda s: -s, SERIES),
        (lambda s: s.rename("other"), SERIES),
        (lambda f: f.rename_axis(index="row", columns="column"), FRAME),
        (lambda x: [*x], NUMBERS),
    ],
)
def test_right_rows_pass(fn: Any, value: Any) -> None:
    check_splittable(by_rows(fn), value)


def blur(x: Any) -> Any:
    return np.convolve(x, np.ones(3) / 3, mode="same")


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (blur, NUMBERS),
        (lambda x: x.argsort().argsort(), NUMBERS[::-1]),
        (np.cumsum, NUMBERS),
        (lambda x: x[x > 3], NUMBERS),
        (len, NUMBERS),
        (lambda x: first_differs(x, -0.0, 0.0), NUMBERS),
        (lambda x: first_differs(x, np.nan, 0.0), NUMBERS),
        (lambda s: s * s.shape[0], SPARSE),
        (lambda s: s.rename(str(len(s))), SERIES),
        (lambda f: f.reset_index(drop=True), FRAME),
        (lambda f: f.assign(a=first_differs(f, -0.0, 0.0)), FRAME),
    ],
)
def test_wrong_rows_are_found(fn: Any, value: Any) -> None:
    def wrapped(x: Any) -> Any:
        return fn(x)

    with pytest.raises(AnnotationError):
        check_splittable(by_rows(wrapped), value)


def test_the_result_that_differs_is_said() -> None:
    def running(x: Any) -> Any:
        return np.cumsum(x)

    with pytest.raises(AnnotationError, match="running gives another result in batches of 1"):
        check_splittable(by_rows(running), NUMBERS)
    with pytest.raises(AnnotationError, match="<lambda> has no annotation"):
        check_splittable(lambda x: x, NUMBERS)


def doubled(x: Any) -> Any:
    x *= 2
    return x + 1


def test_an_argument_that_changes_must_be_marked() -> None:
    with pytest.raises(AnnotationError, match=r"changes its argument 'x'.*mut\(Rows\(\)\)"):
        check_splittable(splittable(doubled, x=Rows(), returns=Rows()), NUMBERS)
    check_splittable(splittable(doubled, x=mut(Rows()), returns=Rows()), NUMBERS)
    np.testing.assert_array_equal(NUMBERS, np.arange(9.0))


def short(x: Any) -> Any:
    return x if len(x) > 2 else 1 / 0


@pytest.mark.parametrize(
    "fn",
    [
        by_rows(short),
        splittable(lambda x: short(x).sum(), x=Rows(), returns=Reduction(merge=max)),
        pipeline(by_rows(short)),
    ],
    ids=["rows", "reduction", "pipeline"],
)
def test_a_function_that_raises_on_a_batch_is_not_splittable(fn: Any) -> None:
    with pytest.raises(AnnotationError, match="ZeroDivisionError") as raised:
        check_splittable(fn, NUMBERS)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_errors_of_the_whole_call_are_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        check_splittable(by_rows(lambda x: 1 / 0), NUMBERS)


def test_declared_results_are_checked() -> None:
    right = splittable(lambda x: x.astype("f4"), x=Rows(), returns=Rows(dtype="f4", shape=()))
    check_splittable(right, NUMBERS)
    wrong = splittable(lambda x: x.astype("f4"), x=Rows(), returns=Rows(like="x"))
    with pytest.raises(AnnotationError, match="float32"):
        check_splittable(wrong, NUMBERS)
    check_splittable(splittable(lambda x: x[x > 3], x=Rows(), returns=unknown), NUMBERS)


def test_tolerance() -> None:
    numbers = np.random.default_rng(1).uniform(size=1000)
    added = splittable(
        lambda x: float(x.sum()), x=Rows(), returns=Reduction(merge=lambda a, b: a + b)
    )
    with pytest.raises(AnnotationError, match="another result"):
        check_splittable(added, numbers)
    check_splittable(added, numbers, rtol=1e-12)


@pytest.mark.parametrize(
    ("fn", "merge", "is_right"),
    [
        (lambda x: x.max(), max, True),
        (lambda x: x[0], lambda one, _: one, False),
    ],
)
def test_commutative_reductions_are_combined_in_another_order(
    fn: Any, merge: Any, is_right: bool
) -> None:
    marked = splittable(fn, x=Rows(), returns=Reduction(merge=merge, commutative=True))
    if is_right:
        check_splittable(marked, NUMBERS)
    else:
        with pytest.raises(AnnotationError, match="omit commutative=True"):
            check_splittable(marked, NUMBERS)
    check_splittable(splittable(fn, x=Rows(), returns=Reduction(merge=merge)), NUMBERS)


class Model:
    """With annotated methods, one of which is wrong."""

    @splittable(x=Rows(), returns=Rows())
    def right(self, x: Any) -> Any:
        return x + 1

    @splittable(x=Rows(), returns=Rows())
    def wrong(self, x: Any) -> Any:
        return np.cumsum(x)


def test_methods_are_checked_as_functions_are() -> None:
    model = Model()
    for wrap in (lambda method: method, pipeline):
        check_splittable(wrap(model.right), NUMBERS)
        with pytest.raises(AnnotationError, match="another result"):
            check_splittable(wrap(model.wrong), NUMBERS)


def test_what_checks_nothing_is_refused() -> None:
    fn = by_rows(np.negative)
    for value in (lazy(NUMBERS), split([NUMBERS, NUMBERS])):
        with pytest.raises(InvalidArgumentError, match="check_splittable got batches="):
            check_splittable(fn, value)
    for wrong in ((), 3):
        with pytest.raises(InvalidArgumentError, match="a tuple of one number of items or more"):
            check_splittable(fn, NUMBERS, batches=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"rtol=-1 .* a tolerance of 0 or more"):
        check_splittable(fn, NUMBERS, rtol=-1)


def test_arguments_keep_their_class() -> None:
    converted = splittable(lambda x, to: x.astype(to), x=Rows(), returns=Rows())
    check_splittable(converted, NUMBERS, np.float32)
    counted = splittable(lambda x, counts: x + counts["b"], x=Rows(), returns=Rows())
    check_splittable(counted, NUMBERS, Counter("aab"))
    chosen = splittable(lambda x, keys: x * len(keys), x=Rows(), returns=Rows())
    check_splittable(chosen, NUMBERS, {"a": 1}.keys())
    returned = splittable(lambda x, other: other, x=Rows(), other=broadcast, returns=broadcast)
    check_splittable(returned, NUMBERS, float("nan"))
