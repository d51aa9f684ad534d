"""Blocks and frames of which results were once wrong without an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import InvalidArgumentError, split
from spliter.pipeline import Groups, Reduction, Rows, module, options, pipeline, splittable
from tests.pipeline.checks import same


def moments(frame: Any) -> Any:
    """Return the number of rows, the sums and the sums of squares, by position."""
    values = frame.to_numpy(float)
    return np.array([len(values), *values.sum(axis=0), *(values**2).sum(axis=0)])


moments_of = splittable(moments, frame=Rows(), returns=Reduction(merge=np.add))


@pytest.mark.parametrize("first", [0, 1])
def test_mean_and_std_of_frames_whose_blocks_have_other_orders_of_columns(first: int) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [10.0, 30.0, 20.0, 60.0]})
    blocks = [frame[:2], frame[2:][["b", "a"]]]
    if first:
        blocks = blocks[::-1]
    with split(blocks) as parts:
        count, *sums = pipeline(moments_of)(parts)
    mean = np.array(sums[:2]) / count
    names = blocks[0].columns
    np.testing.assert_allclose(mean, frame.mean()[names])
    std = np.sqrt(np.array(sums[2:]) / count - mean**2)
    np.testing.assert_allclose(std, frame.std(ddof=0)[names])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_masked_blocks_that_the_first_one_does_not_show(at: int) -> None:
    blocks: list[Any] = [np.array([10.0, 12.0]), np.array([11.0, 9.0]), np.array([13.0, 8.0])]
    blocks[at] = np.ma.masked_less(blocks[at], 10)
    with split(blocks) as parts, pytest.raises(InvalidArgumentError, match="mask"):
        pipeline(lambda x: x.mean())(parts)


def test_masked_arrays_in_one_process_keep_their_mask() -> None:
    masked = np.ma.masked_less(np.arange(40.0), 10)
    with options(batch=7):
        assert pipeline(lambda x: x.mean())(masked) == masked.mean() == 24.5
        assert pipeline(lambda x: x * 2)(masked).count() == 30


@pytest.mark.parametrize("rows", [50, 1_100_000])
def test_integers_of_frames_overflow_as_numpys_whatever_pandas_uses(rows: int) -> None:
    """With more than a million rows pandas uses numexpr, where it is installed."""
    values = np.full(rows, 2**30, "i4")
    frame = pd.DataFrame({"a": values, "k": np.arange(rows) % 2})
    tripled = splittable(lambda df: df["a"].to_numpy() * np.int32(3), df=Rows(), returns=Rows())
    sums = splittable(lambda df: df.groupby("k")["a"], df=Rows(), returns=Groups("sum"))
    with options(batch=rows // 3):
        same(pipeline(tripled)(frame), values * np.int32(3))
        assert pipeline(module("pandas").sum)(frame["a"]) == 2**30 * rows
        assert pipeline(sums)(frame).sum() == 2**30 * rows
        with split([frame[: rows // 4], frame[rows // 4 :]]) as parts:
            found = pipeline(lambda df: (tripled(df).sum(), sums(df)))(parts)
    assert found[0] == (values * np.int32(3)).sum()
    assert found[1].sum() == 2**30 * rows


def test_memory_maps_are_arrays(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(30, 2))
    mapped[:] = np.arange(60.0).reshape(30, 2)
    plain = np.array(mapped)

    def body(x: Any) -> Any:
        return x * 2, x.sum(axis=0), x[x[:, 0] > 20]

    with options(batch=7):
        for one, other in zip(pipeline(body)(mapped), body(plain), strict=True):
            np.testing.assert_array_equal(one, other)
    for blocks in ([mapped[:9], mapped[9:]], [plain[:9], mapped[9:]], [mapped[:9], plain[9:]]):
        with split(blocks) as parts:
            doubled, total, few = pipeline(body)(parts)
        same(np.concatenate([np.asarray(each) for each in doubled]), plain * 2)
        same(np.asarray(total), plain.sum(axis=0))
        same(np.concatenate([np.asarray(each) for each in few]), plain[plain[:, 0] > 20])
