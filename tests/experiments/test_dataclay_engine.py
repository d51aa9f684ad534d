"""Blocks on a real dataClay: where they are, what is counted, and that nothing is left."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("spliter_backends.dataclay", exc_type=ImportError)

from spliter import split
from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.sources import (
    Floats,
    GeneratedPoints,
    Points,
    cut_rows,
    no_points,
    row_starts,
)
from spliter_experiments.compare.engines.dataclay_engine import (
    DataClayEngine,
    LoadedArray,
    connect,
    knock,
    parse_address,
)
from spliter_experiments.compare.engines.dataclay_meter import kept_at
from spliter_experiments.compare.engines.engine import ClusterChoice, Placement
from spliter_experiments.compare.workloads.site import check_finite
from spliter_experiments.harness.errors import ClusterError, InputError, OptionError
from spliter_experiments.harness.runner import Reading

pytestmark = pytest.mark.backend("dataclay")

POINTS = GeneratedPoints(rows=800, dims=2, seed=5)


@pytest.fixture(scope="module")
def engine() -> Iterator[DataClayEngine]:
    with connect(ClusterChoice(None, workers=2, threads=1)) as connected:
        yield connected


@pytest.fixture
def array(engine: DataClayEngine) -> Iterator[LoadedArray]:
    chunks = cut_rows(800, 7)
    with engine.persisted(POINTS, chunks, no_points(POINTS), Placement.EVEN) as loaded:
        yield loaded


class TablePoints:
    """Points that are written down; the backends find this class by its module."""

    origin = "table"

    def __init__(self, values: list[list[float]]) -> None:
        self.values = np.array(values, dtype=np.float64)
        self.rows = len(values)
        self.columns = Columns.numbered(self.values.shape[1])

    def read(self, start: int, stop: int) -> Floats:
        return self.values[start:stop]


class UnreadablePoints(TablePoints):
    """Points that the client sees and the backends do not."""

    def read(self, start: int, stop: int) -> Floats:
        raise FileNotFoundError("no such file here")


def test_a_core_for_every_thread(engine: DataClayEngine) -> None:
    assert (engine.workers, engine.cores) == (2, 2)
    assert engine.is_on_this_machine()


def test_blocks_are_in_order_and_in_turn_at_the_backends(
    engine: DataClayEngine, array: LoadedArray
) -> None:
    assert array.shape == (800, 2)
    assert array.chunks == ((115, 115, 114, 114, 114, 114, 114), (2,))
    assert array.nbytes == 800 * 2 * 8
    np.testing.assert_array_equal(array.compute(), POINTS.read(0, 800))
    first, second = list(engine.capacities)
    assert array.locations() == [first, second, first, second, first, second, first]


def test_neighbours_are_together(engine: DataClayEngine) -> None:
    chunks, like = cut_rows(800, 6), no_points(POINTS)
    with engine.persisted(POINTS, chunks, like, Placement.CONTIGUOUS) as loaded:
        first, second = list(engine.capacities)
        assert loaded.locations() == [first] * 3 + [second] * 3


def test_partitions_yield_the_rows_where_they_are(array: LoadedArray) -> None:
    with split(array) as partitions:
        assert len(partitions) == 2
        assert partitions.nblocks == 7
        found = [future.result() for future in partitions.map(list)]
    blocks = [block for part in found for block in part]
    np.testing.assert_array_equal(
        np.sort(np.concatenate(blocks), axis=0), np.sort(POINTS.read(0, 800), axis=0)
    )


def test_blocks_are_deleted_at_the_end(engine: DataClayEngine) -> None:
    with engine.persisted(POINTS, (800,), no_points(POINTS), Placement.EVEN) as loaded:
        assert loaded.locations() != [None]
    assert loaded.locations() == [None]


def test_kernels_run_on_all_blocks_in_order(engine: DataClayEngine, array: LoadedArray) -> None:
    assert engine.call_blocks(array, len) == list(array.chunks[0])
    starts = row_starts(array.chunks[0])
    found = engine.call_blocks(array, row_of, None, starts, number=3)
    assert [start for start, _ in found] == starts
    expected = [POINTS.read(start + 3, start + 4)[0] for start in starts]
    np.testing.assert_array_equal([row for _, row in found], expected)
    assert all(engine.call_blocks(array, are_equal, aligned=array))


def row_of(block: Floats, start: int, number: int) -> tuple[int, Floats]:
    return start, np.asarray(block[number])


def are_equal(left: Floats, right: Floats) -> bool:
    return left is right


def test_calls_and_bytes_are_counted(engine: DataClayEngine, array: LoadedArray) -> None:
    stubs = [client.stub for client in engine.executor.session.runtime.backend_clients.values()]
    with engine.meter() as meter:
        before = meter.reading()
        engine.call_blocks(array, len)
        small = meter.reading().since(before)
        assert small.tasks == array.nblocks
        engine.call_blocks(array, np.asarray)
        both = meter.reading().since(before)
        assert both.tasks == 2 * array.nblocks
        assert small.nbytes is not None
        assert both.nbytes is not None
        assert both.nbytes - 2 * small.nbytes > array.nbytes
        with split(array) as partitions:
            partitions.map(len)[0].result()
        assert meter.reading().since(before).tasks - both.tasks == 2
    after = [client.stub for client in engine.executor.session.runtime.backend_clients.values()]
    assert after == stubs
    engine.call_blocks(array, len)
    assert meter.reading() == Reading(both.tasks + 2, meter.reading().nbytes)


def test_results_that_are_kept_are_waited_for(engine: DataClayEngine, array: LoadedArray) -> None:
    rest = engine.idle_state([array])
    kept = engine.executor.submit(np.ones, (10**6,), {})
    kept.exception(timeout=30)
    assert kept_at(engine.executor, engine.capacities) == rest.kept + 1
    with pytest.raises(ClusterError, match=r"not at rest after 0\.3 s"):
        rest.wait(timeout=0.3)
    del kept
    gc.collect()
    rest.wait()


def test_gaps(engine: DataClayEngine) -> None:
    nan, inf = np.nan, np.inf
    points: Points = TablePoints([[1, nan], [nan, 5], [inf, -inf], [-2, nan]])
    with (
        engine.persisted(points, (1, 2, 1), no_points(points), Placement.EVEN) as loaded,
        pytest.raises(InputError, match="missing or infinite values in 0, 1; choose"),
    ):
        check_finite(engine, points, loaded)


def test_backends_that_cannot_read_the_input(engine: DataClayEngine) -> None:
    points: Points = UnreadablePoints([[1.0], [2.0]])
    loading = engine.persisted(points, (1, 1), no_points(points), Placement.EVEN)
    with pytest.raises(InputError, match=r"cannot read table: no such file here.*same path"):
        loading.__enter__()


def test_second_cluster_in_one_process(engine: DataClayEngine) -> None:
    with pytest.raises(ClusterError, match="one at a time"):
        connect(ClusterChoice(None, workers=1, threads=1)).__enter__()


def test_address_that_is_none() -> None:
    for address in ("somewhere", "host:", ":123", "host:port"):
        with pytest.raises(OptionError, match="HOST:PORT"):
            parse_address(address)


def test_nobody_at_the_address() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match=r"no metadata service of dataClay answers at 127"):
            knock("127.0.0.1", bound.getsockname()[1])
