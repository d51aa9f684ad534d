"""Annotations, options and functions that are refused, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spliter import AnnotationError, InvalidArgumentError, split
from spliter.pipeline import (
    Axis,
    Groups,
    Reduction,
    Rows,
    SplitType,
    explain,
    module,
    mut,
    options,
    pipeline,
    splittable,
    unknown,
)
from spliter.pipeline._annotations import functions_of
from tests.pipeline.checks import same

pytestmark = pytest.mark.usefixtures("small_batches")

ROWS = Rows()


def numbers() -> Any:
    return np.arange(1.0, 101)


def first(x: Any) -> Any:
    return x, x


class NoMerge(SplitType):
    def split(self, value: Any, start: int, stop: int) -> Any:
        return value[start:stop]


@dataclass(frozen=True)
class Lists(SplitType):
    """Lists, with a wrong length or wrong bytes, or with a parameter that has no hash."""

    items: Any = 8
    size: Any = 64

    def length(self, value: Any) -> Any:
        return self.items

    def nbytes(self, value: Any) -> Any:
        return self.size

    def split(self, value: Any, start: int, stop: int) -> Any:
        return value[start:stop]


@pytest.mark.parametrize(
    "kind",
    [
        *(Lists(items="x"), Lists(items=None), Lists(items=-1), Lists(items=[])),
        *(Lists(size=None), Lists(size=float("nan")), Lists(size="x")),
    ],
)
def test_types_with_wrong_numbers_are_named(kind: Any) -> None:
    with pytest.raises(AnnotationError, match="Lists"), options(batch="auto"):
        pipeline(splittable(len, obj=kind, returns=Reduction(merge=max)))([1.0] * 8)


ANNOTATIONS: list[tuple[dict[str, Any], str]] = [
    ({"y": ROWS}, "no parameter 'y'; its parameters are x"),
    ({"x": "rows"}, "'rows', which is not a split type"),
    ({"x": Rows}, "which is not a split type"),
    ({"x": mut("a")}, "'a', which is not a split type"),  # type: ignore[arg-type]
    ({"x": mut(mut(ROWS))}, "which is not a split type"),  # type: ignore[arg-type]
    ({"x": Reduction(merge=max)}, "which is for results"),
    ({"x": Groups()}, "which is for results"),
    ({"x": unknown}, "which is for results"),
    ({"x": mut(unknown)}, "which is for results"),
    ({"returns": mut(ROWS)}, "which is not a split type"),
    ({"returns": NoMerge()}, "NoMerge has no method merge"),
    ({"returns": (ROWS,)}, "a tuple has two types or more"),
    ({"returns": (ROWS, Reduction(np.max, max))}, "would make one of them"),
    ({"returns": Rows(like="z")}, "'z'"),
]


@pytest.mark.parametrize(("types", "text"), ANNOTATIONS, ids=[text for _, text in ANNOTATIONS])
def test_annotations_that_cannot_be_meant(types: dict[str, Any], text: str) -> None:
    with pytest.raises(AnnotationError, match=text):
        splittable(first, **{"x": ROWS, "returns": ROWS, **types})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Reduction, "no function to merge, got None"),
        (lambda: Reduction(merge=3), "no function to merge, got 3"),  # type: ignore[arg-type]
        (lambda: Axis(1.5), r"axis is 1\.5; pass an int"),  # type: ignore[arg-type]
        (lambda: Groups("cumsum"), "Groups has the aggregate 'cumsum'.*pass"),
        (lambda: Rows(dtype="no dtype"), "no dtype"),
        (lambda: Rows(dtype="f8", shape=(-1,)), "-1"),
        (lambda: Rows(like=3), "3"),  # type: ignore[arg-type]
        (lambda: splittable(3, returns=ROWS), "function|callable"),  # type: ignore[arg-type]
        (lambda: splittable(max, returns=ROWS), "no signature.*wrap it"),
        (lambda: splittable(lambda *xs: xs, xs=ROWS, returns=ROWS), "any number of arguments"),
    ],
)
def test_types_that_cannot_be_meant(make: Callable[[], Any], text: str) -> None:
    with pytest.raises((AnnotationError, InvalidArgumentError), match=text):
        make()


@pytest.mark.parametrize("base", [Rows, Axis, Groups, Reduction])
def test_types_of_the_package_are_not_derived_from(base: type) -> None:
    with pytest.raises(AnnotationError, match=f"Sorted is derived from {base.__name__}"):
        type("Sorted", (base,), {"merge": lambda self, pieces: np.sort(np.concatenate(pieces))})


def test_groups_are_frames() -> None:
    with pytest.raises(AnnotationError, match=r"ndarray.*return the group-by"):
        pipeline(splittable(np.negative, x=ROWS, returns=Groups("sum")))(numbers())


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "all"])
@pytest.mark.parametrize("name", ["threads", "batch"])
def test_wrong_options(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is .*pass"), options(**{name: wrong}):
        pass


def test_there_is_no_pedantic_mode() -> None:
    with pytest.raises(TypeError, match="pedantic"), options(pedantic=True):  # type: ignore[call-arg]
        pass


def test_functions_that_cannot_be_pipelines() -> None:
    def generator(x: Any) -> Any:
        yield x

    async def coroutine(x: Any) -> Any:
        return x

    with pytest.raises(InvalidArgumentError, match="generator function"):
        pipeline(generator)
    with pytest.raises(InvalidArgumentError, match=r"coroutine|async"):
        pipeline(coroutine)
    with pytest.raises(InvalidArgumentError, match="must be a function"):
        pipeline(3)  # type: ignore[arg-type]


def test_explain_takes_no_split() -> None:
    with (
        split([numbers()]) as parts,
        pytest.raises(InvalidArgumentError, match="pass rows like those of a partition"),
    ):
        explain(pipeline(np.sqrt), parts)


def test_modules_that_are_not_there() -> None:
    with pytest.raises(ImportError):
        module("no_such_module")
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = module("math").no_such_function


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of another package."""

    table: Any
    name: str = "statistics"
    value: str = "statistics_annotations:TABLE"

    def load(self) -> Any:
        return self.table


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """A function that has another package offer a table of annotations."""

    def offer(table: Any) -> None:
        def entry_points(group: str, name: str) -> list[EntryPoint]:
            is_asked = (group, name) == ("spliter.annotations", "statistics")
            return [EntryPoint(table)] if is_asked else []

        monkeypatch.setattr("importlib.metadata.entry_points", entry_points)

    functions_of.cache_clear()
    yield offer
    functions_of.cache_clear()


@pytest.mark.parametrize("table", [["statistics.fmean"], {"statistics.fmean": {"data": ROWS}}])
def test_tables_of_other_packages_that_are_wrong(offer: Any, table: Any) -> None:
    offer(table)
    with pytest.raises(AnnotationError, match="statistics_annotations:TABLE, must be a dict"):
        module("statistics").fmean([1.0, 2.0])


def test_other_packages_bring_annotations(offer: Any) -> None:
    offer({"statistics.fmean": {"data": ROWS, "returns": Reduction(merge=max)}})
    statistics = module("statistics")
    with options(batch=2):
        assert pipeline(statistics.fmean)([1.0, 2.0, 3.0, 5.0]) == 4.0
    assert statistics.median([1, 2, 3]) == 2
    same(np.float64(statistics.fmean([1.0, 2.0])), np.float64(1.5))
