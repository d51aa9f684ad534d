"""Frames of small Parquet files, several of which Dask fuses into one block."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from spliter import BlockLostError, Split, UnsupportedCollectionError, split
from tests.dask_backend.test_dask_collections import gathered

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

FILES = 6
ROWS = 210

Read = Callable[..., Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read six small files, of 10 to 60 rows; Dask fuses them where one column of three is read."""
    rows = np.arange(ROWS)
    table = pd.DataFrame({"a": rows, "b": -rows, "w": [f"{row:2000}" for row in rows]})
    ends = np.cumsum(np.arange(10, 70, 10))
    for number, cut in enumerate(np.split(rows, ends[:-1])):
        table.iloc[cut].to_parquet(tmp_path / f"{number}.parquet", index=False)
    return lambda **options: dd.read_parquet(tmp_path, **options)


def column(blocks: dict[Any, Any]) -> list[int]:
    """Return the values of blocks of one column, in the order of their indexes."""
    return [row for index in sorted(blocks) for row in np.ravel(blocks[index]).tolist()]


@pytest.mark.parametrize(
    "opened",
    [
        lambda frame: split(frame[["a"]], persist=True),
        lambda frame: split(frame["a"], persist=True),
        lambda frame: split(frame[["a"]].persist()),
        lambda frame: split(dask.persist(frame["a"])[0]),
    ],
    ids=["frame", "series", "persisted frame", "persisted series"],
)
@pytest.mark.parametrize("options", [{}, {"filesystem": "arrow"}], ids=["fsspec", "arrow"])
def test_fused_files_are_split_whole(
    client: Client, read: Read, opened: Callable[[Any], Split], options: dict[str, Any]
) -> None:
    parts = opened(read(**options))
    assert parts.nblocks < FILES  # otherwise Dask has not fused any
    found = column(gathered(client, parts))
    assert found == np.ravel(read(columns=["a"], **options).compute()).tolist()
    assert sorted(found) == list(range(ROWS))


def test_result_for_every_row_of_fused_files(client: Client, read: Read) -> None:
    doubled = split(read(columns=["a"]), persist=True).map_blocks(lambda block: 2 * block["a"])
    assert doubled.compute().tolist() == list(range(0, 2 * ROWS, 2))


def test_columns_fused_alike_are_aligned(client: Client, read: Read) -> None:
    parts = split(read(columns=["a"]), read(columns=["b"]), persist=True)
    found = gathered(client, parts)
    assert len(found) == parts.nblocks < FILES
    for a, b in found.values():
        np.testing.assert_array_equal(a.to_numpy(), -b.to_numpy())


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, used by Dask
def test_fused_files_without_a_cluster(read: Read) -> None:
    with dask.config.set(scheduler="sync"):
        parts = split(read(columns=["a"]).persist(), backend="local")
    assert parts.nblocks < FILES
    blocks = {index: block for part in parts for index, block in part.items()}
    assert column(blocks) == list(range(ROWS))


@pytest.mark.parametrize("options", [{}, {"filesystem": "arrow"}], ids=["fsspec", "arrow"])
def test_blocks_lost_by_fusing_are_an_error_with_a_way_out(
    client: Client, read: Read, options: dict[str, Any]
) -> None:
    frame = read(columns=["a"], **options).persist()
    says = r"fuses small Parquet files .* frame\.map_partitions\(copy\.copy\)\.persist\(\)"
    with pytest.raises(UnsupportedCollectionError, match=says):
        split(frame.partitions[FILES - 2 :])
    for selected in (frame[["a"]], frame["a"]):
        with pytest.raises(BlockLostError, match=says) as lost:
            split(selected.persist())
        assert len(lost.value.blocks) == FILES
    # What the message advises works.
    whole = read(columns=["a"], **options).map_partitions(copy.copy).persist()
    assert sorted(column(gathered(client, split(whole["a"].persist())))) == list(range(ROWS))
    last = whole.partitions[whole.npartitions - 1 :]
    assert column(gathered(client, split(last))) == last["a"].compute().tolist()
