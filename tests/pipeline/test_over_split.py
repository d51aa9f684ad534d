"""One function for arrays and for a Split: passes, results, order, and what is refused."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import AnnotationError, InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import (
    Axis,
    Reduction,
    Rows,
    broadcast,
    lazy,
    options,
    pipeline,
    splittable,
    unknown,
)
from tests.pipeline.checks import attempt, line_of, same
from tests.pipeline.split_suite import LENGTHS, TABLE, WEIGHTS, Tasks, blocks, tasks
from tests.pipeline.test_engines import TestLocal as OnLocal

__all__ = ["tasks"]

check = OnLocal().check


def scaled(x: Any) -> Any:
    y = x * 2
    y -= y.mean()
    y /= np.abs(y).max()
    y *= y.max(axis=0, keepdims=True)
    return y


def filtered(x: Any) -> Any:
    mask = x[:, 0] > 0
    few = x[mask] * 2
    return few, few[few[:, 1] > 0].sum(axis=0), x[~mask].max(), x[mask][:, 1] + x[mask][:, 2]


def with_numbers(x: Any) -> Any:
    total = x.sum(axis=0)
    spread = np.sqrt(np.sort(total)[-1] ** 2) + np.convolve(total, [1.0, 2.0])[0]
    total = total + 1
    return x - total, spread * x, float(x.mean()), np.stack([x.min(), x.max()])


BODIES: dict[str, Callable[[Any], Any]] = {
    "scaled": scaled,
    "filtered": filtered,
    "with numbers": with_numbers,
    "converted": lambda x: (x[:, 1].astype("f4") * 2, (x * 9).astype("i8") // 2),
    "columns": lambda x: (x[:, 0], x[..., [0, 2]], x[:, 1:] * 2, x[:, None, 1]),
    "along rows": lambda x: (x.sum(axis=1), x.max(axis=1, keepdims=True) - x, x.argmin(axis=1)),
    "rolled": lambda x: np.roll(x, 1, axis=1),
    "where": lambda x: np.where(x > x.mean(), np.clip(x, -1, 1), 0),
    "reductions": lambda x: [getattr(x, name)() for name in ("sum", "min", "max", "std", "var")],
    "positions": lambda x: (x.argmin(), x.argmax(axis=0), np.argmin(x[:, 0])),
    "keepdims": lambda x: x - x.min(axis=0, keepdims=True),
    "shapes": lambda x: (len(x), x.shape, x.size, x.ndim, (x + 1).shape, x[:, 0].shape),
    "counts": lambda x: (x.sum(axis=0) / len(x), len(x[x[:, 0] > 0]), np.count_nonzero(x > 0)),
    "nested": lambda x: {"a": [x * 2, (x.sum(), 3)], "b": None},
    "nothing": lambda x: None,
    "dtypes": lambda x: (x.dtype, (x > 0).dtype, x.sum().dtype),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("batch", ["auto", 7])
def test_results_are_those_of_all_rows(name: str, batch: Any) -> None:
    with options(batch=batch):
        check(BODIES[name], TABLE)


def test_the_body_runs_once_and_results_are_blocked_alike() -> None:
    runs: list[int] = []

    def body(x: Any) -> Any:
        runs.append(1)
        return x - x.mean(axis=0)

    with split(blocks(TABLE), partitions_per_location=2) as parts:
        found = pipeline(body)(parts)
    assert runs == [1]
    assert [len(block) for block in found] == LENGTHS
    assert all(type(block) is np.ndarray for block in found)


def test_numbers_of_a_pass_are_computed_together_and_by_use(tasks: Tasks) -> None:
    def body(x: Any) -> Any:
        total, largest, doubled = x.sum(), x.max(), x * 2
        assert not tasks.count
        if float(total) > 1e9:
            return None
        assert tasks.count == len(parts)
        assert largest > -99
        assert np.full(2, total, float)[1] == total
        return doubled, largest

    with split(blocks(TABLE)) as parts:
        pipeline(body)(parts)
    assert tasks.count <= 2 * len(parts)


def test_programs_without_results_run_nothing(tasks: Tasks) -> None:
    with split(blocks(TABLE)) as parts:
        assert pipeline(lambda x: (x * 2, x.sum())[0] is None)(parts) is False
    assert not tasks.count


def test_aligned_collections_are_as_many_arguments() -> None:
    def body(x: Any, w: Any, by: Any) -> Any:
        return x * w[:, None] * by, (x[:, 0] * w).sum() / w.sum(), x[w > 1.5]

    check(lambda x, w: body(x, w, np.arange(3.0)), TABLE, WEIGHTS)
    with split(blocks(TABLE), blocks(WEIGHTS)) as parts:
        found = pipeline(body)(parts, np.arange(3.0))
        same(np.concatenate(found[0]), TABLE * WEIGHTS[:, None] * np.arange(3.0))
        with pytest.raises(InvalidArgumentError, match="by position"):
            pipeline(body)(x=parts, by=2)
    with split(blocks(TABLE)) as parts:
        same(np.concatenate(pipeline(lambda x: x + 1)(x=parts)), TABLE + 1)


def test_blocks_of_the_second_collection_are_checked_too() -> None:
    masked = blocks(WEIGHTS)
    masked[4] = np.ma.masked_greater(masked[4], 1.5)
    with split(blocks(TABLE), masked) as parts:
        for body in (lambda x, w: x * w[:, None], lambda x, w: w.mean(), lambda x, w: x[w > 1.5]):
            with pytest.raises(InvalidArgumentError, match="mask"):
                pipeline(body)(parts)


def test_arguments_that_are_returned_are_their_own_blocks() -> None:
    own = blocks(TABLE)
    with split(own, blocks(WEIGHTS)) as parts:
        found = pipeline(lambda x, w: (w, x * 2, x))(parts)
    assert all(one is other for one, other in zip(found[2], own, strict=True))
    same(np.concatenate(found[0]), WEIGHTS)


@splittable(x=Rows(), returns=Reduction(merge=operator.add))
def as_text(x: Any) -> str:
    """Return the numbers as text, whose order is that of the rows."""
    return "".join(f"{number:.0f}" for number in x)


@pytest.mark.parametrize("schedule", [None, "STATIC", "SS", "FAC2"])
def test_partial_results_are_combined_in_the_order_of_the_rows(schedule: Any) -> None:
    numbers = [np.arange(at, at + at % 3, dtype="f8") for at in range(12)]
    with split(numbers, schedule=schedule) as parts:
        assert pipeline(as_text)(parts) == as_text(np.concatenate(numbers))


largest = splittable(lambda x: float(x.max(initial=-9)), x=Rows(), returns=Reduction(merge=max))
divided = splittable(lambda x, by: x / by, x=Rows(), by=broadcast, returns=Rows(like="x"))
positive = splittable(lambda x: x[x[:, 0] > 0], x=Rows(), returns=unknown)
opaque = splittable(lambda x: np.stack([x, x * 2], axis=1), x=Rows(), returns=Rows())
several = splittable(
    lambda x: (x * 2, float(x.max(initial=-9)), x[x[:, 0] > 0]),
    x=Rows(),
    returns=(Rows(like="x"), Reduction(merge=max), unknown),
)


def test_results_of_annotated_functions_reach_later_calls() -> None:
    def body(x: Any) -> Any:
        most = largest(x)
        doubled, again, few = several(x + 1)
        return divided(x, most), most * 1, doubled + 1, again, few * 2, positive(x).sum(axis=0)

    check(body, TABLE)
    check(lambda x: opaque(x[:, 0]) * 2, TABLE)
    check(lambda x: (opaque(x[:, 0]).sum(axis=1), opaque(x).shape), TABLE)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_collections_without_rows() -> None:
    empty = [np.empty((0, 2)), np.empty((0, 2))]
    with split(empty) as parts:
        found = pipeline(lambda x: (x.sum(axis=0), (x + 1).mean(), x - x.sum(), len(x)))(parts)
        same([found[0], found[3]], [np.zeros(2), 0])
        assert np.isnan(found[1])
        assert [block.shape for block in found[2]] == [(0, 2), (0, 2)]
        with pytest.raises(ValueError, match="zero-size array"):
            pipeline(lambda x: x.max())(parts)


NEED_ALL_ROWS: dict[str, Callable[[Any], Any]] = {
    "sorted": lambda x: np.sort(x, axis=0),
    "sorted rows": lambda x: np.sort(x, axis=1),
    "plain": lambda x: np.asarray(x),  # noqa: PLW0108 -- a lazy value
    "row": lambda x: x[3],
    "slice": lambda x: x[2:5],
    "convolved": lambda x: np.convolve(x[:, 0], [1.0, 2.0]),
    "concatenated": lambda x: np.concatenate([x, x]),
    "rolled": lambda x: np.roll(x, 1, axis=0),
    "turned": lambda x: x.T + 1,
    "iterated": lambda x: [*x],
    "listed": lambda x: x.tolist(),
    "shown": repr,
    "beside rows of its own": lambda x: x + np.ones((sum(LENGTHS), 3)),
    "of other filters": lambda x: x[x[:, 0] > 0] + x[x[:, 1] > 0],
    "product": lambda x: np.einsum("ij->ji", x),
    "other axis": splittable(lambda t: t, t=Axis(1), returns=Axis(1)),
    "nan": lambda x: np.nanstd(x, axis=0),
}


ADVICE = {
    "beside rows of its own": "split them together, split(x, y)",
    "of other filters": "choose rows by the same mask",
    "nan": "reduce it without NaN, as x[~np.isnan(x)].mean()",
}


@pytest.mark.parametrize("name", NEED_ALL_ROWS)
def test_what_needs_all_rows_is_refused_with_the_line_and_what_to_do(name: str) -> None:
    body = NEED_ALL_ROWS[name]
    with split(blocks(TABLE)) as parts, pytest.raises((WholeArrayError, ValueError)) as caught:
        pipeline(body)(parts)
    text = str(caught.value)
    assert ADVICE.get(name, "") in text
    if isinstance(caught.value, WholeArrayError) and name != "shown":
        assert re.search(f"{line_of(body)}|{TABLE.nbytes} bytes", text), text
        assert "splittable" in text or "annotate" in text or "arrays" in text, text
    else:
        assert name in ("beside rows of its own", "of other filters", "shown"), caught.value


def test_wrong_splits() -> None:
    with (
        split(blocks(TABLE)) as parts,
        split(blocks(TABLE)) as others,
        pytest.raises(InvalidArgumentError, match="split the collections together"),
    ):
        pipeline(operator.add)(parts, others)
    with split(blocks(TABLE)) as parts:
        for held in ([parts], {"x": parts}, (1, (parts,))):
            with pytest.raises(InvalidArgumentError, match="holds a Split; pass the Split itself"):
                pipeline(len)(held)
    kinds: list[tuple[list[Any], str]] = [([["a"], ["b"]], "list"), ([np.array(["a"])], r"U1|str")]
    for given, kind in kinds:
        with split(given) as parts, pytest.raises(InvalidArgumentError, match=kind):
            pipeline(scaled)(parts)


@pytest.mark.parametrize("returns", [Rows(), Rows(like="x"), unknown])
@pytest.mark.parametrize(
    "result", [lambda x: None, lambda x: 1.0, lambda x: x[:1], lambda x: [*x, 1]]
)
def test_results_that_are_no_rows_of_a_block_are_refused(result: Any, returns: Any) -> None:
    def wrong(x: Any) -> Any:
        return result(x)

    body = pipeline(splittable(wrong, x=Rows(), returns=returns))
    with split([np.ones(5), np.ones(3)]) as parts:
        if returns is unknown and isinstance(result(np.ones(5)), np.ndarray):
            assert [*map(len, body(parts))] == [1, 1]
        else:
            with pytest.raises(AnnotationError, match="wrong"):
                body(parts)


def test_a_function_without_a_result_runs_for_its_errors() -> None:
    def refuse(x: Any) -> None:
        raise KeyError("no such row")

    refused = splittable(refuse, x=Rows(), returns=None)
    with split([np.ones(3), np.ones(2)]) as parts, pytest.raises(KeyError, match="no such row"):
        pipeline(refused)(parts)


def test_lazy_values_of_elsewhere() -> None:
    other = lazy(np.arange(3.0))
    with split(blocks(TABLE)) as parts:
        found = attempt(pipeline(lambda x, by: x * by), parts, other)
        if isinstance(found, list):
            same(np.concatenate(found), TABLE * np.arange(3.0))
        else:
            assert isinstance(found, InvalidArgumentError)
        kept: list[Any] = []
        pipeline(lambda x: (kept.append(x + 1), x.sum())[1])(parts)  # type: ignore[func-returns-value]
        with pytest.raises((InvalidArgumentError, WholeArrayError)):
            pipeline(lambda x: x + kept[0])(parts)


def test_tasks_use_one_thread_unless_told() -> None:
    threads: set[str] = set()

    def noted(x: Any) -> Any:
        threads.add(threading.current_thread().name)
        return x

    note = splittable(noted, x=Rows(), returns=Rows(like="x"))
    with split([np.ones(400)], partitions_per_location=1) as parts:
        pipeline(note)(parts)
        assert len(threads) == 1
        with options(batch=10):
            pipeline(note)(parts)
        assert len(threads) <= 2


def test_a_lazy_number_in_a_function_that_runs_in_tasks_is_refused() -> None:
    def by_closure(x: Any) -> Any:
        mean = x.mean()
        return splittable(lambda part: part - mean, part=Rows(), returns=Rows())(x)

    with split(blocks(TABLE)) as parts, pytest.raises(InvalidArgumentError):
        pipeline(by_closure)(parts)
