"""Dask arrays of sparse matrices: planned by their nonzeros, and results of the same format."""

from __future__ import annotations

import operator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait
from scipy import sparse

from spliter import InvalidArgumentError, Partition, split
from tests.scale.passes import spill_all

pytestmark = pytest.mark.backend("dask")

ROWS, COLUMNS = 200, 30
DENSITIES = (0.5, 0.5, *[0.01] * 10)
MATRICES: list[Any] = [
    sparse.random(ROWS, COLUMNS, density, format="csr", random_state=number)
    for number, density in enumerate(DENSITIES)
]
WHOLE: Any = sparse.vstack(MATRICES, format="csr")


def nonzeros(partition: Partition) -> int:
    return sum(block.nnz for block in partition)


def halves(partition: Partition) -> list[Any]:
    return partition.cut(sparse.vstack(list(partition), format="csr") / 2)


@pytest.fixture
def points(client: Client) -> da.Array:
    empty = sparse.csr_matrix((0, COLUMNS))
    futures = client.scatter(MATRICES, hash=False)
    blocks = [da.from_delayed(one, (ROWS, COLUMNS), meta=empty) for one in futures]
    x: da.Array = da.concatenate(blocks).persist()
    wait(x)
    return x


def values_of(client: Client, x: da.Array) -> Any:
    blocks = client.gather(client.compute(list(x.to_delayed().ravel())))
    assert {type(block) for block in blocks} == {sparse.csr_matrix}
    return sparse.vstack(blocks, format="csr")


@pytest.mark.parametrize("schedule", [None, "FAC2", "STATIC"])
def test_a_block_weighs_its_nonzeros(client: Client, points: da.Array, schedule: str) -> None:
    parts = split(points, schedule=schedule)
    counts = client.gather(parts.map(nonzeros))
    assert sum(counts) == WHOLE.nnz
    for part, count in zip(parts, counts, strict=True):
        # Values, column numbers, and where each row begins; Dask adds some for the object.
        buffers = count * (8 + 4) + len(part) * (ROWS + 1) * 4
        assert buffers <= part.nbytes < buffers + 1000 * len(part)


@pytest.mark.parametrize("spilled", [False, True])
def test_map_blocks_keeps_the_format(client: Client, points: da.Array, spilled: bool) -> None:
    if spilled:
        client.run(spill_all)
    doubled = split(points, schedule="FAC2").map_blocks(lambda block: block * 2)
    assert doubled.chunks == points.chunks
    assert (values_of(client, doubled) != WHOLE * 2).nnz == 0


def test_results_of_tasks_as_an_array_of_sparse_matrices(client: Client, points: da.Array) -> None:
    with split(points, schedule="GSS", materialize=True) as parts:
        assert parts.map_reduce(nonzeros, operator.add).result() == WHOLE.nnz
        results = [(part, part.submit(halves)) for part in parts]
        made = parts.assemble(results, meta=sparse.csr_matrix((0, COLUMNS)))
    assert (values_of(client, made) != WHOLE / 2).nnz == 0


def test_another_format_than_inferred_is_refused(client: Client, points: da.Array) -> None:
    def dense_at_the_worker(block: Any) -> Any:
        return block if block.shape[0] == 1 else block.toarray()

    made = split(points).map_blocks(dense_at_the_worker)
    with pytest.raises(InvalidArgumentError, match=r"returned a ndarray .* expected a csr_matrix"):
        values_of(client, made)


def test_sparse_blocks_in_this_process() -> None:
    doubled = split(MATRICES, schedule="FAC2").map_blocks(lambda block: block * 2)
    assert (sparse.vstack(doubled) != WHOLE * 2).nnz == 0
    assert np.sum([part.nbytes for part in split(MATRICES, schedule="SS")]) > 12 * WHOLE.nnz
