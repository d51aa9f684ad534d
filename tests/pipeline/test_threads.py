"""Threads that run batches, threads of the program, containers of the caller, forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, split
from spliter.pipeline import Rows, lazy, options, pipeline, splittable
from tests.pipeline.checks import check, same

pytestmark = pytest.mark.usefixtures("small_batches")

X = np.arange(1.0, 51)


def in_a_thread(function: Callable[..., Any], *args: Any) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *args).result(60)


USES: dict[str, Callable[[Any], Any]] = {
    "operator": lambda x: x + 1,
    "ufunc": np.sqrt,
    "number": lambda x: float(x.sum()),
    "evaluation": np.asarray,
    "iteration": lambda x: [*x],
    "item": lambda x: x[3],
    "annotated": splittable(lambda x: x + 1, x=Rows(), returns=Rows()),
    "change": lambda x: x.__iadd__(1),
    "repr": repr,
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("pending", [True, False])
def test_a_value_that_another_thread_uses_is_refused(name: str, pending: bool) -> None:
    def body(x: Any) -> Any:
        y = x * 2 if pending else x
        with pytest.raises(InvalidArgumentError, match="thread"):
            in_a_thread(USES[name], y)
        return y + 1

    same(pipeline(body)(X), X * (2 if pending else 1) + 1)
    with split(np.split(X, [20])) as parts:
        same(np.concatenate(pipeline(body)(parts)), X * (2 if pending else 1) + 1)


def test_plain_arrays_may_be_used_by_other_threads() -> None:
    def body(x: Any) -> Any:
        plain = np.asarray(x * 2)
        return in_a_thread(np.sqrt, plain) + x

    check(body, X)


def test_lazy_values_belong_to_the_thread_that_made_them() -> None:
    value = lazy(X) * 2
    with pytest.raises(InvalidArgumentError, match="thread"):
        in_a_thread(np.asarray, value)
    same(np.asarray(value), X * 2)


def test_pipelines_run_in_several_threads_of_the_program() -> None:
    body = pipeline(lambda x, by: np.sqrt(x * by).sum() + (x * by))

    def run(by: int) -> Any:
        with options(batch=7, threads=2):
            return body(X, by)

    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(run, range(20))]
    for by, each in enumerate(found):
        np.testing.assert_allclose(each, np.sqrt(X * by).sum() + X * by)


def test_batches_run_in_as_many_threads_as_the_options_say() -> None:
    wait = threading.Barrier(3, timeout=60)
    seen: set[int] = set()

    def meet(x: Any) -> Any:
        seen.add(threading.get_ident())
        wait.wait()
        return x

    met = pipeline(splittable(meet, x=Rows(), returns=Rows(like="x")))
    before = threading.active_count()
    with options(threads=3, batch=10):
        same(met(X[:30]), X[:30])
    assert len(seen) == 3
    assert threading.active_count() == before
    wait = threading.Barrier(1)
    seen.clear()
    with options(threads=1, batch=10):
        met(X[:30])
    assert seen == {threading.get_ident()}


def test_options_are_those_of_the_thread_and_nest() -> None:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x

    count = pipeline(splittable(counted, x=Rows(), returns=Rows(like="x")))
    with options(threads=1):
        with options(batch=25):
            count(X)
            with options(batch=50):
                count(X)
            in_a_thread(count, X)  # of which nothing was said: all is small
        with options(batch=20):
            count(X)
    assert seen == [25, 25, 50, 50, 20, 20, 10]


def test_each_thread_gets_a_batch() -> None:
    seen: list[int] = []

    def doubled(x: Any) -> Any:
        seen.append(len(x))
        return x * 2

    x = np.arange(300_000.0)
    with options(threads=3, batch="auto"):
        found = pipeline(splittable(doubled, x=Rows(), returns=Rows(like="x")))(x)
    same(found, x * 2)
    assert sorted(seen) == [100_000] * 3


def test_small_inputs_run_plain_and_large_ones_in_batches() -> None:
    seen: list[tuple[type, int]] = []

    def counted(x: Any) -> Any:
        seen.append((type(x), len(x)))
        return x + 1

    count = splittable(counted, x=Rows(), returns=Rows(like="x"))
    body = pipeline(lambda x: count(x) * 2)
    large = np.zeros(2_000_000)
    with options(batch="auto", threads=2):
        for _ in range(2):
            same(body(X), (X + 1) * 2)
        assert [size for _, size in seen] == [50, 50]
        seen.clear()
        body(large)
    assert len(seen) > 2
    assert sum(size for _, size in seen) == len(large)


def test_small_arguments_with_large_products_run_in_batches() -> None:
    x = np.arange(3000.0)
    rows: list[int] = []

    def note(table: Any) -> Any:
        rows.append(len(table))
        return table

    noted = splittable(note, table=Rows(), returns=Rows(like="table"))
    body = pipeline(lambda x: np.sum(noted(x - x[:, np.newaxis]), axis=1))
    with options(batch="auto"):
        for _ in range(2):
            rows.clear()
            found = body(x)
            assert max(rows) < 3000
    np.testing.assert_array_equal(found, np.sum(x - x[:, np.newaxis], axis=1))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda held: held["list"].append(1),
    "extend": lambda held: held["list"].extend([1]),
    "item": lambda held: held["list"].__setitem__(0, 1),
    "add": lambda held: held["list"].__iadd__([1]),
    "clear": lambda held: held["list"].clear(),
    "pop": lambda held: held["list"].pop(),
    "sort": lambda held: held["numbers"].sort(),
    "reverse": lambda held: held["numbers"].reverse(),
    "deleted": lambda held: held["list"].__delitem__(0),
    "key": lambda held: held.__setitem__("new", held["x"] * 2),
    "update": lambda held: held.update(new=1),
    "default": lambda held: held.setdefault("new", 1),
    "popped": lambda held: held.pop("x"),
    "merged": lambda held: held.__ior__({"new": 1}),
    "key deleted": lambda held: held.__delitem__("x"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_lists_and_dicts_of_the_caller_are_read_only(name: str) -> None:
    held = {"x": X, "list": [X, 5], "numbers": [3, 1], "pair": (X, {"y": X})}
    before = {"x": X, "list": [X, 5], "numbers": [3, 1], "pair": (X, {"y": X})}
    calls: list[Any] = [
        lambda body: pipeline(body)(held),
        lambda body: pipeline(body)(held=held),
    ]
    for given in calls:
        with pytest.raises(InvalidArgumentError, match=r"read.only.*(return|copy|new)"):
            given(lambda held: (held["x"] * 2, CHANGES[name](held)))
        same(held, before)
    with (
        split(np.split(X, [20])) as parts,
        pytest.raises(InvalidArgumentError, match=r"read.only"),
    ):
        pipeline(lambda x, held: (x * 2, CHANGES[name](held)))(parts, held)
    same(held, before)


def test_containers_are_read_like_the_callers_own() -> None:
    def body(held: Any) -> Any:
        first, *others = held["list"]
        with_more = [*held["list"], 7]
        with_more.append(held["x"] + 1)
        copied = dict(held, new=1)
        pair, inner = held["pair"]
        return {
            "sum": first * others[0],
            "more": with_more,
            "keys": [*copied],
            "inner": inner["y"] - pair,
            "kinds": (isinstance(held, dict), isinstance(held["list"], list), len(held["list"])),
            "found": (5 in held["numbers"], held.get("none"), sorted(held["numbers"])),
        }

    held = {"x": X, "list": [X, 5], "numbers": [3, 1], "pair": (X, {"y": X})}
    check(body, held)


def test_returned_containers_have_plain_arrays() -> None:
    found = pipeline(lambda x: {"a": [x + 1, (x * 2, {"b": x.max()})], "n": 3})(X)
    assert type(found["a"][0]) is np.ndarray
    assert type(found["a"][1][0]) is np.ndarray
    assert type(found["a"][1][1]["b"]) is np.float64
    kinds: list[Any] = [OrderedDict, lambda **given: defaultdict(list, **given)]
    for make in kinds:
        other = pipeline(lambda x, make=make: make(a=x + 1))(X)
        assert type(other) is type(make())
        assert type(other["a"]) is np.ndarray


PROGRAM = Path(__file__).parents[1] / "programs" / "pipeline_forked.py"
TOTAL = "200000.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("scenario", "written"),
    [
        ("with_pending_calls", [TOTAL, TOTAL]),
        ("after_a_run", [TOTAL, TOTAL]),
        ("in_a_batch", ["ForkedError", TOTAL]),
    ],
)
def test_forks_get_the_right_values_or_an_error(scenario: str, written: list[str]) -> None:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(ended.stdout.split()) == sorted(written)
