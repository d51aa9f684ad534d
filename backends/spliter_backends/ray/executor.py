"""Submit tasks to Ray with affinity to the node of their partition.

Futures are Ray references (``RayFuture``). Ray sends each task by itself, in about 0.1 ms; it has
no batch submission.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from ray import ObjectRef

from spliter import BlockLostError, Location, Partition, SplIterError
from spliter.backend import Executor, IntArray, ResultBlocks
from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends.ray.blocks import ClientSource, ExpectedReport, RayBlocks, affinity
from spliter_backends.ray.cluster import SHUT_DOWN, check_known, may_wait, usable_nodes
from spliter_backends.ray.collection import RayArray
from spliter_backends.ray.future import RayFuture, wait_for_results
from spliter_backends.ray.source import remote_source
from spliter_backends.ray.worker import RUN, SEPARATE, Placeholder


@dataclass
class _PackedArguments:
    """Objects to send separately from a task's arguments."""

    location: Location | None
    references: list[ObjectRef] = field(default_factory=list)
    """References that Ray resolves before the task starts."""
    sources: list[ClientSource] = field(default_factory=list)
    """Sources of the partitions, in order."""

    def argument(self, value: Any, executor: RayExecutor) -> Any:
        """Return an argument as it is sent."""
        if isinstance(value, Partition) and value.executor is not None:
            executor.check_own(value.executor)
            return self._partition(value)
        if isinstance(value, ObjectRef):  # as for any remote function of Ray
            return self._placeholder(value)
        return self._replace_futures(value)

    def _replace_futures(self, value: Any) -> Any:
        """Replace futures in lists, tuples and dictionaries; leave other references unchanged.

        As with any remote function, a nested list of references is forwarded without fetching
        the objects.
        """
        if isinstance(value, RayFuture):
            return self._placeholder(value)
        if type(value) in (list, tuple):
            return type(value)(map(self._replace_futures, value))
        if type(value) is dict:
            return {key: self._replace_futures(item) for key, item in value.items()}
        return value

    def _placeholder(self, reference: ObjectRef) -> Placeholder:
        self.references.append(reference)
        return Placeholder(len(self.references) - 1)

    def _partition(self, partition: Partition) -> Partition:
        if partition.location != self.location:
            # A reference that cannot be iterated at this location.
            return partition.at_location(remote_source(partition.location))
        source = partition.source
        assert isinstance(source, ClientSource)
        to_send, one = source.to_send(partition)
        if one is not None:
            self.references.append(one)
        self.sources.append(source)
        return to_send


class RayExecutor(Executor):
    """Runs functions on the nodes of the connected cluster."""

    reports_passes = True

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of CPUs of each node."""
        nodes = usable_nodes()
        # A lost node still needs an entry; its tasks run elsewhere.
        return {location: nodes.get(location, 1) for location in locations}

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the free bytes in the object store of each node."""
        free = ray._private.state.available_resources_per_node()
        return {location: _store_of(free.get(location, {})) for location in locations}

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures and return their results, fetched in one call."""
        return wait_for_results(futures)

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread is not the event loop of an asynchronous actor."""
        return may_wait()

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> RayArray:
        """Return the blocks made by tasks as a collection; they stay where they were made."""
        blocks: list[Any] = [None] * made.grid.nblocks
        for positions, future in results:
            location = self.location_of(future)
            cut = SEPARATE.options(
                name="spliter.separate_blocks",
                num_returns=len(positions),
                scheduling_strategy="DEFAULT" if location is None else affinity(location),
            ).remote(future, made.output)
            own = [cut] if len(positions) == 1 else cut
            for position, block in zip(positions.tolist(), own, strict=True):
                blocks[position] = block
        return RayArray(tuple(blocks), made.grid.chunks, made.dtype)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
        **resources: int,
    ) -> RayFuture:
        """Submit a task, which reserves resources of Ray; see :class:`spliter.backend.Executor`."""
        packed = _PackedArguments(location)
        sent_args = tuple(packed.argument(value, self) for value in args)
        sent_kwargs = {name: packed.argument(value, self) for name, value in kwargs.items()}
        check_known(packed.references)
        count = len(packed.sources)
        remote = RUN.options(
            name=getattr(fn, "__name__", "task"),
            num_returns=count + 2 if count else 1,
            scheduling_strategy="DEFAULT" if location is None else affinity(location),
            **resources,
        )
        try:
            made = remote.remote(fn, sent_args, sent_kwargs, count, *packed.references)
        except SplIterError:
            raise
        except Exception as error:
            if "owner is unknown" in str(error):  # of a reference inside an argument
                raise BlockLostError(SHUT_DOWN) from error
            raise not_serializable(
                fn, args, kwargs, error, ray.cloudpickle.dumps, "a node of Ray's"
            ) from error
        if not count:
            return RayFuture(made, location)
        report, *ones, result = made
        expected: dict[RayBlocks, list[ExpectedReport]] = {}
        for number, (source, one) in enumerate(zip(packed.sources, ones, strict=True)):
            expected.setdefault(source.blocks, []).append(ExpectedReport(number, source, one))
        for blocks, its_own in expected.items():
            blocks.expect_report(report, its_own)
        return RayFuture(result, location)

    def submit_team(
        self, fn: Callable[..., Any], args: Sequence[Any], location: Location, threads: int
    ) -> RayFuture:
        """Submit a task that reserves one CPU for each thread.

        Not more than every node has: if this one is lost, another one must be able to run it.
        """
        given = (functools.partial(int, threads), *args)
        cpus = min([threads, *usable_nodes().values()])
        return self.submit(fn, given, {}, location, num_cpus=cpus)


def _store_of(resources: Mapping[str, float]) -> int | None:
    free = resources.get("object_store_memory")
    return None if free is None else int(free)


EXECUTOR: Final = RayExecutor()
"""The only instance: a process is connected to one cluster at a time."""


def executor_of_future(future: Any) -> RayExecutor | None:
    """Return the executor for a Ray reference; ``None`` for anything else."""
    return EXECUTOR if isinstance(future, ObjectRef) else None
