"""COMPSs engine of the comparisons."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

import spliter
from spliter import Location
from spliter_backends.compss import CompssCollection, make_blocks
from spliter_backends.compss.api import (
    compss_barrier,
    compss_delete_object,
    compss_get_number_of_resources,
    runtime_is_up,
)
from spliter_backends.compss.blocks import known_metadata
from spliter_backends.compss.executor import EXECUTOR
from spliter_backends.compss.outcome import host_name
from spliter_backends.compss.settings import configure
from spliter_backends.compss.tasks import count_started
from spliter_experiments.compare.data.sources import Rows, row_starts
from spliter_experiments.compare.engines.compss_calls import (
    NO_NUMBER,
    call_on_block,
    call_on_blocks,
    call_on_list,
    name_of,
    results_of,
)
from spliter_experiments.compare.engines.compss_launch import (
    START_SECONDS,
    STARTING,
    Progress,
    launched_progress,
    launched_resources,
    units_in,
)
from spliter_experiments.compare.engines.engine import (
    WAIT_SECONDS,
    ClusterChoice,
    LocatedEngine,
    Pairing,
    Placement,
    check_versions,
    chunks_of,
    read_errors_named,
)
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading


@dataclass(frozen=True)
class NodeReport:
    """Node, host and SplIter version of a task."""

    node: str
    host: str
    version: str


def tell() -> NodeReport:
    """Return the node, host and version of this process; runs in a task."""
    return NodeReport(host_name(), socket.gethostname(), spliter.__version__)


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[tuple[Mapping[Location, int], bool]]:
    """Find the nodes of this application and their tasks at once; whether all are this host."""
    if not runtime_is_up():
        raise ClusterError(
            "this is not the main program of a COMPSs application: use the spliter command, which "
            "starts one, or runcompss"
        )
    file = choice.address or launched_resources()
    listed = {} if file is None else units_in(Path(file))
    sizes = set(listed.values())
    before = configure()
    configure(computing_units=sizes.pop() if len(sizes) == 1 else before.computing_units)
    try:
        told = _ask_all(len(listed))
        check_versions("compss", {one.node: one.version for one in told.values()})
        names = [Location(name) for name in sorted(told)]
        here = {one.host for one in told.values()} == {socket.gethostname()}
        yield EXECUTOR.capacities(names), here
    finally:
        configure(computing_units=before.computing_units)


def _ask_all(listed: int) -> dict[str, NodeReport]:
    count = listed or max(int(compss_get_number_of_resources()), 1)
    told: dict[str, NodeReport] = {}
    deadline = time.monotonic() + START_SECONDS
    while len(told) < count:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{len(told)} of {count} COMPSs nodes have run a task within {START_SECONDS} s "
                f"({', '.join(sorted(told)) or 'none'}); see the logs of COMPSs"
            )
        asked = make_blocks(tell, [()] * count, nodes="in turn")
        told |= {one.node: one for one in asked.gather()}
    return told


@dataclass(frozen=True)
class CompssIdle:
    """The state without running tasks."""

    progress: Progress

    def wait(self) -> None:
        """Wait for all tasks; COMPSs frees deleted data when the next task starts."""
        compss_barrier()
        self.progress.tell(WAIT_SECONDS, "a way")


@dataclass
class TaskMeter:
    """Counts the tasks that this program has started.

    Bytes are unknown: COMPSs does not report its transfers.
    """

    own: int = 0

    def reading(self) -> Reading:
        return Reading(self.own + count_started(), None)


@dataclass(frozen=True)
class CompssTasks(LocatedEngine):
    """Base of engines whose tasks are those of a COMPSs application.

    `progress` reports to the process that launched the application.
    """

    progress: Progress
    counter: TaskMeter = field(default_factory=TaskMeter)

    def arguments_of(self, collection: Any) -> Sequence[Any]:
        return list(collection)

    def call_blocks(
        self,
        blocks: Any,
        kernel: Callable[..., Any],
        aligned: Any = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Any]:
        return results_of(self._start(blocks, kernel, aligned, starts, shared), shared)

    def call_pairs(
        self, blocks: Any, others: Any, pairing: Pairing, starts: Sequence[int], **shared: Any
    ) -> list[Any]:
        unshared: dict[str, Any] = {}
        made = self._start(blocks, pairing.make, None, starts, unshared)
        ask, merge = name_of(pairing.ask), name_of(pairing.merge)
        merged = []
        for other in self.arguments_of(others):
            found = [call_on_blocks(ask, one, other, NO_NUMBER, shared) for one in made]
            merged.append(call_on_list(merge, found, shared))
            self.counter.own += len(found) + 1
            compss_delete_object(*found)  # as soon as they are merged
        try:
            return results_of(merged, shared)
        finally:
            compss_delete_object(*made, unshared)

    def _start(
        self,
        blocks: Any,
        kernel: Callable[..., Any],
        aligned: Any,
        starts: Sequence[int] | None,
        shared: dict[str, Any],
    ) -> list[Any]:
        given = self.arguments_of(blocks)
        self.progress.tell(WAIT_SECONDS, f"{len(given)} tasks")
        name, numbers = name_of(kernel), starts or [NO_NUMBER] * len(given)
        self.counter.own += len(given)
        if aligned is None:
            return [
                call_on_block(name, block, number, shared)
                for block, number in zip(given, numbers, strict=True)
            ]
        return [
            call_on_blocks(name, block, other, number, shared)
            for block, other, number in zip(given, self.arguments_of(aligned), numbers, strict=True)
        ]

    def idle_state(self, collections: Sequence[Any] = ()) -> CompssIdle:
        """Return the state without tasks; COMPSs does not move blocks by itself."""
        return CompssIdle(self.progress)

    def meter(self) -> AbstractContextManager[TaskMeter]:
        return nullcontext(self.counter)


@dataclass(frozen=True)
class CompssEngine(CompssTasks):
    """Nodes of a COMPSs application; implements :class:`.engine.Engine`."""

    @contextmanager
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> Iterator[CompssCollection]:
        self.progress.tell(WAIT_SECONDS, f"loading {len(row_chunks)} blocks")
        starts = row_starts(row_chunks)
        calls = [
            (source, start, start + rows) for start, rows in zip(starts, row_chunks, strict=True)
        ]
        nodes: Literal["in turn"] | None = None if placement is Placement.COMPSS else "in turn"
        blocks = make_blocks(read_rows, calls, chunks=chunks_of(row_chunks, like), nodes=nodes)
        with read_errors_named(source):
            for block in blocks:
                known_metadata(block)
        try:
            yield blocks
        finally:
            for block in blocks:
                compss_delete_object(block)


def read_rows(source: Rows, start: int, stop: int) -> Any:
    """Return the rows of one block; runs at a node."""
    return source.read(start, stop)


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[CompssEngine]:
    progress = launched_progress()
    progress.tell(START_SECONDS, STARTING)
    with connected(choice) as (capacities, on_this_machine):
        progress.tell(WAIT_SECONDS, "loading the first blocks")
        yield CompssEngine(capacities, on_this_machine, progress)
