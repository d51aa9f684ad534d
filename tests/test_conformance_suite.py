"""The conformance suite can fail: each of these faults makes the check meant for it fail."""

from __future__ import annotations

import abc
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from spliter import Movement, Partition
from spliter.backend import concatenate
from spliter.testing import BackendTests
from spliter.testing._hooks import Block
from spliter_backends._shared.process_blocks import LocalBlocks, LocalSource
from spliter_backends.local import executor as local_executor
from spliter_backends.local.executor import LocalExecutor
from tests.running import run_command

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], object]


class Subject(BackendTests):
    """The local backend, with whatever fault the test has put into it."""

    backend = "local"
    locations_are_elsewhere = False
    n_locations = 1
    count = 0.0
    control_works = True
    moves_on_every_pass = False

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return list(blocks)

    def incoming_transfers(self) -> float:
        self.count += self.moves_on_every_pass
        return self.count

    def move_something(self, collection: Any) -> None:
        self.count += self.control_works


def reading(change: Callable[[list[Any]], Any]) -> Fault:
    """Change what tasks read."""
    original = LocalSource.read

    def read(self: LocalSource) -> Iterator[Any]:
        return iter(change(list(original(self))))

    return lambda patch: patch.setattr(LocalSource, "read", read)


def pickled_with_the_data(patch: Patch) -> None:
    def reduce_with_data(self: LocalSource) -> tuple[Any, ...]:
        return list, (list(self.read()),)

    patch.setattr(LocalSource, "__reduce__", reduce_with_data)


def pickled_with_padding(patch: Patch) -> None:
    original = LocalSource.__reduce__

    def reduce_with_padding(self: LocalSource) -> tuple[Any, ...]:
        function, arguments = original(self)
        return function, arguments, {"padding": bytes(1000 * len(self.positions))}

    patch.setattr(LocalSource, "__reduce__", reduce_with_padding)


def submitting(change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Fault:
    """Change the function that is run."""
    original = LocalExecutor.submit

    def submit(self: Any, fn: Any, args: Any, kwargs: Any, location: Any = None) -> Any:
        return original(self, change(fn), args, kwargs, location)

    return lambda patch: patch.setattr(LocalExecutor, "submit", submit)


def wrapping_errors(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            raise RuntimeError(str(error)) from error

    return run


def forgetting_traceback(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        failed = None
        try:
            return fn(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- the fault is about any error
            failed = type(error)(*error.args)
        raise failed

    return run


def swallowing_misalignment(patch: Patch) -> None:
    patch.setattr("spliter._plan.check_aligned", lambda grids: None)


def never_as_one(patch: Patch) -> None:
    patch.setattr(Partition, "begin_pass", lambda self: False)


def one_that_is_the_first_block(patch: Patch) -> None:
    patch.setattr(LocalSource, "materialized", lambda self: next(self.read()))


def concatenate_every_time(patch: Patch) -> None:
    patch.setattr(LocalSource, "materialized", lambda self: concatenate(self.read()))


def one_for_all_splits(patch: Patch) -> None:
    kept: dict[bytes, Any] = {}

    def materialized(self: LocalSource) -> Any:
        return kept.setdefault(self.positions.tobytes(), concatenate(self.read()))

    patch.setattr(LocalSource, "materialized", materialized)


def blocks_in_order_of_partitions(patch: Patch) -> None:
    def assemble(self: Any, results: Any, made: Any) -> list[Any]:
        made_by = [future.result() for _, future in results][::-1]
        return [b for new in made_by for b in (new if made.output is None else new[made.output])]

    patch.setattr(LocalExecutor, "assemble", assemble)


FAULTS: dict[str, tuple[str, Fault]] = {
    "blocks in another order": (
        "test_partitions_cover_the_collection_with_right_values_and_indexes",
        reading(lambda blocks: blocks[::-1]),
    ),
    "a block left out": (
        "test_partitions_cover_the_collection_with_right_values_and_indexes",
        reading(lambda blocks: blocks[:-1]),
    ),
    "a block twice": (
        "test_result_depends_on_the_items_alone",
        reading(lambda blocks: [blocks[0], *blocks]),
    ),
    "a block instead of another": (
        "test_several_passes",
        reading(lambda blocks: [blocks[0]] * len(blocks)),
    ),
    "items in another order": (
        "test_blocks_of_several_axes_split_along_rows",
        reading(lambda blocks: [block[::-1] for block in blocks]),
    ),
    "one collection of two": (
        "test_aligned_collections_come_as_tuples",
        reading(lambda blocks: [block[0] for block in blocks]),
    ),
    "misalignment unnoticed": ("test_misaligned_collections_are_refused", swallowing_misalignment),
    "data in the pickle": ("test_pickle_carries_references_only", pickled_with_the_data),
    "data readable anywhere": (
        "test_iterating_in_another_process_is_refused",
        pickled_with_the_data,
    ),
    "a large pickle": ("test_pickle_grows_by_a_few_bytes_per_block", pickled_with_padding),
    "errors wrapped": (
        "test_error_of_a_task_arrives_as_it_was_raised",
        submitting(wrapping_errors),
    ),
    "tracebacks lost": (
        "test_error_of_a_task_arrives_as_it_was_raised",
        submitting(forgetting_traceback),
    ),
    "futures not resolved": (
        "test_futures_arrive_as_results",
        lambda patch: patch.setattr(
            local_executor, "call_with_results", lambda _, fn, args, kwargs: fn(*args, **kwargs)
        ),
    ),
    "partitions arrive tied": (
        "test_task_inside_a_task_is_the_plain_function",
        lambda patch: patch.setattr(local_executor, "at_location", lambda argument: argument),
    ),
    "movement counted for nothing": (
        "test_nothing_moves",
        lambda patch: patch.setattr(LocalBlocks, "moved", lambda self: Movement(fetched_blocks=1)),
    ),
    "never as one block": ("test_one_block_with_all_rows_in_order", never_as_one),
    "one block for all": (
        "test_one_block_with_all_rows_in_order",
        one_that_is_the_first_block,
    ),
    "one block, not a copy": (
        "test_concatenated_once_and_apart_from_the_blocks",
        one_that_is_the_first_block,
    ),
    "concatenated again in each pass": (
        "test_concatenated_once_and_apart_from_the_blocks",
        concatenate_every_time,
    ),
    "concatenated again for each request": ("test_requested_by_the_task", concatenate_every_time),
    "kept after the Split": ("test_released_with_the_split", one_for_all_splits),
    "results in another order": ("test_map_blocks", blocks_in_order_of_partitions),
    "a transfer on every pass": (
        "test_nothing_moves",
        lambda patch: patch.setattr(Subject, "moves_on_every_pass", True),
    ),
    "a counter that stands still": (
        "test_nothing_moves",
        lambda patch: patch.setattr(Subject, "control_works", False),
    ),
}


def arguments_of(check: Callable[..., Any], tmp_path: Any) -> dict[str, Any]:
    given = {"kind": ValueError, "other": (1, 2), "tmp_path": tmp_path}
    return {name: given[name] for name in inspect.signature(check).parameters}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str, monkeypatch: Patch, tmp_path: Any) -> None:
    name, put_in = FAULTS[fault]
    check = getattr(Subject(), name)
    arguments = arguments_of(check, tmp_path)
    check(**arguments)  # passes without the fault
    put_in(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):
        check(**arguments)


def test_hooks_must_be_filled_in() -> None:
    assert issubclass(BackendTests, abc.ABC)
    with pytest.raises(TypeError, match=r"distribute.*n_locations"):
        BackendTests()  # type: ignore[abstract]


def test_a_counter_needs_its_positive_control() -> None:
    class Uncontrolled(Subject):
        def move_something(self, collection: Any) -> None:
            BackendTests.move_something(self, collection)

    with pytest.raises(NotImplementedError, match="positive control"):
        Uncontrolled().test_nothing_moves()


IN_AN_ENGINE_WITH_THREADS = """
    import random
    import sys
    import threading

    from spliter.testing import BackendTests
    from spliter.testing._hooks import BackendHooks

    {first}
    sys.setswitchinterval(1e-5)

    def draw_for_ever():
        while True:
            random.random()

    for _ in range(4):
        threading.Thread(target=draw_for_ever, daemon=True).start()

    class TestLists(BackendTests):
        backend = "local"
        locations_are_elsewhere = False
        n_locations = 1

        def distribute(self, blocks, placement):
            return list(blocks)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("first", "passes"), [("", True), ("del BackendHooks.pytestmark", False)])
def test_an_engine_whose_threads_draw_random_numbers(
    first: str, passes: bool, tmp_path: Path
) -> None:
    module = tmp_path / "test_engine.py"
    module.write_text(dedent(IN_AN_ENGINE_WITH_THREADS.format(first=first)), encoding="utf-8")
    test = f"{module}::TestLists::test_result_depends_on_the_items_alone"
    done = run_command(
        [sys.executable, "-m", "pytest", "-W", "error", "-c", os.devnull, "--rootdir", ".", test],
        cwd=tmp_path,
    )
    assert ("1 passed" in done.stdout) is passes, done.stdout
    assert ("HypothesisDeprecationWarning" in done.stdout) is not passes
