"""Rows and numbers that a program keeps: computed by return, also after errors, and freed later."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.pipeline import Rows, pipeline, splittable
from spliter.pipeline._calls.graph import Graph
from tests.pipeline.test_values_between_pipelines import TABLE, parts, whole


@splittable(x=Rows(), returns=Rows())
def failing(x: Any) -> Any:
    if len(x) > 10:
        raise OSError("disk")
    return x


def test_rows_that_are_replaced_are_freed() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2))(parts())

    @pipeline
    def step() -> None:
        kept["rows"] = kept["rows"] * 0.5 + 1
        kept["sum"] = kept["rows"].sum()

    for _ in range(20):
        step()
        float(kept["sum"])
    assert len(kept["rows"]._graph.passes.carried) == 1
    for body in (
        lambda x: kept.update(rows=x.sum()),
        lambda x: (kept.update(rows=x.sum()), x * 2)[1],
        lambda x: (kept.update(rows=x.sum()), x)[1],
    ):
        blocks = parts()
        alive = weakref.ref(blocks)
        pipeline(body)(blocks)
        assert type(kept["rows"]._graph.root()) is Graph
        del blocks
        gc.collect()
        assert alive() is None


def test_one_of_several_results_is_kept() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(zip("ab", np.divmod(x, 2), strict=True)))(parts())
    del kept["b"]
    for _ in range(3):
        np.testing.assert_array_equal(float(kept["a"].sum()), np.sum(TABLE // 2))
        assert len(kept["a"]._graph.passes.carried) == 1


def test_rows_that_are_dropped_later_are_freed() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2, others=x * 3, sum=x.sum()))(parts())
    graph = kept["sum"]._graph
    for name in ("rows", "others"):
        assert graph.passes.futures
        np.testing.assert_allclose(float(kept[name].sum()), TABLE.sum() * (2 + (name == "others")))
        del kept[name]
    assert not graph.passes.futures
    np.testing.assert_allclose(kept["sum"], TABLE.sum())


def test_dropped_rows_are_not_made_again_for_what_follows_from_them() -> None:
    draws = np.random.default_rng(1)
    noisy = splittable(lambda x: x + draws.normal(size=x.shape), x=Rows(), returns=Rows())
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=noisy(x)))(parts())
    mean = float(kept["rows"].mean())
    total = kept["rows"].sum()
    kept["rows"] = kept["rows"] - mean
    np.testing.assert_allclose(float(kept["rows"].mean()), 0, atol=1e-12)
    np.testing.assert_allclose(float(total), mean * TABLE.size)


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("is_dropped", [False, True])
def test_rows_that_are_kept_are_those_of_the_pass(is_used: bool, is_dropped: bool) -> None:
    blocks = np.split(TABLE.copy(), [5, 45])
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2))(split(blocks))
    if is_used:
        float(kept["rows"].max())
    total = kept["rows"].sum()
    if is_dropped:
        del kept["rows"]
    for block in blocks:
        block[...] = 0
    np.testing.assert_allclose(float(total), TABLE.sum() * 2)


def _raises(x: Any, kept: Any) -> Any:
    kept.update(sum=x.sum(), rows=x * 2)
    raise KeyError


def _fails_at_return(x: Any, kept: Any) -> Any:
    kept.update(sum=x.sum(), rows=x * 2)
    return failing(x).sum()


def _keeps_what_fails(x: Any, kept: Any) -> Any:
    kept.update(sum=x.sum(), rows=x * 2, failed=failing(x).sum())


def _catches(x: Any, kept: Any) -> Any:
    kept.update(sum=x.sum(), rows=x * 2)
    with contextlib.suppress(OSError):
        float(failing(x).sum())
    kept.update(largest=x.max())
    return x.min()


@pytest.mark.parametrize("body", [_raises, _fails_at_return, _keeps_what_fails, _catches])
def test_values_kept_before_an_error_are_those_of_the_pass(body: Callable[..., Any]) -> None:
    kept: dict[str, Any] = {}
    blocks = np.split(TABLE.copy(), [5, 45])
    with contextlib.suppress(KeyError, OSError):
        pipeline(lambda x: body(x, kept))(split(blocks))
    for block in blocks:
        block[...] = 0
    np.testing.assert_allclose(float(kept["sum"]), TABLE.sum())
    np.testing.assert_allclose(float(kept["rows"].sum()), TABLE.sum() * 2)
    assert body is not _catches or float(kept["largest"]) == TABLE.max()
    if "failed" in kept:
        with pytest.raises(OSError, match="disk"):
            float(kept["failed"])


@pytest.mark.parametrize("is_list", [False, True])
def test_rows_beside_others_that_fail_are_kept(is_list: bool) -> None:
    kept: dict[str, Any] = {}
    given: Any = [] if is_list else {}

    def body(x: Any, held: Any) -> Any:
        kept["rows"] = x * 2
        for name, value in (("a", x + 1), ("b", failing(x)), ("c", x.sum())):
            if is_list:
                held.append(value)
            else:
                held[name] = value
        return kept["rows"] + 2

    with pytest.raises(OSError, match="disk"):
        pipeline(body)(parts(), given)
    first, last = given if is_list else given.values()
    np.testing.assert_array_equal(whole(first), TABLE + 1)
    np.testing.assert_allclose(last, TABLE.sum())
    np.testing.assert_allclose(float(kept["rows"].sum()), TABLE.sum() * 2)


def test_a_number_does_not_keep_blocks_whose_rows_are_dropped_later() -> None:
    kept: dict[str, Any] = {}
    blocks = parts()
    alive = weakref.ref(blocks)
    pipeline(lambda x: kept.update(rows=x * 2, sum=x.sum()))(blocks)
    del kept["rows"], blocks
    gc.collect()
    assert alive() is None
    np.testing.assert_allclose(kept["sum"] * 2, TABLE.sum() * 2)


def test_pipelines_that_fail_are_freed() -> None:
    @splittable(x=Rows(), returns=Rows())
    def wrong(x: Any) -> Any:
        raise OSError("disk")

    blocks = parts()
    alive = weakref.ref(blocks)
    for body in (lambda x: wrong(x * 2).sum(), wrong):
        with pytest.raises(OSError, match="disk"):
            np.concatenate(pipeline(body)(blocks))
    del blocks
    gc.collect()
    assert alive() is None


def test_errors_of_rows_that_are_kept_rise_at_return() -> None:
    kept: dict[str, Any] = {}

    def body(x: Any) -> Any:
        with np.errstate(divide="raise"):
            kept["rows"] = 1 / (x * 0)
        return x.sum()

    with pytest.raises(FloatingPointError):
        pipeline(body)(parts())


def test_a_body_that_has_caught_an_error_returns() -> None:
    def body(x: Any) -> Any:
        with contextlib.suppress(FloatingPointError), np.errstate(divide="raise"):
            float((1 / (x * 0)).sum())
        return x.sum()

    np.testing.assert_allclose(pipeline(body)(parts()), TABLE.sum())


def test_rows_of_a_body_that_raises_are_freed() -> None:
    kept: list[Any] = []

    def body(x: Any) -> None:
        kept.append(x.max())
        rows = x * 3
        kept.append(float(rows.sum()))
        raise KeyError

    with contextlib.suppress(KeyError):
        pipeline(body)(parts())
    gc.collect()
    assert not kept[0]._graph.passes.futures
    np.testing.assert_allclose(kept, [TABLE.max(), TABLE.sum() * 3])


@pytest.mark.usefixtures("small_batches")
def test_graphs_of_ended_pipelines_are_freed() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(mean=x.mean(axis=0)))(parts())
    for _ in range(5):
        pipeline(lambda x: x - kept["mean"])(TABLE)
    kept["mean"]._graph.root()
    assert kept["mean"]._graph.merged_into.merged_into is None
