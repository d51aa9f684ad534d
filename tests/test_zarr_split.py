"""Zarr arrays: each stored chunk read once, by the place that it is assigned to."""

from __future__ import annotations

import logging
import operator
import os
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

pytest.importorskip("zarr")
pytest.importorskip("distributed")

import zarr
from distributed import Client, get_worker

from spliter import (
    AlignmentError,
    BackendNotUsableError,
    BlockLostError,
    InvalidArgumentError,
    UnsupportedCollectionError,
    gather,
    reduce,
    split,
)
from spliter_backends.files.blocks import assign
from spliter_backends.zarr import on_workers
from tests.counting_store import CountingStore
from tests.dask_backend.conftest import start
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.backend("zarr"), pytest.mark.backend("dask")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "reads"


def counted(path: Path, log: Path, values: Any, **layout: Any) -> Any:
    """Write an array to disk; return it opened through a store that logs what is read."""
    zarr.create_array(path, data=values, **layout)
    log.unlink(missing_ok=True)
    store = CountingStore(zarr.storage.LocalStore(path, read_only=True), str(log))
    array = zarr.open_array(store, mode="r")
    log.unlink(missing_ok=True)
    return array


def reads(log: Path) -> Counter[str]:
    """Count the reads of each chunk."""
    return Counter(key for key, _ in lines(log))


def lines(log: Path) -> list[tuple[str, str]]:
    if not log.exists():
        return []
    found = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
    return [(key, process) for key, process in found if not key.endswith("zarr.json")]


def total(partition: Any) -> int:
    return sum(int(block.sum()) for block in partition)


def places(partition: Any) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return partition.get_indexes(), [block.shape for block in partition]


@pytest.mark.parametrize("where", ["workers", "here"])
def test_no_chunk_is_read_twice(client: Client, tmp_path: Path, log: Path, where: str) -> None:
    values = np.arange(70 * 9).reshape(70, 9)
    array = counted(tmp_path / "a", log, values, chunks=(7, 4))
    collection = on_workers(array, client) if where == "workers" else array
    with split(collection) as parts:
        assert parts.grid.chunks == ((7,) * 10, (4, 4, 1))
        assert reads(log) == Counter()  # to split is to read nothing
        assert reduce(operator.add, parts.map(total)).result() == values.sum()
        first = reads(log)
        assert len(first) == 30 and set(first.values()) == {1}
        assert sum(gather(parts.map(total))) == values.sum()
        assert set(reads(log).values()) == {2}
    with split(collection, schedule="FAC2") as parts:
        assert "schedule FAC2, contiguous" in repr(parts)
        assert parts.map_reduce(total, operator.add).result() == values.sum()
        assert set(reads(log).values()) == {3}
    # The control: another cut reads chunks again.
    log.unlink()
    for start_row in range(0, 70, 5):
        array[start_row : start_row + 5]
    assert max(reads(log).values()) > 1


@pytest.mark.parametrize("where", ["workers", "here"])
def test_rows_are_read_from_their_chunks(
    client: Client, tmp_path: Path, log: Path, where: str
) -> None:
    array = counted(tmp_path / "a", log, np.arange(70), chunks=(7,))
    with split(on_workers(array, client) if where == "workers" else array) as parts:
        assert parts.take([50, 3, 69, 51]).tolist() == [50, 3, 69, 51]
    assert reads(log) == {"c/0": 1, "c/7": 1, "c/9": 1}


def test_passes_read_the_same_chunks_at_the_same_worker(
    client: Client, tmp_path: Path, log: Path
) -> None:
    array = counted(tmp_path / "a", log, np.arange(40), chunks=(2,))
    for _ in range(3):
        with split(on_workers(array, client)) as parts:
            gather(parts.map(total))
            assert [part.get_indexes() for part in parts] == [
                [(at,) for at in range(10)],
                [(at,) for at in range(10, 20)],
            ]
    by_chunk: dict[str, set[str]] = {}
    for key, process in lines(log):
        by_chunk.setdefault(key, set()).add(process)
    assert len(by_chunk) == 20
    assert all(len(processes) == 1 for processes in by_chunk.values())
    readers = set.union(*by_chunk.values())
    assert len(readers) == 2 and str(os.getpid()) not in readers


def test_materialized_partitions_are_read_once_for_all_passes(
    client: Client, tmp_path: Path, log: Path
) -> None:
    array = counted(tmp_path / "a", log, np.arange(40.0).reshape(20, 2), chunks=(2, 2))
    with split(on_workers(array, client), materialize=True) as parts:
        for _ in range(3):
            assert sum(gather(parts.map(total))) == 780
        assert gather(parts.map(lambda part: len(list(part)))) == [1, 1]
        assert set(reads(log).values()) == {1}
        (first, *_) = gather(parts.map(lambda part: part.materialize()))
        np.testing.assert_array_equal(first, array[:10])


def test_shards_are_blocks(client: Client, tmp_path: Path, log: Path) -> None:
    values = np.arange(64).reshape(16, 4)
    array = counted(tmp_path / "a", log, values, chunks=(2, 2), shards=(8, 4))
    with split(on_workers(array, client)) as parts:
        assert parts.nblocks == 2
        assert sum(gather(parts.map(total))) == values.sum()
    readers = {(key, process) for key, process in lines(log)}
    assert len({key for key, _ in readers}) == len(readers) == 2


def test_aligned_arrays_go_along(client: Client, tmp_path: Path, log: Path) -> None:
    x = counted(tmp_path / "x", log, np.arange(24).reshape(12, 2), chunks=(4, 1))
    y = counted(tmp_path / "y", tmp_path / "other", np.arange(12), chunks=(4,))

    def together(partition: Any) -> int:
        return sum(int((block[:, 0] * labels).sum()) for block, labels in partition)

    with split(on_workers(x, client), on_workers(y, client), partitions_per_location=1) as parts:
        expected = int((x[:, 0] * y[:]).sum() + (x[:, 1] * y[:]).sum())
        (tmp_path / "other").unlink()
        assert sum(gather(parts.map(together))) == expected
        # Two workers share the middle chunk of rows, and each reads its labels.
        assert reads(tmp_path / "other") == Counter({"c/0": 1, "c/1": 2, "c/2": 1})


def test_tasks_of_a_worker_that_has_gone_run_elsewhere(tmp_path: Path, log: Path) -> None:
    array = counted(tmp_path / "a", log, np.arange(40), chunks=(2,))
    with ExitStack() as stack:
        client = start(stack, restarts=False)
        parts = stack.enter_context(split(on_workers(array, client)))
        assert len(parts.locations) == 2
        client.retire_workers([parts.locations[0]])
        assert sum(gather(parts.map(total))) == 780
        parts.refresh()
        assert len(set(parts.locations)) == 1
        assert sum(gather(parts.map(total))) == 780


def test_any_worker_reads_what_it_takes_from_others(
    client: Client, tmp_path: Path, log: Path
) -> None:
    x = counted(tmp_path / "x", log, np.arange(80), chunks=(2,))
    y = counted(tmp_path / "y", tmp_path / "other", np.arange(80), chunks=(2,))

    def taken(partition: Any) -> tuple[str, list[int]]:
        rows = [int(row) for block, labels in partition for row in np.maximum(block, labels)]
        assert all((one == two).all() for one, two in [partition.materialize()])
        return get_worker().address, rows

    with split(on_workers(x, client), on_workers(y, client), schedule="SS", steal=True) as parts:
        assert "SS, contiguous, steal" in repr(parts)
        workers = tuple(workers_of(client))
        assert {part.holders for part in parts} == {workers}
        busy = client.submit(time.sleep, 3, workers=[workers[0]], pure=False)
        found = gather(parts.map(taken))
        busy.result()
        assert sorted(row for _, rows in found for row in rows) == list(range(80))
        planned = sum(part.location == workers[1] for part in parts)
        assert sum(address == workers[1] for address, _ in found) > planned == 20
        assert set(reads(log).values()) == {2}  # by the loop, and by materialize()


def test_one_worker_steals_from_nobody(tmp_path: Path, log: Path) -> None:
    array = counted(tmp_path / "a", log, np.arange(40), chunks=(2,))
    with ExitStack() as stack:
        client = start(stack, n_workers=1)
        with pytest.raises(InvalidArgumentError, match=r"at one location; leave it out$"):
            split(on_workers(array, client), schedule="FAC2", steal=True)


def test_objects_in_a_store_in_memory() -> None:
    values = np.arange(100)
    array = zarr.create_array("memory://spliter-test", data=values, chunks=(9,), overwrite=True)
    assert sum(gather(split(array).map(total))) == values.sum()
    with (
        Client(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as client,
        split(on_workers(array)) as parts,
    ):
        assert len(parts.locations) == 2
        assert sum(gather(parts.map(total))) == values.sum()
        assert client.status == "running"


@pytest.mark.parametrize("where", ["here", "workers"])
@pytest.mark.parametrize(
    ("dtype", "fill", "layout"),
    [
        ("f8", np.nan, {"chunks": (10, 2)}),
        ("i4", 7, {"chunks": (5, 2), "shards": (10, 2)}),
        ("U2", "", {"chunks": (10, 2)}),
    ],
)
@pytest.mark.filterwarnings("ignore:The data type")
def test_a_deleted_store_is_not_taken_for_blocks_that_were_never_written(
    client: Client, tmp_path: Path, where: str, dtype: str, fill: Any, layout: dict[str, Any]
) -> None:
    array = zarr.create_array(
        tmp_path / "x", shape=(40, 2), dtype=np.dtype(dtype), fill_value=fill, **layout
    )
    array[:20] = np.ones((20, 2)).astype(dtype)  # the other half is never written
    marked = array if where == "here" else on_workers(array, client)

    def filled(partition: Any) -> list[bool]:
        return [block[0, 0] != np.ones(1).astype(dtype)[0] for block in partition]

    with split(marked) as parts:
        found = [each for blocks in gather(parts.map(filled)) for each in blocks]
        assert sorted(found) == [False, False, True, True]
        shutil.rmtree(tmp_path / "x")
        with pytest.raises(BlockLostError, match=r"block \(\d, 0\) cannot be read.*write it again"):
            gather(parts.map(filled))
    with split(marked) as again, pytest.raises(BlockLostError):
        gather(again.map(filled))


@pytest.mark.parametrize("where", ["here", "workers"])
def test_a_damaged_chunk_is_named(client: Client, tmp_path: Path, where: str) -> None:
    array = zarr.create_array(tmp_path / "t.zarr", data=np.arange(9.0), chunks=(3,))
    (tmp_path / "t.zarr" / "c" / "1").write_bytes(b"not compressed")
    parts = split(
        array if where == "here" else on_workers(array, client), partitions_per_location=1
    )
    with pytest.raises(RuntimeError, match="Zstd") as raised:
        gather(parts.map(total))
    assert raised.value.__notes__ == [f"while block (1,) of {array.store_path} was read"]


def test_what_cannot_be_split_says_why(client: Client) -> None:
    array = zarr.create_array(
        "memory://spliter-refused", shape=(4,), chunks=(2,), dtype="i4", overwrite=True
    )
    other = zarr.create_array(
        "memory://spliter-other", shape=(4,), chunks=(3,), dtype="i4", overwrite=True
    )
    with pytest.raises(InvalidArgumentError, match="of at least one axis"):
        on_workers(np.arange(3))
    with pytest.raises(UnsupportedCollectionError, match="wrap each collection"):
        split(on_workers(array, client), array)
    with pytest.raises(AlignmentError):
        split(on_workers(array, client), on_workers(other, client))


def test_an_array_read_here_next_to_a_client_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    array = zarr.zeros((6, 2), chunks=(2, 2), store={})
    caplog.set_level(logging.INFO, logger="spliter")
    split(array)
    split([np.zeros(3)])
    logged = [each for each in caplog.records if each.name.startswith("spliter")]
    assert [each.event for each in logged] == ["read here", "split", "split"]  # type: ignore[attr-defined]
    assert logged[0].name == "spliter.local"
    assert "spliter_backends.zarr.on_workers(x)" in logged[0].getMessage()


def test_without_a_client_it_says_what_to_do(run_python: Any) -> None:
    program = (
        "import zarr\n"
        "from spliter import BackendNotUsableError, split\n"
        "from spliter_backends.zarr import on_workers\n"
        "array = zarr.create_array('memory://a', shape=(4,), chunks=(2,), dtype='i4')\n"
        "try:\n"
        "    split(on_workers(array))\n"
        "except BackendNotUsableError as error:\n"
        "    print(error)\n"
    )
    done = run_python("-c", program)
    assert "there is no Dask client" in done.stdout, done.stderr
    assert BackendNotUsableError.__name__ in program


@given(
    nbytes=st.lists(st.integers(0, 10**9), min_size=1, max_size=200),
    threads=st.dictionaries(
        st.text("abc:123", min_size=1, max_size=6), st.integers(1, 64), min_size=1
    ),
)
def test_assignment_is_contiguous_complete_and_fair(
    nbytes: list[int], threads: dict[str, int]
) -> None:
    sizes = np.asarray(nbytes, dtype=np.int64)
    placed = assign(sizes, threads)
    assert placed.nblocks == len(nbytes)
    names = [placed.locations[at] for at in placed.holder_ids.tolist()]
    assert names == sorted(names)  # ranges of blocks, workers in the order of their addresses
    assert set(names) == set(placed.locations) <= set(threads)
    weights = np.maximum(sizes, 1)
    for name, there in threads.items():
        share = weights.sum() * there / sum(threads.values())
        got = sum(int(weight) for weight, at in zip(weights, names, strict=True) if at == name)
        assert abs(got - share) <= weights.max() + 1e-6 * weights.sum()
