"""Splits of dataClay collections: what is yielded, kept and freed, and what they cost."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

pytest.importorskip("dataclay")


from spliter import (
    BackendNotUsableError,
    InvalidArgumentError,
    PartitionNotLocalError,
    UnsupportedCollectionError,
    gather,
    reduce,
    split,
    task,
)
from spliter_backends.dataclay import (
    distribute,
    from_array,
    generate,
)
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import DataClayExecutor, current_executor
from spliter_backends.dataclay.objects import Block
from tests.conftest import RunPython
from tests.dataclay_backend import programs
from tests.dataclay_backend.classes import Readings, Table
from tests.dataclay_backend.counts import settled, steady, total_over

pytestmark = pytest.mark.backend("dataclay")


@pytest.fixture
def executor(cluster: EmbeddedDataClay) -> DataClayExecutor:
    return current_executor()


def summed(futures: Sequence[Any]) -> int:
    return sum(future.result(timeout=60) for future in futures)


class TestWhatIsYielded:
    def test_no_copy(self, cluster: EmbeddedDataClay) -> None:
        """The very memory that the blocks' own methods see."""
        objects = [Table(np.arange(1000) + at) for at in range(6)]
        for at, it in enumerate(objects):
            it.make_persistent(backend_id=cluster.backend_ids[at % 3])
        own: dict[tuple[int, ...], int] = {(at,): it.address() for at, it in enumerate(objects)}
        parts = split(objects, partitions_per_location=1)
        for _ in range(2):
            for part in parts:
                found = part.submit(programs.addresses).result(timeout=60)
                assert found == [own[index] for index in part.get_indexes()]

    def test_objects_of_a_users_class_are_yielded_themselves(
        self, cluster: EmbeddedDataClay
    ) -> None:
        objects = [Readings(np.full(4, at)) for at in range(6)]
        for at, it in enumerate(objects):
            it.make_persistent(backend_id=cluster.backend_ids[at % 3])
        parts = split(objects)
        assert summed(parts.map(programs.totals_of_objects)) == 2 * 4 * sum(range(6))
        assert parts.nbytes == 6 * 4 * 8

    @pytest.mark.parametrize(
        "make",
        [
            lambda at: pd.DataFrame({"a": [at, at], "b": ["x", "y"]}),
            lambda at: sp.csr_matrix(np.eye(3) * at),
            lambda at: np.ma.masked_equal([at, 1, 2], 1),
            lambda at: [at, at + 1],
        ],
        ids=["frame", "csr", "masked", "list"],
    )
    def test_blocks_of_other_kinds(self, cluster: EmbeddedDataClay, make: Any) -> None:
        blocks = [make(at) for at in range(4)]
        x = distribute(blocks, backends=cluster.backend_ids)
        with split(x, materialize=True) as parts:
            kinds = gather(parts.map(programs.kinds))
            assert {kind for found in kinds for kind in found} == {type(blocks[0]).__name__}
            assert sum(len(part.get_item_indexes()) for part in parts) == sum(
                block.shape[0] if hasattr(block, "shape") else len(block) for block in blocks
            )

    def test_frames_with_columns_in_another_order(self, cluster: EmbeddedDataClay) -> None:
        frame = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0, 12)})
        x = distribute([frame[:3], frame[3:][["b", "a"]]], backends=cluster.backend_ids)
        with split(x) as parts:
            assert len(parts) == 2
            with pytest.raises(InvalidArgumentError, match=r"\['a', 'b'\] and \['b', 'a'\]"):
                parts.map_blocks(pd.DataFrame.to_numpy, dtype=float, trailing_shape=(2,))

    def test_persistent_objects_among_arguments_are_at_home_there(
        self, cluster: EmbeddedDataClay
    ) -> None:
        at = cluster.backend_ids[0]
        readings = Readings(np.arange(5))
        readings.make_persistent(backend_id=at)
        (part,) = split(from_array(np.arange(3), backends=[at]))

        def is_local(_: Any, it: Any) -> bool:
            return bool(it._dc_is_local)

        assert part.submit(is_local, readings).result(timeout=60)

    def test_objects_come_back_as_references(self, cluster: EmbeddedDataClay) -> None:
        objects = [Readings(np.arange(3))]
        objects[0].make_persistent(backend_id=cluster.backend_ids[1])
        (part,) = split(objects)
        (found,) = part.submit(list).result(timeout=60)
        assert isinstance(found, Readings)
        assert found.total() == 3


class TestCollections:
    def test_from_array(self, cluster: EmbeddedDataClay) -> None:
        values = np.arange(48).reshape(12, 4)
        x = from_array(values, chunks=(5, (1, 3)), backends=cluster.backend_ids)
        assert x.chunks == ((5, 5, 2), (1, 3))
        assert (x.shape, x.dtype, x.nbytes) == ((12, 4), values.dtype, values.nbytes)
        np.testing.assert_array_equal(np.asarray(x), values)
        parts = split(x)
        assert parts.grid.chunks == x.chunks
        assert summed(parts.map(programs.total)) == values.sum()

    def test_default_is_a_block_per_backend(self, cluster: EmbeddedDataClay) -> None:
        x = from_array(np.arange(10))
        assert x.chunks == ((4, 4, 2),)
        assert len(set(x.locations())) == 3

    def test_placement(self, cluster: EmbeddedDataClay) -> None:
        ids = [str(one) for one in cluster.backend_ids]
        placings: list[tuple[Any, list[int]]] = [
            ("round-robin", [0, 1, 2, 0, 1, 2]),
            ("runs", [0, 0, 1, 1, 2, 2]),
            ([2, 2, 2, 0, 0, 1], [2, 2, 2, 0, 0, 1]),
        ]
        for placement, expected in placings:
            x = from_array(
                np.arange(6), chunks=1, backends=cluster.backend_ids, placement=placement
            )
            assert x.locations() == [ids[number] for number in expected]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"chunks": 0},
            {"chunks": ((2, 2),)},
            {"chunks": (2, 2, 2)},
            {"placement": "anywhere"},
            {"placement": [0, 5], "chunks": 3},
            {"placement": [0]},
            {"backends": [uuid.UUID(int=1)]},
            {"backends": []},
        ],
        ids=repr,
    )
    def test_what_does_not_fit_is_refused(
        self, cluster: EmbeddedDataClay, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgumentError):
            from_array(np.arange(6), **wrong)

    def test_generate(self, cluster: EmbeddedDataClay) -> None:
        x = generate(
            programs.numbered, ((2, 3), (1, 1)), 10, backends=cluster.backend_ids, placement="runs"
        )
        assert (x.shape, x.dtype, x.nblocks) == ((5, 2), np.dtype(np.int64), 4)
        np.testing.assert_array_equal(np.asarray(x)[0], [0, 1])
        assert int(np.asarray(x)[-1, -1]) == 11

    def test_generate_checks_shapes(self, cluster: EmbeddedDataClay) -> None:
        with pytest.raises(InvalidArgumentError, match="returned shape"):
            generate(lambda index, shape: np.zeros(1), ((2, 3),))

    def test_pickled_description(self, cluster: EmbeddedDataClay) -> None:
        x = from_array(np.arange(3000), chunks=1000)
        sent = pickle.dumps(x)
        assert len(sent) < 2000
        again = pickle.loads(sent)
        assert summed(split(again).map(programs.total)) == sum(range(3000))

    def test_deleted(self, cluster: EmbeddedDataClay) -> None:
        before = steady(cluster, programs.objects)
        x = from_array(np.arange(30), chunks=3)
        assert total_over(cluster, programs.objects) == before + 10
        x.delete()
        assert total_over(cluster, programs.objects) == before
        assert x.locations() == [None] * 10

    def test_volatile_objects_are_refused(self, cluster: EmbeddedDataClay) -> None:
        with pytest.raises(UnsupportedCollectionError, match="make_persistent"):
            split([Block(np.arange(3))])

    def test_other_elements_are_refused(self, cluster: EmbeddedDataClay) -> None:
        x = from_array(np.arange(3), chunks=3)
        with pytest.raises(UnsupportedCollectionError, match="element 1"):
            split([*x.blocks, np.arange(3)])
        with pytest.raises(UnsupportedCollectionError, match="must all be in dataClay"):
            split(x, [np.arange(3)])
        with pytest.raises(UnsupportedCollectionError, match="must all be in dataClay"):
            split(x, np.arange(3))


class TestWhatIsKept:
    def test_small_results_come_at_once(
        self, cluster: EmbeddedDataClay, executor: DataClayExecutor
    ) -> None:
        (part,) = split(from_array(np.arange(3), chunks=3))
        before = steady(cluster, programs.kept)
        result = part.submit(programs.ones, 1000).result(timeout=60)
        assert total_over(cluster, programs.kept) == before
        result[0] = 5  # not read-only

    def test_large_results_stay_and_are_used_in_place(self, cluster: EmbeddedDataClay) -> None:
        parts = split(from_array(np.arange(30), chunks=3), partitions_per_location=1)
        before = steady(cluster, programs.kept)
        futures = [part.submit(programs.ones, 100_000) for part in parts]
        for future in futures:
            assert future.exception(timeout=60) is None
        assert total_over(cluster, programs.kept) == before + len(parts)
        submit = current_executor().submit
        for part, future in zip(parts, futures, strict=True):
            where = [
                submit(programs.identity, (future,), {}, part.location).result(timeout=60)
                for _ in range(2)
            ]
            assert where[0] == where[1], "the object itself, twice"
        # At another location it arrives as a copy.
        assert parts[0].submit(programs.sum_of, futures[1]).result(timeout=60) == 100_000
        assert summed([reduce(np.add, futures)]).sum() == 100_000 * len(futures)  # type: ignore[attr-defined]
        del future, futures
        assert settled(cluster, programs.kept, before)

    def test_results_of_partitions_are_freed_with_their_futures(
        self, cluster: EmbeddedDataClay
    ) -> None:
        before = steady(cluster, programs.kept)
        with split(from_array(np.arange(30), chunks=3)) as parts:
            futures = parts.map(programs.ones, 100_000)
        # The Split is closed, and its results are still there.
        assert [len(result) for result in gather(futures)] == [100_000] * len(futures)
        del futures
        assert settled(cluster, programs.kept, before)

    def test_closing_frees_partitions_and_materialized_blocks(
        self, cluster: EmbeddedDataClay
    ) -> None:
        x = from_array(np.arange(30), chunks=3)
        counts = programs.objects, programs.kept
        before = [steady(cluster, count) for count in counts]
        parts = split(x, partitions_per_location=1, materialize=True)
        assert summed(parts.map(programs.total)) == sum(range(30))
        assert [total_over(cluster, count) for count in counts] == [it + 3 for it in before]
        parts.close()
        for count, wanted in zip(counts, before, strict=True):
            assert settled(cluster, count, wanted)
        assert summed(split(x).map(programs.total)) == sum(range(30)), "the blocks are the user's"

    def test_copies_of_aligned_blocks_are_freed(self, cluster: EmbeddedDataClay) -> None:
        ids = cluster.backend_ids
        x = from_array(np.arange(30), chunks=10, backends=ids)
        y = from_array(np.arange(30), chunks=10, backends=ids, placement=[1, 2, 0])
        before = steady(cluster, programs.objects)
        with split(x, y) as parts:
            assert summed(parts.map(programs.products)) == sum(at * at for at in range(30))
            assert parts.moved.aligned_blocks == 3
            assert parts.moved.aligned_nbytes == 30 * 8
        assert settled(cluster, programs.objects, before)

    def test_submitted_tasks_outlive_their_split(self, cluster: EmbeddedDataClay) -> None:
        with split(from_array(np.arange(30), chunks=3)) as parts:
            futures = parts.map(programs.slow_total, 0.05)
        assert summed(futures) == sum(range(30))


class TestTasks:
    def test_many_at_once(self, cluster: EmbeddedDataClay) -> None:
        parts = split(from_array(np.arange(30), chunks=3))
        futures = [part.submit(programs.total) for _ in range(100) for part in parts][:500]
        assert len(futures) == 500
        expected = {id(part): int(part.get_item_indexes().sum()) for part in parts}
        wanted = [expected[id(part)] for _ in range(100) for part in parts][:500]
        assert [future.result(timeout=120) for future in futures] == wanted

    def test_one_call_for_each_task(self, cluster: EmbeddedDataClay) -> None:
        parts = split(from_array(np.arange(300), chunks=3), partitions_per_location=2)
        before = total_over(cluster, programs.task_calls)
        for _ in range(3):
            assert summed(parts.map(programs.total)) == sum(range(300))
        # The counting is a call at each backend itself.
        assert total_over(cluster, programs.task_calls) - before == 3 * len(parts) + 3

    def test_cancelled_while_it_waits_for_an_argument(self, cluster: EmbeddedDataClay) -> None:
        parts = split(from_array(np.arange(30), chunks=10))
        slow = parts[0].submit(programs.slow_total, 0.3)
        waiting = parts[1].submit(programs.sum_of, slow)
        assert waiting.cancel()
        assert slow.result(timeout=60) is not None

    def test_closures_and_functions_of_main(self, cluster: EmbeddedDataClay) -> None:
        factor = 3

        @task
        def scaled(partition: Any) -> int:
            return sum(int(block.sum()) for block in partition) * factor

        scaled.__module__ = "__main__"
        parts = split(from_array(np.arange(30), chunks=10))
        assert summed([scaled(part) for part in parts]) == 3 * sum(range(30))

    def test_collection_inside_a_task_cannot_be_split(self, cluster: EmbeddedDataClay) -> None:
        x = from_array(np.arange(30), chunks=10)
        with pytest.raises(BackendNotUsableError, match="split in the client"):
            split(x)[0].submit(lambda part, other: len(split(other)), x).result(timeout=60)

    def test_partition_of_another_location(self, cluster: EmbeddedDataClay) -> None:
        parts = split(from_array(np.arange(30), chunks=10, backends=cluster.backend_ids))
        with pytest.raises(PartitionNotLocalError):
            parts[0].submit(lambda part, other: list(other[0]), [parts[1]]).result(timeout=60)


def test_many_objects_are_located_with_one_question(
    cluster: EmbeddedDataClay, executor: DataClayExecutor
) -> None:
    x = from_array(np.arange(500), chunks=1, backends=cluster.backend_ids)
    before = total_over(cluster, programs.locate_calls)
    found = executor.session.wait(executor.session.locate(x.object_ids))
    assert total_over(cluster, programs.locate_calls) - before == 1
    assert found == [cluster.backend_ids[at % 3] for at in range(500)]
    x.delete()


def test_no_client_is_told(cluster: EmbeddedDataClay, monkeypatch: pytest.MonkeyPatch) -> None:
    x = from_array(np.arange(3), chunks=3)
    monkeypatch.setattr("dataclay.config.current_runtime", None)
    with pytest.raises(BackendNotUsableError, match="no dataClay client"):
        split(x)


PROGRAM = """
import sys, uuid
import numpy as np
import dataclay
dataclay.Client(host="127.0.0.1", port=int(sys.argv[1])).start()
from spliter import split
from spliter_backends.dataclay import from_array
x = from_array(np.arange(30), chunks=3)
parts = split(x, materialize=True)
result = parts[0].submit(lambda part: np.ones(100_000))
print(sum(f.result(60) for f in parts.map(lambda part: sum(int(b.sum()) for b in part))))
assert result.exception(60) is None
"""


@pytest.mark.thorough
def test_program_that_frees_nothing_itself(
    cluster: EmbeddedDataClay, run_python: RunPython
) -> None:
    """It ends, and leaves its collections at the backends but nothing else."""
    before = steady(cluster, programs.objects), steady(cluster, programs.kept)
    done = run_python("-W", "ignore", "-c", PROGRAM, str(cluster.address[1]), timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(sum(range(30)))
    assert settled(cluster, programs.kept, before[1])
    assert settled(cluster, programs.objects, before[0] + 10)
