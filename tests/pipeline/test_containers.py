"""Lists and dicts of the caller: what others change in them, what is in them at the end."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.pipeline import Rows, explain, pipeline, splittable

pytestmark = pytest.mark.usefixtures("small_batches")

X = np.linspace(0.0, 1.0, 40)


def callback(wrap: Any) -> Any:
    log: list[Any] = []

    def body(x: Any, log: Any, call: Any) -> Any:
        log.append("a")
        call("b")
        log.append(x.sum())
        return x + 1, log

    _, returned = wrap(body)(X, log, log.append)
    return log, returned is log


def other_name(wrap: Any) -> Any:
    log: list[int] = []

    def body(x: Any, given: Any) -> Any:
        log.append(1)
        return x + 1, len(given), given is log

    return *wrap(body)(X, log), log


def in_threads(wrap: Any) -> Any:
    found: dict[Any, Any] = {"x": X}
    names: dict[int, str] = {}

    def body(found: Any, names: Any, at: int) -> None:
        found[at] = found["x"] * at
        names[at] = f"{float(found['x'].sum()):.3f}"
        everybody.wait()

    everybody = threading.Barrier(6, timeout=60)
    threads = [threading.Thread(target=wrap(body), args=(found, names, at)) for at in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [found[at] for at in ("x", *range(6))], sorted(names.items())


def appended_by_others(wrap: Any) -> Any:
    held = [X]

    def body(held: Any, call: Any) -> None:
        call(3)
        held.append(held[0] * 2)

    wrap(body)(held, held.append)
    return held


def removed(wrap: Any) -> Any:
    held: dict[str, Any] = {"a": X, "b": X, "c": 1}

    def body(held: Any, call: Any) -> None:
        call(d=4)
        del held["b"]
        held["c"] = held["a"] + 1

    wrap(body)(held, held.update)
    return held


def subclasses(wrap: Any) -> Any:
    held: tuple[Any, ...] = collections.defaultdict(list), collections.OrderedDict(), Items()

    def body(x: Any, lists: Any, ordered: Any, items: Any) -> None:
        lists["k"].append(x + 1)
        ordered["k"] = x + 2
        items.append(x * 2)

    wrap(body)(X, *held)
    return [type(each) for each in held], held[0]["k"][0], held[1]["k"], held[2][0]


class Items(list[Any]):
    """A class of lists."""


class Frozen(dict[str, Any]):
    """A dict that nobody changes."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("frozen")


class Point(tuple[Any, Any]):
    """A tuple with a constructor of its own."""

    def __new__(cls, x: Any, y: Any) -> Any:
        return super().__new__(cls, (x, y))


def own_classes(wrap: Any) -> Any:
    scaled = splittable(lambda x, by: x * by[1], x=Rows(), returns=Rows())
    point, frozen, found = wrap(
        lambda x: (Point(x + 1, 2), Frozen(x=x + 1), scaled(x + 0, Point(1, 2)))
    )(X)
    return type(point), point[0], type(frozen), frozen["x"], found


def appended_beside_a_change(wrap: Any) -> Any:
    held: list[Any] = [X, X]

    def body(held: Any, call: Any) -> None:
        call("log")
        held[0] = held[0] * 2

    wrap(body)(held, held.append)
    return held


def in_a_tree(wrap: Any) -> Any:
    root: dict[str, Any] = {"children": []}
    child = {"parent": root}
    root["children"].append(child)
    log: list[Any] = []
    log.append(log)

    def body(x: Any, node: Any, given: Any) -> Any:
        node["v"] = x + 1
        given.append(0)
        return child["parent"]["v"].sum(), len(log), given is log

    return *wrap(body)(X, root, log), root["v"]


def in_results(wrap: Any) -> Any:
    lists, inner = [X], {"in": [X], "n": 0}
    log: list[Any] = []

    def body(lists: Any, inner: Any, log: Any) -> Any:
        inner["y"] = lists[0] + 1
        log.append([inner["y"] * 2, inner])
        return {"t": (lists, inner), "in": [inner["in"]]}

    found = wrap(body)(lists, inner, log)
    pairs = (found["t"][0], lists), (found["t"][1], inner), (found["in"][0], inner["in"])
    return [one is other for one, other in (*pairs, (log[0][1], inner))], log[0][0], inner["y"]


def after_an_error(wrap: Any) -> Any:
    held: dict[str, Any] = {}

    def body(x: Any, held: Any) -> None:
        held["a"] = x + 1
        held["b"] = [x * 2, 1]
        raise KeyError("x")

    with pytest.raises(KeyError):
        wrap(body)(X, held)
    return held["a"], held["b"][0], [*held]


PROGRAMS: list[Callable[[Any], Any]] = [
    *(callback, other_name, in_threads, appended_by_others, removed, subclasses, own_classes),
    *(appended_beside_a_change, in_a_tree, in_results, after_an_error),
]


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            same(*pair)
    elif isinstance(one, dict):
        same([*one.items()], [*other.items()])
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("program", PROGRAMS)
def test_containers_are_as_after_the_plain_program(program: Callable[[Any], Any]) -> None:
    found, expected = program(pipeline), program(lambda fn: fn)
    if program is removed:  # in another order
        found, expected = sorted(found.items()), sorted(expected.items())
    same(found, expected)


def test_what_was_not_computed_is_removed() -> None:
    def body(x: Any, held: Any) -> None:
        held["a"] = x + 1
        with np.errstate(divide="raise"):
            held["b"] = 1 / (x - x)
        held["c"] = held["b"] + 1

    held: dict[str, Any] = {"z": 1}
    with pytest.raises(FloatingPointError):
        pipeline(body)(X, held)
    same(held, {"z": 1, "a": X + 1})


def caught(x: Any, held: Any) -> None:
    try:
        held.append(root(x))
        float(held[-1].sum())
    except FloatingPointError:
        held.append("err")
    held.append((x * 2).sum())


def raises_later(x: Any, held: Any) -> None:
    held.append("err")
    held.append((x * 2).sum())
    held.append(root(x).sum())
    raise ValueError("the error before comes first")


def root(x: Any) -> Any:
    with np.errstate(invalid="raise"):
        return np.sqrt(x - 2)


@pytest.mark.parametrize("body", [caught, raises_later])
@pytest.mark.parametrize("is_split", [False, True])
def test_lost_values_are_no_longer_in_lists(body: Any, is_split: bool) -> None:
    held: list[Any] = []
    with pytest.raises(FloatingPointError, match="sqrt"):
        pipeline(body)(split([X[:9], X[9:]]) if is_split else X, held)
    assert held == ["err", pytest.approx(2 * X.sum())]
    assert type(held[1]) is np.float64


def test_explain_leaves_nothing_in_lists() -> None:
    held: list[Any] = []
    assert "multiply" in explain(lambda x, held: held.append(x * 2), X, held)
    assert not held


def test_containers_may_hold_themselves() -> None:
    def body(held: Any, settings: Any) -> Any:
        held["y"] = held["x"] * settings["k"]
        held["me"] = held
        result: list[Any] = [held["y"] + 1]
        result.append(result)
        return result

    held: dict[str, Any] = {"x": X}
    settings: dict[str, Any] = {"k": 2}
    settings["self"] = settings
    result = pipeline(body)(held, settings)
    assert held["me"] is held
    assert settings["self"] is settings
    assert result[1] is result
    same([held["y"], result[0]], [X * 2, X * 2 + 1])
    by = splittable(lambda x, by: x * by["k"], x=Rows(), returns=Rows())
    same(pipeline(lambda x: by(x, settings))(X), X * 2)


def test_lists_that_hold_lists_twice_take_no_longer() -> None:
    def nested(x: Any) -> Any:
        items = [x]
        for _ in range(40):
            items = [items, items]
        return items

    found = pipeline(lambda items: nested(items[0] + 1))([X])
    for _ in range(40):
        assert found[0] is found[1]
        found = found[0]
    same(found, [X + 1])
