"""Over a Split, what is computed after an error, and how often blocks run."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import split
from spliter.pipeline import Reduction, Rows, options, pipeline, splittable
from spliter.pipeline._over_split import passes

VALUES = np.arange(50.0)

CALLS: list[int] = []


def failing_above(x: Any) -> Any:
    CALLS.append(len(x))
    if (x > 3).any():
        raise ValueError("too large")
    return x


below = splittable(failing_above, x=Rows(), returns=Rows())


def of_many_results(x: Any) -> Any:
    y = below(x)
    return [(y + number).sum() for number in range(8)]


def of_many_values(x: Any) -> Any:
    y = below(x)
    held = [(y + number).sum() for number in range(8)]
    return float(held[3])


@pytest.mark.parametrize("body", [of_many_results, of_many_values])
def test_blocks_do_not_run_again_for_each_result(body: Any) -> None:
    parts = split([*[np.zeros(5)] * 9, np.full(5, 9.0)])
    CALLS.clear()
    with pytest.raises(ValueError, match="too large"):
        pipeline(body)(parts)
    assert len(CALLS) <= 2 * 10 + 1  # and one row


def test_what_follows_from_other_calls_is_computed() -> None:
    kept: list[Any] = []

    def body(x: Any) -> None:
        kept.extend([x.sum(), below(x).sum(), x.max(), (below(x) * 2).sum(), x * 2])

    with pytest.raises(ValueError, match="too large"):
        pipeline(body)(split([*[np.zeros(5)] * 9, np.full(5, 9.0)]))
    CALLS.clear()
    assert (float(kept[0]), float(kept[2]), float(kept[4].sum())) == (45, 9, 90)
    assert not CALLS
    for number in (1, 3):
        with pytest.raises(ValueError, match="too large"):
            float(kept[number])


def test_nothing_runs_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def interrupted(futures: Any) -> Any:
        asked.append(futures)
        raise KeyboardInterrupt

    monkeypatch.setattr(passes, "gather", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline(lambda x: [(x + number).sum() for number in range(8)])(split([VALUES, VALUES]))
    assert len(asked) == 1


def test_many_calls_that_fail_run_a_few_times() -> None:
    kept: list[Any] = []

    def body(x: Any) -> None:
        kept.extend(below(x + number).sum() for number in range(30))
        kept.extend((x + number).sum() for number in range(10))

    CALLS.clear()
    with pytest.raises(ValueError, match="too large"):
        pipeline(body)(split([np.zeros(5) - 40, np.zeros(7) - 40, np.full(3, 9.0)]))
    assert CALLS.count(5) <= 4 * 30
    assert float(kept[-1]) == 12 * -31 + 3 * 18


def test_errors_that_are_caught_are_not_tried_again() -> None:
    def body(x: Any) -> Any:
        found = []
        for number in range(12):
            try:
                found.append(float(below(x + number).sum()))
            except ValueError:
                found.append(-1.0)
        return found

    CALLS.clear()
    parts = split([np.zeros(5) - 40, np.zeros(7) - 40, np.full(3, 9.0)])
    assert pipeline(body)(parts) == [-1.0] * 12
    assert CALLS.count(5) <= 2 * 12


def test_a_stop_of_iteration_is_raised() -> None:
    first = splittable(lambda x: next(iter(x[x > 3])), x=Rows(), returns=Reduction(merge=max))
    with pytest.raises(StopIteration):
        pipeline(first)(split([np.full(5, 9.0), np.zeros(5)]))


def test_what_has_been_computed_after_an_error_is_not_tried_again() -> None:
    two = splittable(lambda x: (x + 1, x - 1), x=Rows(), returns=(Rows(), Rows()))

    def body(x: Any) -> Any:
        one, other = two(x)
        ratio = one / (x.min() + 3)
        other[other < 4] = 2.0
        with contextlib.suppress(ValueError):
            float(below(other).sum())
        doubled = other * 2
        return other, ratio, doubled

    found = pipeline(body)(split([VALUES[:20], VALUES[20:]]))
    for blocks, expected in zip(found, body(VALUES), strict=True):
        np.testing.assert_array_equal(np.concatenate(blocks), expected)


def test_results_that_were_not_stored_are_made_again() -> None:
    several = splittable(
        lambda x: (x + 1, x - 1, x.sum()),
        x=Rows(),
        returns=(Rows(), Rows(), Reduction(merge=operator.add)),
    )

    def body(x: Any) -> Any:
        one, other, total = several(x)
        ratio = one / total
        del one
        with contextlib.suppress(ValueError):
            float(below(x).sum())
        largest = float(other.max())  # of `one` nothing is stored
        return ratio * 2, other, largest, total

    found = pipeline(body)(split([VALUES[:20], VALUES[20:]]))
    for made, expected in zip(found, body(VALUES), strict=True):
        whole = np.concatenate(made) if isinstance(made, list) else made
        np.testing.assert_allclose(whole, expected)


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_first_call_that_fails_raises_whichever_block_it_is(partitions: int) -> None:
    def other(x: Any) -> Any:
        if (x < 0).any():
            raise KeyError("negative")
        return x

    known = splittable(other, x=Rows(), returns=Rows())

    def total(x: Any) -> Any:
        try:
            return float((below(x) + known(x)).sum())
        except ValueError:
            return "too large"

    def kept(x: Any) -> Any:
        return below(x) + known(x)

    blocks = [np.full(5, -1.0), np.zeros(7), np.full(3, 9.0)]
    parts = split(blocks, partitions_per_location=partitions)
    assert pipeline(total)(parts) == "too large"
    CALLS.clear()
    with pytest.raises(ValueError, match="too large"):
        len(pipeline(lambda x: kept(x)[below(x) > 0])(parts))
    assert CALLS.count(7) <= 4


def test_the_first_call_that_fails_raises_also_if_one_of_a_later_stage_waits() -> None:
    def body(frame: Any) -> Any:
        copied, values = frame.copy(), frame["value"]
        checked = below(frame["value"])
        named = frame[frame["name"].isin(["1", "a"])]
        named.loc[named["value"] > 1, "value"] = 1.0
        return copied, values, checked, named, named["name"].astype(float)

    numbers = pd.DataFrame({"value": np.full(40, 9.0), "name": "1"})
    texts = pd.DataFrame({"value": np.zeros(40), "name": "a"})
    with options(batch=7), pytest.raises(ValueError, match="too large"):
        pipeline(body)(split([texts, numbers]))


class NamelessError(Exception):
    """An error that cannot say which call has raised it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_spliter"):
            raise AttributeError(name)
        super().__setattr__(name, value)


def refused(x: Any) -> Any:
    raise NamelessError


def test_frames_keep_their_columns_after_an_error() -> None:
    refusing = splittable(refused, x=Rows(), returns=Rows())

    def body(frame: Any) -> Any:
        late = frame[frame["value"] > 20]
        lengths = (late["name"] + late["text"]).str.len()
        late.loc[late["value"] > 40, "value"] = 40.0
        with contextlib.suppress(NamelessError):
            float(refusing(late["value"]).sum())
        return lengths, late

    frame = pd.DataFrame({"value": VALUES, "name": "a", "text": "bc", "other": 1, "last": 2})
    lengths, late = pipeline(body)(split([frame[:10], frame[10:]]))
    expected, rows = body(frame)
    pd.testing.assert_series_equal(pd.concat(lengths), expected)
    pd.testing.assert_frame_equal(pd.concat(late), rows)
