"""Small programs as people write them: their results, and their arguments afterwards."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import AnnotationError, InvalidArgumentError, split
from spliter.pipeline import (
    Axis,
    Generic,
    Groups,
    Rows,
    SplitType,
    lazy,
    mut,
    options,
    pipeline,
    splittable,
)


def scale(values: Any) -> None:
    values *= 2


def scaled_sums(x: Any) -> Any:
    sums = np.cumsum(x)
    scale(sums)
    return sums


def raised_parts(x: Any) -> Any:
    parts = [np.cumsum(x), np.percentile(x, [10, 20])]
    for part in parts:
        part += 100  # noqa: PLW2901 -- it changes the array
    return parts


def copied(x: Any) -> Any:
    twin, other = copy.copy(x), x * 1
    alias = other
    twin += 100
    copy.copy(other)[...] = 5
    return twin, alias


def around_median(x: Any) -> Any:
    middle = np.median(x)
    parts = [middle + x, x - middle, np.add(middle, x), np.where(x > middle, x, middle)]
    parts += [np.clip(x, middle, 2 * middle), x**middle, middle**2 * x, middle < x, x == middle]
    return parts, middle / 2 + 1, middle - np.percentile(x, 3), divmod(x, middle)


def written_buffer(x: Any) -> Any:
    twice = x * 2
    memory: Any = np.asarray(twice)
    view: Any = memoryview(memory)
    view[3] = 99.0
    return twice, bytearray(memory), view.tolist()


def masked_between(x: Any) -> Any:
    masked = np.ma.masked_less(np.cumsum(x), 5)
    return (masked + x).filled(-1), (x * masked).sum(), np.add(x, masked).filled(0)


def total(x: Any) -> Any:
    found, first = 0.0, x.sum()
    kept = first
    for number in range(3):
        found += x.sum() * number
    first *= 2
    first -= 1
    return found, kept, first


def collected(x: Any, out: list[Any], named: dict[str, Any]) -> Any:
    out.append(float(x.sum()))
    out[0] = out[0] + 1
    named["twice"] = x * 2
    del named["old"]
    return out


def assigned_nan(x: Any) -> Any:
    counts = x.astype("i8")
    counts[counts > 3] = np.nan
    return counts


class Filter:
    """A method whose function is annotated."""

    factor = 3

    @splittable(x=Rows(), returns=Rows())
    def run(self, x: Any) -> Any:
        return x * self.factor


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "function that changes sums": scaled_sums,
    "loop that changes parts": raised_parts,
    "copies": copied,
    "running total": total,
    "nan for integers": assigned_nan,
    "texts": lambda x: (x * 1000).astype(str) + "%",
    "texts' dtype": lambda x: (x.astype(str).dtype, x.astype("U4").dtype, x.astype(str).nbytes),
    "same array": lambda x: x.astype(float, copy=False).__iadd__(1),
    "another order": lambda x: x.reshape(4, 2).astype("f4", order="F").ravel(),
    "root of integers": lambda x: x.astype(int).__ipow__(0.5),
    "square of flags": lambda x: (x > 3).__ipow__(2),
    "complex number": lambda x: x.__setitem__(slice(None), 1j),
    "rolled": lambda x: x.__setitem__(slice(None), np.roll(x, 1)),
    "sums of itself": lambda x: x.__setitem__(..., np.cumsum(x)),
    "quotients of sums": lambda x: divmod(np.cumsum(x.astype(int)), 3),
    "shifted sums": lambda x: (np.cumsum(x.astype(int)) << 1, 1 << np.cumsum(x.astype(int))),
    "number": lambda x: [x.sum().item(), x.max().astype(int), x.sum()[()], x.sum().reshape(1)],
    "number's class": lambda x: [type(x.sum().copy()).__name__, x.mean().round(1).tolist()],
    "number of repetitions": lambda x: [x.astype(int).max() * "ab", [1, 2] * x.astype(int).max()],
    "number before texts": lambda x: [(1,) * x.astype(int).max(), x.astype(int).max() * b"a"],
    "number as a key": lambda x: [{x.max(): 1}, x.max() in {7}, hash(x.sum()), {x.min(), x.max()}],
    "hash of an array": hash,
    "around a median": around_median,
    "masked between": masked_between,
    "mean of times": lambda x: x.astype("m8[s]").mean(),
    "empty index": lambda x: (x[()], x.__setitem__((), 3)),
    "ordered": lambda x: collections.OrderedDict(b=x * 2, a=x + 1),
    "by default": lambda x: collections.defaultdict(list, a=x + 1),
    "method": Filter().run,
    "bytes": lambda x: bytes(x.astype(np.uint16)),
    "buffer": written_buffer,
}


OTHER = pd.DataFrame({"n": [1, 2, 9], "w": [0.1, 0.2, 0.3]})

FRAMES: dict[str, Callable[[Any], Any]] = {
    "function merge": lambda df: pd.merge(df, OTHER, on="n"),
    "other merges": lambda df: [
        pd.merge(df[df["a"] > 3], OTHER, how="left"),
        pd.merge(OTHER, df, on="n", how="outer"),
        pd.merge(df, df.rename(columns={"a": "b"}), left_on="a", right_on="b"),
        pd.merge(df, OTHER, left_index=True, right_index=True),
    ],
    "query with names": lambda df: df.query("a > @OTHER.n.min() and a < @df.a.max()"),
    "expression with names": lambda df: df.eval("b = a * @df.n.max() + n"),
    "around a description": lambda df: [
        df.describe() + df["a"].max(),
        df["a"] - df["a"].median(),
        df["a"] > df["n"].quantile(0.3),
        df[["a", "n"]] - df[["a", "n"]].median(),
    ],
    "rows up to a number": lambda df: df.iloc[: df["n"].max()],
}


def outcome(fn: Callable[..., Any], *given: Any) -> Any:
    try:
        return fn(*given)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(other, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(other, list | tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            same(first, second)
    elif isinstance(other, pd.DataFrame | pd.Series):
        assert one.equals(other)
        assert one.axes[-1].equals(other.axes[-1])
    elif isinstance(other, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    else:
        assert one == other


def check(program: Callable[[Any], Any]) -> None:
    """Fail unless result, error and argument of a pipeline are those of its body."""
    plain, ours = np.arange(8.0), np.arange(8.0)
    expected = outcome(program, plain)
    with options(batch=3, threads=2):
        found = outcome(pipeline(program), ours)
    same(found, expected)
    same(ours, plain)


@pytest.mark.parametrize("name", ARRAYS)
def test_results_and_arguments_are_those_of_the_plain_program(name: str) -> None:
    check(ARRAYS[name])


@pytest.mark.parametrize("name", FRAMES)
def test_results_of_frames_are_those_of_the_plain_program(name: str) -> None:
    frame = pd.DataFrame({"n": np.arange(20) % 7, "a": np.arange(20.0)})
    expected = FRAMES[name](frame.copy())
    with options(batch=3, threads=2):
        found = pipeline(FRAMES[name])(frame.copy())
    same(found, expected)


def test_an_object_passed_twice_is_one_object() -> None:
    def body(items: Any, more: Any, named: Any, frame: Any, other: Any) -> Any:
        items.append(1)
        more.append(2)
        named["a"].append(3)
        frame["z"] = frame["n"] * 2
        other["w"] = 1
        return items is more, named["a"] is named["b"], list(frame.columns), list(other.columns)

    outcomes = []
    for run in (body, pipeline(body)):
        items, shared, frame = [np.ones(20)], [np.zeros(20)], pd.DataFrame({"n": np.arange(20)})
        with options(batch=3):
            found = run(items, items, {"a": shared, "b": shared}, frame, frame)
        outcomes.append((found, len(items), len(shared), list(frame.columns)))
    assert outcomes[0] == outcomes[1]


def test_lists_and_dicts_of_the_caller_change_as_in_the_plain_program() -> None:
    x, untouched = np.arange(8.0), np.ones(3)
    out: list[Any] = [1.0]
    named: dict[str, Any] = {"old": x, "kept": untouched}
    with options(batch=3, threads=2):
        found = pipeline(collected)(x, out, named)
    assert found is out
    assert out == [2.0, 28.0]
    assert list(named) == ["kept", "twice"]
    assert named["kept"] is untouched
    same(named["twice"], x * 2)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_changes_before_an_error_are_those_of_the_plain_program(kind: type[BaseException]) -> None:
    x, out, named = np.arange(8.0), [0.0], {"old": 1}

    def body(x: Any, out: list[Any], named: dict[str, Any]) -> None:
        x += 1
        out.append(x.sum())
        named["new"] = x * 2
        raise kind

    with options(batch=3), pytest.raises(kind):
        pipeline(body)(x, out, named)
    same(x, np.arange(1.0, 9.0))
    assert out == [0.0, 36.0]
    same(named["new"], x * 2)


class Measured(np.ndarray[Any, Any]):
    """An array with a unit."""

    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", None)


@pytest.mark.parametrize("axis", [0, 1])
def test_annotated_functions_keep_subclasses_of_arrays(axis: int) -> None:
    values = np.arange(48.0).reshape(6, 8)
    measured = values.view(Measured)
    measured.unit = "m"
    double = splittable(lambda x: x * 2, x=Axis(axis), returns=Axis(axis))
    with options(batch=3, threads=2):
        found = pipeline(double)(measured)
        assert (type(found), found.unit) == (Measured, "m")
        np.testing.assert_array_equal(np.asarray(found), values * 2)
        masked = pipeline(double)(np.ma.masked_greater(values, 30))
        assert type(masked) is np.ma.MaskedArray
        assert masked.count() == 31
        np.testing.assert_array_equal(masked.filled(-1), np.where(values > 30, -1, values * 2))


def test_a_copy_of_a_lazy_array_is_another_array() -> None:
    x = np.arange(8.0)
    twin = copy.copy(lazy(x))
    twin += 100
    same(x, np.arange(8.0))
    same(np.asarray(twin), x + 100)


def test_values_in_other_objects_change_at_once_after_the_return() -> None:
    x = np.arange(8.0)

    class Result:
        values: Any

    def hold(x: Any) -> Any:
        result = Result()
        result.values = x
        return result

    with options(batch=3):
        pipeline(hold)(x).values += 100
    same(x, np.arange(100.0, 108.0))


def test_groups_keep_missing_keys() -> None:
    frame = pd.DataFrame({"k": [1.0, np.nan, 1.0, np.nan], "v": [1, 2, 3, 4]})

    def sums(frame: Any) -> Any:
        return frame.groupby("k", dropna=False)["v"].sum()

    ours = pipeline(splittable(sums, frame=Rows(), returns=Groups("sum")))
    with options(batch=2):
        pd.testing.assert_series_equal(ours(frame), sums(frame))


def double_first(m: Any) -> None:
    if isinstance(m, pd.DataFrame):
        m["a"] = m["a"] * 2
    else:
        m[0] = m[0] * 2


@pytest.mark.parametrize("kind", [Rows(), Generic("S")])
def test_values_that_are_not_cut_into_views_are_changed_whole(kind: Any) -> None:
    changed = pipeline(splittable(double_first, m=mut(kind), returns=None))
    for value in (pd.DataFrame({"a": np.ones(20)}), [1.0] * 20, pd.Series(np.ones(20))):
        ours, plain = copy.deepcopy(value), copy.deepcopy(value)
        double_first(plain)
        with options(batch=3):
            changed(ours)
        same(ours, plain)


@pytest.mark.parametrize("rows", [1, 20])
def test_a_result_of_a_function_annotated_without_one_is_not_dropped(rows: int) -> None:
    doubled = splittable(lambda x: x * 2, x=Rows(), returns=None)
    with (
        options(batch=3),
        pytest.raises(AnnotationError, match=r"py:\d+\) returned ndarray.*returns=None"),
    ):
        pipeline(doubled)(np.arange(rows))


def test_annotations_of_more_results_than_there_are_are_refused() -> None:
    two = splittable(lambda x: x + 1, x=Rows(), returns=(Rows(), Rows()))
    with options(batch=3), pytest.raises(AnnotationError, match="returned 1 results"):
        pipeline(two)(np.arange(8.0))


@pytest.mark.parametrize(
    ("second", "differing"),
    [
        ({"v": [0.5], "c": ["a"]}, r"\{'v': 'float64'\}.*\{'v': 'int64'\}"),
        ({"v": [1], "c": ["a"], "w": [1]}, r"\{'w': 'int64'\}.*\{'w': None\}"),
        ({"c": ["a"]}, r"\{'v': None\}.*\{'v': 'int64'\}"),
    ],
)
def test_blocks_with_other_columns_are_refused(second: Any, differing: str) -> None:
    first = pd.DataFrame({"v": [1, 2], "c": ["a", "b"]})
    with (
        split([first, pd.DataFrame(second)]) as parts,
        pytest.raises(InvalidArgumentError, match=differing),
    ):
        pipeline(lambda df: df["v"] // 2)(parts)


def test_categories_of_blocks_may_differ() -> None:
    given = (["a", "b"], ["b", "z"])
    frames = [pd.DataFrame({"c": pd.Categorical(each), "v": 1}) for each in given]
    with split(frames) as parts:
        found = pipeline(lambda df: df.groupby("c")["v"].sum())(parts)
    assert found.to_dict() == {"a": 1, "b": 2, "z": 1}


def test_blocks_of_another_dtype_are_refused() -> None:
    blocks = [np.full(3, 100, "i1"), np.full(3, 1000, "i2")]
    with split(blocks) as parts, pytest.raises(InvalidArgumentError, match=r"dtype int16.*int8"):
        pipeline(lambda b: b + 100)(parts)


@dataclass(frozen=True)
class Film:
    """A value of a class that nobody knows, without a length."""

    pictures: tuple[int, ...]
    nbytes_each: int


class Pictures(SplitType):
    """The pictures of films, which know their bytes."""

    def length(self, value: Film) -> int:
        return len(value.pictures)

    def nbytes(self, value: Film) -> int:
        return len(value.pictures) * value.nbytes_each

    def split(self, value: Film, start: int, stop: int) -> Film:
        return replace(value, pictures=value.pictures[start:stop])

    def merge(self, pieces: Sequence[Film]) -> Film:
        return replace(pieces[0], pictures=tuple(n for each in pieces for n in each.pictures))


class Texts(SplitType):
    """Lists of texts, which know their bytes."""

    def nbytes(self, value: list[str]) -> int:
        return sum(map(len, value))

    def split(self, value: list[str], start: int, stop: int) -> list[str]:
        return value[start:stop]

    def merge(self, pieces: Any) -> list[str]:
        return [text for piece in pieces for text in piece]


def test_types_know_whether_their_values_are_small() -> None:
    lengths: list[int] = []

    def doubled(film: Film) -> Film:
        lengths.append(len(film.pictures))
        return replace(film, pictures=tuple(2 * n for n in film.pictures))

    def upper(texts: list[str]) -> list[str]:
        lengths.append(len(texts))
        return [text.upper() for text in texts]

    films = pipeline(splittable(doubled, film=Pictures(), returns=Pictures()))
    letters = pipeline(splittable(upper, texts=Texts(), returns=Texts()))
    with options(batch="auto", threads=1):
        for nbytes, is_cut in ((1, False), (2**22, True), (1, False)):
            film = Film(tuple(range(20)), nbytes)
            assert films(film) == Film(tuple(range(0, 40, 2)), nbytes)
            assert letters(["a" * nbytes] * 20) == ["A" * nbytes] * 20
            assert (20 not in lengths) is is_cut
            assert sum(lengths) == 40
            lengths.clear()
