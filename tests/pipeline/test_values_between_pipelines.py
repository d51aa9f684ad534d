"""Lazy values that one pipeline over a Split has made, or none, and another one uses."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, gather, split
from spliter.pipeline import Rows, broadcast, explain, lazy, options, pipeline, splittable
from spliter.pipeline._over_split import passes

TABLE = np.random.default_rng(4).normal(size=(76, 3))


def parts() -> Any:
    return split(np.split(TABLE, [5, 5, 45]))


def whole(found: Any) -> Any:
    return np.concatenate(found)


@pytest.mark.parametrize(
    "call",
    [
        lambda fn, parts, other: fn(parts, other),
        lambda fn, parts, other: fn(parts, other=other),
        lambda fn, parts, other: pipeline(lambda x, held: fn.__wrapped__(x, held[0]))(
            parts, [other]
        ),
        lambda fn, parts, other: pipeline(lambda x: fn.__wrapped__(x, other))(parts),
    ],
)
def test_lazy_values_are_used_beside_a_split(call: Callable[..., Any]) -> None:
    fn = pipeline(lambda x, other: (x - other) * other.max())
    for make in (lazy, lambda each: lazy(each) * 1, lambda each: lazy(each)[:]):
        other = make(np.arange(3.0))
        for _ in range(2):
            np.testing.assert_array_equal(
                whole(call(fn, parts(), other)), (TABLE - np.arange(3)) * 2
            )
        np.testing.assert_array_equal(fn(TABLE, other), (TABLE - np.arange(3)) * 2)
        np.testing.assert_array_equal(other + 1, [1, 2, 3])


def test_lazy_values_of_the_caller_stay_in_lists() -> None:
    other = lazy(np.arange(3.0))
    held = [other]
    made = pipeline(lambda x, held: held.append(x.sum(axis=0)) or x * held[0])(parts(), held)
    np.testing.assert_array_equal(whole(made), TABLE * np.arange(3))
    assert held[0] is other
    np.testing.assert_allclose(held[1], TABLE.sum(axis=0))
    assert isinstance(held[1], np.ndarray)


class Scaler:
    """Keeps what it has learned, as estimators do."""

    @pipeline
    def fit(self, x: Any) -> Any:
        self.mean, self.largest = x.mean(axis=0), np.abs(x).max()
        self.half, self.first = self.mean / 2, self.mean[:1]
        self.rows = x + 1
        return x.sum()

    @pipeline
    def transform(self, x: Any) -> Any:
        return (x - self.mean - self.half - self.first) / self.largest

    @pipeline
    def drift(self, x: Any) -> Any:
        shifted = x - self.mean
        self.mean += 1
        return shifted


def test_values_that_a_pipeline_keeps_are_used_by_the_next() -> None:
    scaler, plain = Scaler(), Scaler()
    plain.fit(TABLE)  # arrays this small run plain
    expected = plain.transform(TABLE)
    for _ in range(2):
        scaler.fit(parts())
        for _ in range(2):
            np.testing.assert_allclose(whole(scaler.transform(parts())), expected)
        np.testing.assert_allclose(scaler.transform(TABLE), expected)
        np.testing.assert_allclose(scaler.mean * 2, plain.mean * 2)
    np.testing.assert_allclose(whole(scaler.drift(parts())), TABLE - plain.mean)
    np.testing.assert_allclose(scaler.mean, plain.mean + 1)


def test_rows_that_a_pipeline_keeps_are_not_used_by_the_next() -> None:
    scaler = Scaler()
    scaler.fit(parts())
    with pytest.raises(InvalidArgumentError, match="rows of pipelines over several Splits"):
        pipeline(lambda x: x - scaler.rows)(parts())
    np.testing.assert_allclose(float(scaler.rows.sum()), (TABLE + 1).sum())


def test_a_pipeline_over_a_split_in_one_of_arrays() -> None:
    @pipeline
    def outer(x: Any) -> Any:
        before = x + 1
        inner = pipeline(lambda rows, by: rows * by.sum())(parts(), before)
        before *= 2
        return whole(inner), before

    found, changed = outer(np.arange(3.0))
    np.testing.assert_array_equal(found, TABLE * 6)
    np.testing.assert_array_equal(changed, [2, 4, 6])


def test_a_pipeline_over_another_split_in_one() -> None:
    others = split([TABLE[:9] + 1, TABLE[9:30]])
    inner = pipeline(lambda rows, by: rows - by)

    @pipeline
    def outer(x: Any) -> Any:
        mean = x.mean(axis=0)
        kept: Any = []
        pipeline(lambda rows: kept.append(rows.sum(axis=0)) or 0)(others)
        return x - mean, inner(others, mean), x + kept[0]

    rows = np.concatenate([TABLE[:9] + 1, TABLE[9:30]])
    for found, expected in zip(
        outer(parts()),
        (TABLE - TABLE.mean(axis=0), rows - TABLE.mean(axis=0), TABLE + rows.sum(axis=0)),
        strict=True,
    ):
        np.testing.assert_allclose(whole(found), expected)


def learn(x: Any, state: dict[str, Any], error: type[BaseException] | None) -> Any:
    state["mean"], state["n"] = x.mean(axis=0), x.sum()
    state["both"] = state["mean"] * 2
    if error is not None:
        raise error("stop")
    return x


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_values_kept_before_an_error_are_used(error: type[BaseException]) -> None:
    kept: dict[str, Any] = {}
    with pytest.raises(error):
        pipeline(lambda x: learn(x, kept, error))(parts())
    found = pipeline(lambda x: (x - kept["mean"]) * kept["n"] + kept["both"])(parts())
    mean = TABLE.mean(axis=0)
    np.testing.assert_allclose(whole(found), (TABLE - mean) * TABLE.sum() + mean * 2)


def test_a_pass_that_is_interrupted_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}
    interrupts = iter([KeyboardInterrupt])

    def gathered(futures: Any) -> Any:
        for each in interrupts:
            raise each
        return gather(futures)

    with monkeypatch.context() as patched:
        patched.setattr(passes, "gather", gathered)
        with pytest.raises(KeyboardInterrupt):
            pipeline(lambda x: learn(x, kept, None))(parts())
    np.testing.assert_allclose(kept["both"], TABLE.mean(axis=0) * 2)
    np.testing.assert_allclose(float(kept["n"]), TABLE.sum())


def test_threads_use_one_value_in_pipelines_of_their_own() -> None:
    wrong: list[object] = []

    def run(argument: Any, value: Any, start: threading.Barrier) -> None:
        start.wait(30)
        try:
            found = pipeline(lambda x: x * value)(argument)
            np.testing.assert_array_equal(
                whole(found) if isinstance(found, list) else found, TABLE * np.arange(3)
            )
            np.testing.assert_array_equal(value, np.arange(3))
        except BaseException as error:
            wrong.append(error)
            raise

    for number in range(60):
        value = lazy(np.arange(3.0)) if number % 2 else lazy(np.arange(3.0) / 2) * 2
        start = threading.Barrier(3)
        threads = [
            threading.Thread(target=run, args=(each, value, start), daemon=True)
            for each in (parts(), parts(), TABLE)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        assert not any(each.is_alive() for each in threads)
    assert not wrong


def test_threads_return_what_follows_from_one_value() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(sum=x.sum(axis=0)))(parts())
    expected = np.asarray(kept["sum"]) * 1.0 + 40
    changes = threading.Lock()

    @pipeline
    def change(x: Any) -> Any:
        with changes:
            kept["sum"] += 1
            now = kept["sum"] * 1.0
        return x.sum(axis=0), now

    def run() -> None:
        start.wait(30)
        made.extend(change(parts())[1][0] for _ in range(10))

    made: list[Any] = []
    start = threading.Barrier(4)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, daemon=True) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_allclose(np.sort(made), expected[0] - np.arange(40)[::-1])
    np.testing.assert_allclose(kept["sum"], expected)


def test_a_value_that_another_thread_computes_is_waited_for() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(sum=x.sum(axis=0)))(parts())
    is_computed = threading.Event()

    @splittable(value=broadcast, returns=broadcast)
    def halved(value: Any) -> Any:
        is_computed.set()
        time.sleep(0.05)
        return value / 2

    def run() -> None:
        made.append(pipeline(lambda x: (x.sum(axis=0), halved(kept["sum"])))(parts())[1])

    made: list[Any] = []
    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for each in threads:
        each.start()
        assert is_computed.wait(30)
    for each in threads:
        each.join(30)
    np.testing.assert_allclose(made, [TABLE.sum(axis=0) / 2] * 3)


@pytest.mark.usefixtures("small_batches")
def test_pipelines_of_arrays_are_cut_beside_values_of_one_over_a_split() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(mean=x.mean(axis=0)))(parts())
    body = pipeline(lambda x: np.sqrt((x - kept["mean"]) ** 2 + 1))
    np.testing.assert_allclose(body(TABLE), np.sqrt((TABLE - TABLE.mean(axis=0)) ** 2 + 1))
    assert "stage 1: 76 items in batches" in explain(body, TABLE)


def test_rows_of_one_pipeline_and_numbers_of_another() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2, mean=x.mean()))(parts())
    pipeline(lambda x: kept.update(others=x * 3, sum=x.sum()))(parts())
    for rows, number in (("rows", "sum"), ("others", "mean"), ("rows", "mean")):
        expected = TABLE * (2 if rows == "rows" else 3)
        expected = expected - (TABLE.sum() if number == "sum" else TABLE.mean())
        np.testing.assert_allclose(float((kept[rows] - kept[number]).max()), expected.max())
        found = pipeline(lambda x: kept[rows] - x.sum())(parts())  # noqa: B023
        np.testing.assert_allclose(
            whole(found)[0], TABLE[0] * (2 if rows == "rows" else 3) - TABLE.sum()
        )


def test_values_that_the_body_takes_out_of_lists() -> None:
    def body(x: Any, held: list[Any]) -> Any:
        held.clear()  # objects made next may be where these were in memory
        return [x.sum(axis=0) for _ in range(50)]

    found = pipeline(body)(parts(), [lazy(np.arange(3.0)) for _ in range(50)])
    assert {type(each) for each in found} == {np.ndarray}


def test_kept_rows_that_are_an_argument_are_returned() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2))(parts())
    found = pipeline(lambda x, rows: (rows, {"sum": x.sum(), "rows": rows}))(parts(), kept["rows"])
    np.testing.assert_array_equal(whole(found[0]), TABLE * 2)
    np.testing.assert_array_equal(whole(found[1]["rows"]), TABLE * 2)


@pytest.mark.parametrize("hold", [lambda rows: [rows], lambda rows: {0: rows}])
def test_rows_in_containers_stay_lazy_in_a_pipeline_over_another_split(hold: Any) -> None:
    others = split([TABLE[:4], TABLE[:2]])

    def body(x: Any) -> Any:
        held = hold(x * 2)
        total = pipeline(lambda y, _: y.sum(axis=0))(others, held)
        returned = pipeline(lambda _: (held, held[0]))(others)
        held[0] += 1
        return held[0] - total, np.mean(returned[1], axis=0), returned[0][0].shape

    found, mean, shape = pipeline(body)(parts())
    total = TABLE[:4].sum(axis=0) + TABLE[:2].sum(axis=0)
    np.testing.assert_allclose(whole(found), TABLE * 2 + 1 - total)
    np.testing.assert_allclose(mean, (TABLE * 2 + 1).mean(axis=0))
    assert shape == TABLE.shape


def test_kept_rows_in_a_dict_of_the_caller_stay_lazy() -> None:
    kept: dict[str, Any] = {}
    pipeline(lambda x: kept.update(rows=x * 2))(parts())
    pipeline(lambda x, _: x.sum())(parts(), kept)
    np.testing.assert_allclose(float(kept["rows"].sum()), TABLE.sum() * 2)


def test_values_in_containers_that_annotated_functions_get_whole() -> None:
    shifted = splittable(lambda x, by: x - by["by"][0], x=Rows(), by=broadcast, returns=Rows())

    def body(x: Any, other: Any) -> Any:
        mean = x.mean(axis=0)
        by = {"by": [mean]}
        made = shifted(x, by)
        mean += 1
        by["by"] = [0]
        return made, shifted(x, {"by": (other,)}), mean

    other = np.arange(3.0)
    expected = body(TABLE, other)
    for given in (other, lazy(other)):
        first, second, mean = pipeline(body)(parts(), given)
        for found, wanted in zip((whole(first), whole(second), mean), expected, strict=True):
            np.testing.assert_allclose(found, wanted)
        with options(batch=7, threads=2):
            for found, wanted in zip(pipeline(body)(TABLE, given), expected, strict=True):
                np.testing.assert_allclose(found, wanted)
