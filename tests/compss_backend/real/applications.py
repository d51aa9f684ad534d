"""Applications, ds-arrays and decorators on a real COMPSs runtime; run inside ``runcompss``."""

from __future__ import annotations

import operator
import os
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from pycompss.api.api import compss_get_number_of_resources, compss_wait_on
from pycompss.api.constraint import constraint

from spliter import (
    Partition,
    TaskFailedError,
    TaskNotSerializableError,
    gather,
    reduce,
    split,
    task,
)
from spliter_apps import histogramdd
from spliter_backends.compss import CompssFuture, make_blocks
from spliter_backends.compss.api import storage_is_configured
from tests.compss_backend.dsarrays import check_rows, numbers
from tests.compss_backend.placing import made
from tests.compss_backend.programs import block_as_it_is
from tests.compss_backend.real.nodes import nodes_by_software
from tests.engine_collections import cut
from tests.histogram_suite import points
from tests.programs import listing5


def test_there_is_no_storage_interface() -> None:
    assert not storage_is_configured()


def test_listing5() -> None:
    limits = [(0.0, 9.0)] * 3
    found = listing5.histogram(made(cut(points(), [20] * 4 + [10])), 4, limits)
    np.testing.assert_array_equal(found, np.histogramdd(points(), bins=4, range=limits)[0])


def test_histogram() -> None:
    found, _ = histogramdd(made(cut(points(), [20] * 4 + [10])), 3)
    np.testing.assert_array_equal(found, np.histogramdd(points(), 3)[0])


def test_dsarrays() -> None:
    dislib = pytest.importorskip("dislib")
    check_rows(dislib.array(numbers(), (8, 3)), numbers())
    values = np.where(numbers() % 3 == 0, numbers(), 0.0)
    check_rows(dislib.array(scipy.sparse.csr_matrix(values), (8, 4)), values)
    check_rows(dislib.array(numbers(), (8, 3))[3:20, 2:6], numbers()[3:20, 2:6])
    rows = [[4, 9, 9, 1], [7]]
    array = made(cut(numbers(), rows[0]), rows).dsarray()
    np.testing.assert_array_equal(array.collect(), numbers())


def test_futures_of_the_program() -> None:
    futures = [block_as_it_is(block) for block in cut(points(), [30, 60])]
    parts = split(futures)
    sums = parts.map(lambda part: sum(float(block.sum()) for block in part))
    assert all(isinstance(future, CompssFuture) for future in sums)
    assert sum(compss_wait_on(sums)) == points().sum()
    again = [block_as_it_is(future) for future in parts.map(len)]
    assert sum(compss_wait_on(again)) == 2


@constraint(app_software=next(iter(nodes_by_software().values()), "none"))  # type: ignore[untyped-decorator]
@task
def where(partition: Partition) -> str:
    """Tell the node."""
    return os.environ["COMPSS_HOSTNAMES"]


@pytest.mark.skipif(not nodes_by_software(), reason="no node has a software of its own")
def test_constraints_pass_through() -> None:
    parts = split(made([np.arange(3)] * 6), partitions_per_location=3)
    for _ in range(2):
        found = set(gather(where(partition) for partition in parts))
        assert found == {next(iter(nodes_by_software()))}


@constraint(app_software=next(iter(nodes_by_software().values()), "none"))  # type: ignore[untyped-decorator]
@task
def largest(blocks: Any) -> tuple[int, str]:
    """Return the largest number, and where that was found out."""
    return max(int(block.max()) for block in blocks), os.environ.get("COMPSS_HOSTNAMES", "")


@pytest.mark.skipif(not nodes_by_software(), reason="no node has a software of its own")
def test_constraints_wait_for_a_partition() -> None:
    assert largest([np.arange(3)])[0] == 2
    parts = split(made([np.arange(5)] * 2))
    for _ in range(2):
        assert gather(map(largest, parts)) == [(4, next(iter(nodes_by_software())))] * len(parts)


def test_blocks_in_turn() -> None:
    nodes = max(int(compss_get_number_of_resources()), 1)
    blocks = make_blocks(np.arange, [(3,)] * (4 * nodes), nodes="in turn")
    with split(blocks, partitions_per_location=1) as parts:
        assert [len(part) for part in parts] == [4] * nodes


def leave(partition: Partition) -> None:
    raise SystemExit(3)


def unpicklable(partition: Partition) -> Any:
    return threading.Lock()


def plus(partition: Partition, addend: Any) -> Any:
    return sum(block.sum() for block in partition) + addend.sum()


@pytest.mark.parametrize("size", [1, 1_000, 100_000])
def test_calls_small_and_large(size: int) -> None:
    (partition,) = split(made([np.arange(3)]))
    assert partition.submit(plus, np.ones(size)).result() == 3 + size


def test_tasks_that_end_badly_end_nothing_else() -> None:
    parts = split(made([np.arange(3)]))
    with pytest.raises(TaskFailedError, match="SystemExit"):
        parts[0].submit(leave).result()
    with pytest.raises(TaskNotSerializableError, match="cannot be pickled"):
        parts[0].submit(unpicklable).result()
    assert reduce(operator.add, parts.map(len)).result() == 1
