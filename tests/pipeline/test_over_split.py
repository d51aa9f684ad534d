"""One function for arrays and for a Split: passes, results blocked alike, nothing moved."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import AnnotationError, InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import Reduction, Rows, options, pipeline, splittable, unknown

LENGTHS = [5, 0, 40, 1, 30]
DRAW = np.random.default_rng(2)
TABLE = DRAW.normal(size=(sum(LENGTHS), 3))
WEIGHTS = DRAW.uniform(1, 2, sum(LENGTHS))


def blocks(whole: Any) -> list[Any]:
    return np.split(whole, np.cumsum(LENGTHS)[:-1])


def standardized(x: Any) -> Any:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def summary(x: Any, weights: Any) -> Any:
    total = float(weights.sum())
    heavy = x[weights > 1.5]
    return {
        "rows": x[:, 0] * weights / total,
        "converted": x[:, 1].astype("f4") * 2,
        "sorted": np.sort(x, axis=1),
        "heavy": heavy + 1,
        "max": x.max(axis=0, keepdims=True),
        "of heavy": heavy.sum(axis=0),
        "centred": x - x.min(axis=0, keepdims=True),
    }


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def scaled(x: Any) -> Any:
    y = x * 2
    y -= y.mean()
    y /= np.abs(y).max()
    y -= y.mean(axis=0)
    y *= y.max(axis=0, keepdims=True)
    np.multiply(y, x.sum(), out=y)
    return y


def assigned(x: Any) -> Any:
    y = x * 2
    y **= 2
    y[y > 1] = y.min()
    z = x * 1
    z[...] = y
    z[z < 0.5] = 0.25
    y[:] = z + y.mean()
    return y


@pytest.mark.parametrize("body", [standardized, scaled, assigned])
@pytest.mark.parametrize("batch", ["auto", 7])
def test_results_with_rows_are_blocked_alike(batch: Any, body: Callable[[Any], Any]) -> None:
    with options(batch=batch), split(blocks(TABLE)) as parts:
        found = pipeline(body)(parts)
    assert [len(block) for block in found] == LENGTHS
    close(np.concatenate(found), body(TABLE))


@pytest.mark.parametrize("name", ["min", "max", "mean", "std", "var", "argmin", "argmax"])
@pytest.mark.parametrize("batch", ["auto", 1, 7])
def test_blocks_in_the_order_of_fortran_are_reduced(name: str, batch: Any) -> None:
    parts = split([np.asfortranarray(block) for block in blocks(TABLE)])
    with options(batch=batch), parts:
        found = pipeline(lambda x: getattr(x * 1, name)(axis=0))(parts)
    close(found, getattr(TABLE, name)(axis=0))


def test_indexes_of_small_results_choose_rows() -> None:
    def largest(df: Any) -> Any:
        top = df["k"].value_counts().head(1)
        return df[df["k"].isin(top.index)]["v"].sum()

    frame = pd.DataFrame({"k": [1, 2, 2, 3], "v": [1.0, 2.0, 4.0, 8.0]})
    with split([frame.iloc[:2], frame.iloc[2:]]) as parts:
        assert pipeline(largest)(parts) == 6


def test_aligned_collections_are_as_many_arguments() -> None:
    expected = summary(TABLE, WEIGHTS)
    with options(batch=7):
        found = pipeline(summary)(split(blocks(TABLE), blocks(WEIGHTS)))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        close(np.concatenate(value) if isinstance(value, list) else value, expected[name])


def test_annotated_functions_and_broadcast_arguments() -> None:
    shifted = splittable(lambda x, by: np.hypot(x, by) * 1, x=Rows(), returns=Rows())
    by = np.arange(3.0)
    found = pipeline(lambda x, by: shifted(x, by) + by)(split(blocks(TABLE)), by)
    close(np.concatenate(found), np.hypot(TABLE, by) + by)


@pytest.mark.parametrize("returns", [Rows(), unknown, (Rows(), unknown)])
@pytest.mark.parametrize(
    "result", [lambda x: x[:1], lambda x: None, lambda x: 1.0, lambda x: [1.0], lambda x: [*x, 1]]
)
def test_results_that_are_no_rows_of_a_block_are_refused(result: Any, returns: Any) -> None:
    def wrong(x: Any) -> Any:
        found = result(x)
        return (found, x) if isinstance(returns, tuple) else found

    body = pipeline(splittable(wrong, x=Rows(), returns=returns))
    parts = split([np.ones(5), np.ones(3)])
    if returns is unknown and isinstance(result(np.ones(5)), np.ndarray):
        assert list(map(len, body(parts))) == [1, 1]
        return
    with pytest.raises(AnnotationError, match=r"wrong returned .* (batch of|for a block)"):
        body(parts)


def test_reductions_of_annotated_functions_reach_later_calls() -> None:
    longest = splittable(lambda x: float(np.abs(x).max()), x=Rows(), returns=Reduction(merge=max))
    scaled = splittable(lambda x, by: x / by, x=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        most = longest(x)
        return scaled(x, most), most * 1, scaled(x + 1, x.max())

    found, expected = pipeline(body)(split(blocks(TABLE))), body(TABLE)
    close(np.concatenate(found[0]), expected[0])
    assert found[1] == expected[1]
    close(np.concatenate(found[2]), expected[2])


@pytest.mark.parametrize("batch", ["auto", 7])
@pytest.mark.parametrize("best", [np.argmin, np.argmax])
def test_positions_are_those_in_the_whole(best: Any, batch: Any) -> None:
    ties = np.round(TABLE)
    gaps = np.where(TABLE > 1, np.nan, TABLE)

    def body(x: Any) -> Any:
        return best(x), best(x, axis=0), best(np.copy(x), axis=0, keepdims=True), best(x[:, 0])

    for table in (TABLE, ties, gaps, ties.astype("i4"), ties.astype("M8[s]")):
        with options(batch=batch), split(blocks(table), partitions_per_location=2) as parts:
            for found, expected in zip(pipeline(body)(parts), body(table), strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.backend("dask")
def test_positions_on_dask_and_blocks_with_parts_of_rows(client: Any) -> None:
    import dask.array as da

    ties = np.arange(72) % 7 == 6
    x = da.from_array(ties, chunks=4).persist()
    some = x[da.from_array(np.arange(72) != 3, chunks=4)].persist()  # of unknown lengths
    for collection, whole in ((x, ties), (some, np.delete(ties, 3))):
        found = pipeline(lambda x: (np.argmax(x), np.argmin(x)))(split(collection))
        assert found == (np.argmax(whole), np.argmin(whole))
    columns = da.from_array(TABLE, chunks=(4, 2)).persist()
    with pytest.raises(InvalidArgumentError, match="parts of rows"):
        pipeline(lambda x: x.mean(axis=0))(split(columns))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: np.sort(x, axis=0),
        lambda x: np.asarray(x),  # noqa: PLW0108 -- a lazy value
        lambda x: x[3],
        lambda x: x[x > 1].shape,
        lambda x: x[x[:, 0] > 0].argmin(),
        lambda x: x + np.ones((sum(LENGTHS), 3)),
    ],
)
def test_what_needs_the_whole_array_is_refused_with_its_bytes(body: Any) -> None:
    with pytest.raises(WholeArrayError, match=f"{TABLE.nbytes} bytes.*arrays or frames instead"):
        pipeline(body)(split(blocks(TABLE)))


def test_wrong_splits() -> None:
    parts = split(blocks(TABLE))
    with pytest.raises(InvalidArgumentError, match="split the collections together"):
        pipeline(operator.add)(parts, split(blocks(TABLE)))
    for blocks_of, kind in (([["a"], ["b"]], "list,"), ([np.array(["a"])], "ndarray of <U1,")):
        with pytest.raises(InvalidArgumentError, match=f"type {kind}.* takes NumPy arrays of"):
            pipeline(standardized)(split(blocks_of))


@pytest.mark.filterwarnings("ignore:.*(Mean of empty|invalid value)")
def test_reductions_of_no_rows_are_those_of_numpy() -> None:
    empty = split([np.empty((0, 2)), np.empty((0, 2))])
    found = pipeline(lambda x: (x.sum(axis=0), (x + 1).mean(), x - x.sum()))(empty)
    np.testing.assert_array_equal(found[0], [0.0, 0.0])
    assert np.isnan(found[1])
    assert [block.shape for block in found[2]] == [(0, 2), (0, 2)]
    with pytest.raises(ValueError, match="zero-size array"):
        pipeline(lambda x: x.max())(empty)
    unknown_rows = splittable(lambda x: x[1], x=Rows(), returns=Rows())
    with pytest.raises(IndexError, match="out of bounds"):  # as in the plain program
        pipeline(lambda x: sums(unknown_rows(x)))(empty)
    positive = splittable(lambda x: x[x[:, 0] > 0], x=Rows(), returns=unknown)
    both = splittable(lambda x: (x + 1, positive(x)), x=Rows(), returns=(Rows(), unknown))
    for body in (
        lambda x: sums(positive(x)),
        lambda x: sums(both(x)[0]),
        lambda x: sums(positive(both(x)[1])),
    ):
        np.testing.assert_array_equal(pipeline(body)(empty), [0.0, 0.0])


def test_errors_of_floats_at_the_client_warn() -> None:
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
        assert pipeline(lambda x: x.sum() / 0)(split(blocks(WEIGHTS))) == np.inf


def test_the_number_of_rows_is_known() -> None:
    def body(x: Any) -> Any:
        large = x[x[:, 0] > x[:, 0].mean()]
        return x.sum(axis=0) / len(x), (x + 1).shape, x.size, len(large), (large + 1).shape

    found = pipeline(body)(split(blocks(TABLE)))
    close(found[0], body(TABLE)[0])
    assert found[1:] == body(TABLE)[1:]


def test_rows_that_one_mask_chooses_match_each_other() -> None:
    def body(x: Any, y: Any) -> Any:
        mask, other = y > 1.5, y <= 1.5
        both = x[mask] * y[mask][:, np.newaxis] + x[mask]
        found = both[both[:, 0] > 0].sum(axis=0), y[mask].sum()
        np.logical_not(mask, out=mask)
        return *found, y[mask].sum(), (x[other] * y[other][:, np.newaxis]).sum()

    parts = split(blocks(TABLE), blocks(WEIGHTS))
    for one, two in zip(pipeline(body)(parts), body(TABLE, WEIGHTS), strict=True):
        close(one, two)
    with pytest.raises(WholeArrayError, match="subtract"):
        pipeline(lambda x, y: y[y > 1.5] - y[y <= 1.5])(parts)


def test_arguments_that_are_returned_are_collections_of_their_blocks() -> None:
    table, weights = blocks(TABLE), blocks(WEIGHTS)
    found = pipeline(lambda x, y: (y, x * 2, x, {"y": y}))(split(table, weights))
    for one, other in zip(found[2], table, strict=True):
        assert one is other
    for each in (found[0], found[3]["y"]):
        np.testing.assert_array_equal(np.concatenate(each), WEIGHTS)
    assert np.concatenate(pipeline(lambda x: x)(split(table))).shape == TABLE.shape


def test_lists_and_dicts_of_the_caller_get_values() -> None:
    def body(x: Any, seen: Any, error: Any = None) -> Any:
        seen["sums"].append(x.sum())
        seen["pair"] = x.max(), (x * 2)[:, 0]
        if error:
            raise error
        return seen

    for error in (None, KeyError("of the body")):
        seen: Any = {"sums": [1.0]}
        try:
            found = pipeline(body)(split(blocks(TABLE)), seen, error=error)
        except KeyError:
            found = seen
        assert found is seen
        assert type(seen["sums"][1]) is np.float64
        close([*seen["sums"], seen["pair"][0]], [1.0, TABLE.sum(), TABLE.max()])
        close(np.concatenate(seen["pair"][1]), TABLE[:, 0] * 2)


@pytest.mark.parametrize("other", [np.ones((3, 1)), np.ones(3), np.ones((3, 2), "f4")])
def test_blocks_must_have_the_dtype_and_width_of_the_first(other: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"block \(1,\) .*planned for .*shape \(2,\)"):
        pipeline(lambda x: x.sum())(split([np.ones((3, 2)), other, np.empty(0)]))


@splittable(x=Rows(), returns=Reduction(merge=operator.add))
def as_text(x: Any) -> str:
    """Return the numbers as text, whose order is that of the rows."""
    return "".join(f"{number:.0f}" for number in x)


@splittable(x=Rows(), returns=Reduction(merge=operator.add))
def sums(x: Any) -> Any:
    """Return the sum."""
    return x.sum()


@pytest.mark.parametrize("schedule", [None, "STATIC", "SS", "FAC2"])
def test_partial_results_are_combined_in_the_order_of_the_rows(schedule: Any) -> None:
    numbers = [np.arange(at, at + at % 3, dtype="f8") for at in range(12)]
    whole = np.concatenate(numbers)
    with split(numbers, schedule=schedule) as parts:
        assert pipeline(as_text)(parts) == as_text(whole)
    series = [pd.Series(each % 7) for each in numbers]
    with split(series, schedule=schedule) as parts:
        found = pipeline(lambda s: (s.unique(), s.value_counts()))(parts)
    expected = pd.Series(whole % 7)
    np.testing.assert_array_equal(found[0], expected.unique())
    pd.testing.assert_series_equal(found[1], expected.value_counts())
    frames = [pd.DataFrame({"k": each % 7, "x": each}) for each in numbers[::-1]]
    with split(frames, schedule=schedule) as parts:
        found = pipeline(lambda df: df.groupby("k", sort=False)["x"].sum())(parts)
    pd.testing.assert_series_equal(found, pd.concat(frames).groupby("k", sort=False)["x"].sum())


def with_weights(frame: Any, weights: Any) -> Any:
    kept = frame[["x"]]
    kept["w"] = weights * 2
    return kept


PAIRS: dict[str, Any] = {
    "assigned": lambda frame, weights: frame.assign(w=weights),
    "set": with_weights,
    "added": lambda frame, weights: (frame["x"] + weights) / (weights + frame["x"]),
    "chosen by an array": lambda frame, weights: frame[weights > 1.5]["x"] * 2,
    "labels of an array": lambda frame, weights: frame.loc[weights > 1.5, "x"],
    "chosen by a series": lambda frame, weights: weights[frame["x"] > 0] + 1,
    "arrays": lambda frame, weights: np.hypot(frame["x"].to_numpy(), frame["y"].values) * weights,
    "short": lambda frame, weights: frame["x"].to_numpy(dtype="f4", copy=True) * weights,
    "table": lambda frame, weights: frame.to_numpy() * weights[:, None],
    "ufunc": lambda frame, weights: np.hypot(frame["x"], weights) + np.add(weights, frame["y"]),
    "summed": lambda frame, weights: float((frame["x"] * weights).sum()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_aligned_frames_and_arrays(name: str) -> None:
    frame = pd.DataFrame({"x": TABLE[:, 0], "y": TABLE[:, 1]})
    pieces = [frame.iloc[at] for at in blocks(np.arange(len(frame)))]
    with split(pieces, blocks(WEIGHTS)) as parts:
        found = pipeline(PAIRS[name])(parts)
    expected = PAIRS[name](frame.copy(), WEIGHTS)
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(np.concatenate(found), expected)
    else:
        assert pd.concat(found).equals(expected)


def sums_of_columns(frame: Any) -> Any:
    found: dict[str, Any] = {}
    doubled = frame["x"] * 2
    before = float(doubled.sum())
    for name in ("k", "x"):
        try:
            column = frame[name].astype(float)
            found[name] = len(column), len(frame[column > 2]), float(column.sum())
        except ValueError as error:
            found[name] = str(error)
    return found, before, doubled.sum(), len(doubled)


@pytest.mark.parametrize("per_location", [1, 2])
def test_after_a_failed_pass_without_a_result_others_work(per_location: int) -> None:
    frame = pd.DataFrame({"k": list("abcdefgh"), "x": np.arange(8.0)})
    blocks = [frame.iloc[:3], frame.iloc[3:3], frame.iloc[3:]]
    with split(blocks, partitions_per_location=per_location) as parts:
        assert pipeline(sums_of_columns)(parts) == sums_of_columns(frame)


def test_frames_and_arrays_of_other_rows_are_refused() -> None:
    frame = pd.DataFrame({"x": TABLE[:, 0]})
    pieces = [frame.iloc[at] for at in blocks(np.arange(len(frame)))]
    with split(pieces, blocks(WEIGHTS)) as parts, pytest.raises(WholeArrayError, match="add"):
        pipeline(lambda df, weights: df[df["x"] > 0]["x"] + weights)(parts)


def test_times_and_places_over_a_split() -> None:
    times = np.arange(100).astype("m8[s]")
    with split(np.split(times, [30, 60])) as parts:
        assert pipeline(lambda x: x.mean())(parts) == times.mean()
        with pytest.raises(WholeArrayError, match="searchsorted"):
            pipeline(lambda x: np.searchsorted(x, np.timedelta64(3, "s")))(parts)


def test_errors_of_functions_without_a_result_are_raised() -> None:
    def refuse(x: Any) -> None:
        raise KeyError("no such row")

    refused = splittable(refuse, x=Rows(), returns=None)
    with pytest.raises(KeyError, match="no such row"):
        pipeline(refused)(split([np.ones(3), np.ones(2)]))


@pytest.mark.timeout(60)
def test_rows_that_another_pipeline_has_made() -> None:
    """They can be used alone, and not beside those of other blocks."""
    parts, others = split(blocks(TABLE)), split(blocks(TABLE))
    kept: list[Any] = []

    def first(x: Any) -> float:
        kept.append(x + 1)
        return 0.0

    pipeline(first)(parts)
    for each in (parts, others):
        close(pipeline(lambda x: (kept[0] * 2, kept[0].sum(), x.sum()))(each)[1], (TABLE + 1).sum())
        found = pipeline(lambda x: [x * 1, kept[0]])(each)
        close(np.concatenate(found[1]), TABLE + 1)
        with pytest.raises(InvalidArgumentError, match="rows of pipelines over several Splits"):
            pipeline(lambda x: kept[0] + x)(each)
