"""What is particular to COMPSs: its futures, constraints, where blocks are, what is kept."""

from __future__ import annotations

import operator
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import (
    BlockLostError,
    InvalidArgumentError,
    Partition,
    TaskFailedError,
    TaskNotSerializableError,
    UnsupportedCollectionError,
    gather,
    reduce,
    split,
    task,
)
from tests.compss_backend.conftest import NODES
from tests.compss_backend.placing import made
from tests.conftest import ROOT
from tests.running import run_command

pytestmark = [pytest.mark.backend("compss"), pytest.mark.standin]


@pytest.fixture
def unpinned(runtime: Any) -> Iterator[Any]:
    """Leave the placing of tasks to the scheduler."""
    from spliter_backends.compss import configure

    before = configure(pins={})
    yield runtime
    configure(pins=before.pins)


@task
def total(partition: Partition) -> float:
    return float(sum(block.sum() for block in partition))


def node(partition: Partition) -> str:
    return os.environ["COMPSS_HOSTNAMES"]


def numbers(blocks: int = 6) -> Any:
    return made([np.arange(3) + 3 * at for at in range(blocks)])


def wait_on(*values: Any) -> Any:
    from pycompss.api.api import compss_wait_on

    return compss_wait_on(*values)


# --- futures --------------------------------------------------------------------------------


def test_wait_on_takes_futures_and_lists_of_them(runtime: Any) -> None:
    from pycompss.runtime.management.classes import Future

    futures = split(numbers()).map(total)
    assert all(isinstance(future, Future) for future in futures)
    combined = reduce(operator.add, futures)
    assert wait_on(combined) == sum(wait_on(futures)) == sum(range(18))


def test_result_after_wait_on_and_again(runtime: Any) -> None:
    (future,) = split(numbers(1)).map(total)
    assert wait_on(future) == 3
    assert [future.result(), future.result(timeout=1)] == [3, 3]
    assert future.exception() is None


def test_task_of_the_program_takes_a_future_waited_for_or_not(runtime: Any) -> None:
    from tests.compss_backend.programs import block_as_it_is

    first, second = split(numbers(2), partitions_per_location=2).map(total)[:2]
    first.result()
    assert wait_on([block_as_it_is(first), block_as_it_is(second)]) == [3, 12]
    assert reduce(operator.add, [first, second]).result() == 15


def test_deleted_future(runtime: Any) -> None:
    from pycompss.api.api import compss_delete_object

    (future,) = split(numbers(1)).map(total)
    compss_delete_object(future)
    with pytest.raises(BlockLostError, match="deleted"):
        future.result()


def test_task_that_compss_gave_up(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The binding returns None for it, as it did on the real runtime when a process was killed.
    (future,) = split(numbers(1)).map(total)
    with monkeypatch.context() as patch:
        patch.setattr("spliter_backends.compss.future.compss_wait_on", lambda _: None)
        with pytest.raises(TaskFailedError, match="no result"):
            future.result()
    assert future.result() == 3


def nothing(partition: Partition) -> None:
    pass


def test_task_that_returns_none(runtime: Any) -> None:
    (future,) = split(numbers(1)).map(nothing)
    assert future.result() is None


def fail(partition: Partition) -> None:
    raise ValueError("by mistake")


def leave(partition: Partition) -> None:
    sys.exit(3)


def unpicklable(partition: Partition) -> Any:
    return threading.Lock()


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def raise_odd(partition: Partition) -> None:
    raise OddError(1, 2)


def test_wait_on_raises_for_a_task_that_failed(runtime: Any) -> None:
    from pycompss.util.exceptions import SerializerException

    (future,) = split(numbers(1)).map(fail)
    with pytest.raises(SerializerException) as raised:
        wait_on(future)
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="by mistake"):
        future.result()
    with pytest.raises(ValueError, match="by mistake"):
        reduce(operator.add, [future, future]).result()


def fail_because(partition: Partition) -> None:
    try:
        fail(partition)
    except ValueError as cause:
        raise KeyError("wanted") from cause


def test_cause_of_an_error(runtime: Any) -> None:
    (partition,) = split(numbers(1))
    with pytest.raises(KeyError, match="wanted") as raised:
        partition.submit(fail_because).result()
    assert [entry.name for entry in raised.traceback][-1] == "fail_because"
    cause = raised.value.__cause__
    assert isinstance(cause, ValueError)
    lines = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert lines == ["fail_because", "fail"]


def plus(partition: Partition, addend: Any) -> Any:
    return sum(block.sum() for block in partition) + addend.sum()


@pytest.mark.parametrize("size", [1, 100_000])
def test_calls_small_and_large(runtime: Any, size: int) -> None:
    (partition,) = split(numbers(1))
    addend = np.ones(size)
    assert partition.submit(plus, addend).result() == 3 + size


def test_tasks_that_end_badly(runtime: Any) -> None:
    (partition,) = split(numbers(1))
    with pytest.raises(TaskFailedError, match=r"sys.exit\(3\)"):
        partition.submit(leave).result()
    with pytest.raises(TaskFailedError, match="OddError, which cannot be pickled"):
        partition.submit(raise_odd).result()
    with pytest.raises(TaskNotSerializableError, match="the task returned"):
        partition.submit(unpicklable).result()
    assert total(partition).result() == 3, "the nodes are alive"


def no_block(number: int) -> Any:
    raise OSError(f"no file {number}")


def test_error_of_making_a_block(runtime: Any) -> None:
    from spliter_backends.compss import make_blocks

    with pytest.raises(OSError, match="no file 7"):
        split(make_blocks(no_block, [(7,)]))


def test_nothing_is_kept_of_what_was_waited_for(runtime: Any) -> None:
    parts = split(numbers())
    gather(parts.map(total))
    before = runtime.tracked()
    for _ in range(5):
        gather(parts.map(total))
    assert runtime.tracked() == before
    parts.close()


def test_blocks_as_one_are_deleted_with_the_split(runtime: Any) -> None:
    blocks = numbers()
    with split(blocks):
        before = runtime.tracked()
    with split(blocks, partitions_per_location=1, materialize=True) as parts:
        gather(parts.map(total))
        assert runtime.tracked() > before
    assert runtime.tracked() == before


def test_frames_with_columns_in_another_order(runtime: Any) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0, 12)})
    parts = split(made([frame[:3], frame[3:][["b", "a"]]]), partitions_per_location=2)
    assert len(parts) == 2
    found = parts.map_blocks(pd.DataFrame.to_numpy, dtype=float, trailing_shape=(2,))
    with pytest.raises(InvalidArgumentError, match=r"\['a', 'b'\] and \['b', 'a'\]"):
        found.gather()


# --- constraints and places -----------------------------------------------------------------


def test_constraint_above_task_passes_through(unpinned: Any) -> None:
    from pycompss.api.constraint import constraint

    @constraint(app_software="NODE1", computing_units="2")  # type: ignore[untyped-decorator]
    @task
    def where(partition: Partition) -> str:
        return os.environ["COMPSS_HOSTNAMES"]

    parts = split(numbers(), partitions_per_location=1)
    for _ in range(2):  # the binding tells of constraints on the first call only
        assert set(gather(where(partition) for partition in parts)) == {"node-1"}
    assert unpinned.ran[-1][2] == {"app_software": "NODE1", "computing_units": "2"}


def test_a_team_reserves_a_computing_unit_for_each_thread(runtime: Any) -> None:
    from spliter_backends.compss import configure

    parts = split(numbers(), schedule="SS")
    assert parts.map_reduce(len, operator.add).result() == 6
    assert runtime.ran[-2][2]["computing_units"] == 2
    # COMPSs would never start a task that needs more than the node has.
    configure(computing_units=None)
    assert split(numbers()).map_reduce(len, operator.add).result() == 6
    assert "computing_units" not in runtime.ran[-2][2]


def test_constrained_task_without_a_partition(unpinned: Any) -> None:
    from pycompss.api.constraint import constraint

    @constraint(app_software="NODE1")  # type: ignore[untyped-decorator]
    @task
    def largest(blocks: Any) -> int:
        return max(int(block.max()) for block in blocks)

    assert largest([np.arange(3)]) == 2
    assert largest(blocks=[np.arange(4)]) == 3
    for _ in range(2):
        assert largest(split(numbers(1))[0]).result() == 2
        assert unpinned.ran[-1][2] == {"app_software": "NODE1"}, "the constraint is not spent"


def test_scheduler_follows_the_blocks(runtime: Any) -> None:
    from spliter_backends.compss import configure

    parts = split(numbers(9), partitions_per_location=2)
    before = configure(pins={})
    try:
        found = gather(parts.map(node))
    finally:
        configure(pins=before.pins)
    assert found == [partition.location for partition in parts]
    assert parts.moved.blocks == 0


def test_tasks_away_from_their_blocks_are_counted_once(runtime: Any) -> None:
    from spliter_backends.compss import configure

    parts = split(numbers(9), partitions_per_location=1)
    shifted = dict(zip(NODES, [*list(NODES.values())[1:], NODES["node-0"]], strict=True))
    before = configure(pins=shifted)
    try:
        for _ in range(2):
            futures = parts.map(total)
            # News of the tasks comes with the result that they have gone into.
            assert reduce(operator.add, futures).result() == sum(range(27))
    finally:
        configure(pins=before.pins)
    assert parts.moved.fetched_blocks == 9
    assert parts.moved.fetched_nbytes == 9 * 24


def test_blocks_in_turn(runtime: Any) -> None:
    from spliter_backends.compss import configure
    from tests.compss_backend.programs import block_as_it_is

    futures = [block_as_it_is(np.arange(3)) for _ in range(4)]
    asked = runtime.submitted_count("describe")
    before = configure(locate="round-robin", nodes=("a", "b"))
    try:
        parts = split(futures, partitions_per_location=1)
        assert parts.locations == ("a (in turn)", "b (in turn)")
        assert gather(parts.map(total)) == [6, 6]
        assert "in turn" in repr(parts[0])
    finally:
        configure(locate=before.locate, nodes=before.nodes)
    assert runtime.submitted_count("describe") == asked
    assert parts.moved.blocks == 0


def test_blocks_are_asked_for_once(runtime: Any) -> None:
    from tests.compss_backend.programs import block_as_it_is

    futures = [block_as_it_is(np.arange(3)) for _ in range(4)]
    asked = runtime.submitted_count("describe")
    for _ in range(2):
        assert split(futures).nbytes == 4 * 24
    assert runtime.submitted_count("describe") == asked + 4


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"locate": "guess"}, {"computing_units": 0}, {"no_such_setting": 1}]
)
def test_settings_that_cannot_be(changes: dict[str, Any]) -> None:
    from spliter_backends.compss import configure

    with pytest.raises(InvalidArgumentError):
        configure(**changes)


def test_nodes_that_are_not_pinned_to(runtime: Any) -> None:
    from spliter_backends.compss import make_blocks

    for nodes in (["node-9"], ["node-1", "node-2"]):
        with pytest.raises(InvalidArgumentError, match="nodes must name"):
            make_blocks(np.arange, [(3,)], nodes=nodes)


@pytest.mark.parametrize("collection", [[], [np.zeros(3), 5], 7])
def test_collections_that_are_none(collection: Any) -> None:
    with pytest.raises(UnsupportedCollectionError):
        split(collection, backend="compss")


def test_without_pycompss_the_error_says_what_is_missing() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'backends'}"}
    environment.pop("COMPSS_HOME", None)
    program = "import sys; sys.modules['pycompss'] = None; import spliter_backends.compss"
    done = run_command([sys.executable, "-c", program], env=environment)
    assert "COMPSS_HOME is not set" in done.stderr
