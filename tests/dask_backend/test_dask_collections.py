"""Every kind of collection that Dask has, in every state that it can be in."""

from __future__ import annotations

import asyncio
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sparse
from distributed import Client, Event

import spliter
from spliter import (
    InvalidArgumentError,
    LazyCollectionError,
    Partition,
    UnknownItemIndexError,
    UnsupportedCollectionError,
    split,
    task,
)
from spliter_backends.dask.client.scheduler_calls import call_client
from tests.dask_backend import programs
from tests.dask_backend.programs import expected, spread, total

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


@task
def blocks_of(partition: Partition) -> list[tuple[tuple[int, ...], Any]]:
    return list(partition.items())


def gathered(client: Client, parts: spliter.Split) -> dict[tuple[int, ...], Any]:
    """All blocks, as the tasks saw them."""
    return {index: block for found in client.gather(parts.map(blocks_of)) for index, block in found}


# --- kinds of collections ---


def test_dataframe(client: Client) -> None:
    frame = pd.DataFrame({"a": range(100), "b": 1.5})
    x = dd.from_pandas(frame, npartitions=7).persist()
    parts = split(x)
    assert parts.nbytes > 100 * 8
    found = gathered(client, parts)
    together = pd.concat([found[index] for index in sorted(found)])
    pd.testing.assert_frame_equal(together, frame)
    numbers = np.concatenate([part.get_item_indexes() for part in parts])
    assert sorted(numbers) == list(range(100))


def rows_of(partition: Partition) -> list[int]:
    return [sum(1 for _ in block) for block in partition]


def test_bag_of_iterators_is_refused(client: Client) -> None:
    numbers = db.from_sequence(range(50), npartitions=5)
    once = numbers.map_partitions(lambda part: (2 * number for number in part)).persist()
    with pytest.raises(InvalidArgumentError, match=r"an iterator \(generator\).*\(list\)"):
        client.gather(split(once).map(rows_of))
    again = numbers.map_partitions(lambda part: map(abs, part)).map_partitions(list).persist()
    parts = split(again)
    for _ in range(2):
        assert sum(map(sum, client.gather(parts.map(rows_of)))) == 50


def test_aligned_iterators_are_refused(client: Client) -> None:
    worker = min(client.nthreads())
    rows: list[Any] = [client.submit(list, (at, 1), workers=[worker]) for at in range(3)]
    once = [client.submit(iter, [at, 1], workers=[worker], pure=False) for at in range(3)]
    with pytest.raises(InvalidArgumentError, match=r"an iterator \(list_iterator\)"):
        client.gather(split(rows, once).map(rows_of))


def test_lists_of_futures_and_of_delayed(client: Client) -> None:
    assert sum(client.gather(split(spread(client, 6, tag="list")).map(total))) == expected(6)
    delayed = dask.persist(*[dask.delayed(programs.make)(i, 10) for i in range(6)])
    assert sum(client.gather(split(list(delayed)).map(total))) == expected(6)


@pytest.mark.parametrize("kind", ["masked", "object", "sparse", "csr"])
def test_blocks_that_are_not_plain_arrays(client: Client, kind: str) -> None:
    dense = np.arange(40.0).reshape(10, 4) * (np.arange(40).reshape(10, 4) % 3 == 0)
    x = da.from_array(dense, chunks=(3, 4))
    convert: dict[str, Any] = {
        "masked": lambda block: np.ma.masked_equal(block, 0),
        "object": lambda block: block.astype(object),
        "sparse": sparse.COO.from_numpy,
        "csr": scipy.sparse.csr_matrix,
    }
    meta = {"masked": np.ma.masked_array([[]]), "object": np.empty((0, 0), dtype=object)}
    blocks = x.map_blocks(convert[kind], meta=meta.get(kind, np.empty((0, 0)))).persist()
    found = gathered(client, split(blocks))
    for index, block in found.items():
        part = dense[3 * index[0] : 3 * index[0] + 3]
        assert type(block) is type(convert[kind](part))
        back = block.toarray() if kind == "csr" else block
        back = back.todense() if kind == "sparse" else np.ma.filled(back, 0)
        np.testing.assert_array_equal(back.astype(float), part)


def test_unknown_chunk_sizes(client: Client) -> None:
    data = np.arange(60)
    x = da.from_array(data, chunks=9)
    x = x[x % 4 != 0].persist()
    assert np.isnan(x.chunks[0]).all()
    kept = data[data % 4 != 0]
    parts = split(x)
    assert parts[0].shape == (None,)

    def numbers(partition: Partition) -> Any:
        return partition.get_item_indexes(), np.concatenate(list(partition))

    with pytest.raises(UnknownItemIndexError, match="resolve_item_indexes"):
        parts[0].submit(numbers).result()
    parts.resolve_item_indexes()
    assert parts.grid.extent == (45,)
    for rows, values in client.gather(parts.map(numbers)):
        np.testing.assert_array_equal(kept[rows], values)


# --- states a collection can be in ---


def test_lazy_collections(client: Client) -> None:
    x = da.arange(100, chunks=10)
    persisted = x.persist()
    for lazy in (x, persisted + 1, persisted[5:], dd.from_pandas(pd.DataFrame({"a": [1]}))):
        with pytest.raises(LazyCollectionError, match="persist"):
            split(lazy)
    with pytest.raises(LazyCollectionError, match="persist"):
        split([dask.delayed(programs.make)(0, 10)])


def test_whole_blocks_of_a_persisted_array_are_not_lazy(client: Client) -> None:
    x = da.arange(100, chunks=10).persist()
    assert sum(client.gather(split(x.blocks[2:4]).map(total))) == sum(range(20, 40))


def test_blocks_that_take_too_long(client: Client) -> None:
    def block() -> bool:
        return bool(Event("late").wait(timeout=60))

    with dask.config.set({"spliter.block-timeout": "300ms"}):
        future = client.submit(block, pure=False)
        with pytest.raises(spliter.BlockTimeoutError, match=r"spliter\.block-timeout"):
            split([future])
    Event("late").set()


def test_scheduler_that_does_not_answer(client: Client) -> None:
    async def silence() -> None:
        await asyncio.sleep(60)

    with (
        dask.config.set({"spliter.block-timeout": "200ms"}),
        pytest.raises(spliter.BlockTimeoutError, match="did not answer"),
    ):
        call_client(client, silence)


def test_error_of_a_block_is_raised(client: Client) -> None:
    x = da.arange(100, chunks=10).map_blocks(programs.fail_on_fifty, dtype=int).persist()
    with pytest.raises(ZeroDivisionError, match="fifty"):
        split(x)


def test_blocks_of_several_clients(client: Client) -> None:
    with Client(client.scheduler_info()["address"], set_as_default=False) as other:
        assert sum(other.gather(split(spread(other, 4, tag="other")).map(total))) == expected(4)
        mixed = [client.submit(programs.make, 0, 1), other.submit(programs.make, 1, 1)]
        with pytest.raises(UnsupportedCollectionError, match="2 different Dask clients"):
            split(mixed)


def test_array_without_axes_and_empty_list(client: Client) -> None:
    with pytest.raises(UnsupportedCollectionError, match="without axes"):
        split(da.ones(4, chunks=2).sum().persist())
    with pytest.raises(UnsupportedCollectionError):
        split([])


def test_values_of_this_process_are_not_the_clusters(client: Client) -> None:
    with dask.config.set(scheduler="threads"):
        x = da.ones(4, chunks=2).persist()
    with pytest.raises(LazyCollectionError, match=r"persist.*backend='local'"):
        split(x)
    assert split(x, backend="local").locations == ("local",)
    with pytest.raises(UnsupportedCollectionError, match="backend='dask'"):
        split(da.ones(4, chunks=2).persist(), backend="local")
    with pytest.raises(UnsupportedCollectionError):
        split([np.ones(3)], backend="dask")
