"""Submit each call as one PyCOMPSs task, and return PyCOMPSs' own future.

COMPSs decides where a task runs. The task gets the blocks of its partition as a collection, and
COMPSs' default scheduler prefers the node with most of a task's input, which is where they are.
This is only a preference: :attr:`spliter.Split.moved` counts the blocks of tasks that ran
elsewhere. If the resources file gives each node a software of its own, the setting ``pins``
enforces it.
"""

from __future__ import annotations

import functools
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from spliter import InvalidArgumentError, Location, Partition
from spliter.backend import Executor, IntArray, ResultBlocks
from spliter_backends._shared.machine import available_memory
from spliter_backends._shared.process_blocks import at_location
from spliter_backends.compss import tasks
from spliter_backends.compss.api import CORE_ELEMENT_KEY, Future, compss_wait_on, runtime_is_up
from spliter_backends.compss.call_pickling import pickle_call
from spliter_backends.compss.collection import assemble_blocks
from spliter_backends.compss.future import CompssFuture
from spliter_backends.compss.outcome import TaskFailure, TaskResult, futures, hosts
from spliter_backends.compss.settings import settings
from spliter_backends.compss.source import BlockInputs
from spliter_backends.compss.worker import Call


class CompssExecutor(Executor):
    """Runs functions as PyCOMPSs tasks; there is one instance."""

    reports_passes = True

    def __init__(self) -> None:
        self._constraints: weakref.WeakKeyDictionary[Any, Mapping[str, Any]] = (
            weakref.WeakKeyDictionary()
        )

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many tasks each node runs at once: the setting, or the cores it reported.

        1 for a node without a report, and without a runtime.
        """
        if not runtime_is_up():
            return dict.fromkeys(locations, 1)
        units = settings().computing_units
        return {at: units or (hosts[at].cores if at in hosts else 1) for at in locations}

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
        constraints: Mapping[str, Any] | None = None,
    ) -> CompssFuture:
        """Start a PyCOMPSs task; without a runtime, it has run when this returns.

        Futures and partitions may be at any depth in the arguments. The task is pinned to the
        location if the setting ``pins`` has it. Constraints are by default those of the function.
        """
        named = dict(kwargs)
        if constraints is None:
            constraints = self._constraints_of(fn, named)
        future = self.start("call", fn, args, named, {**constraints, **self._pin(location)})
        assert isinstance(future, CompssFuture)
        future.location = location
        return future

    def submit_team(
        self, fn: Callable[..., Any], args: Sequence[Any], location: Location, threads: int
    ) -> CompssFuture:
        """Start a task that reserves one computing unit for each thread.

        Only if the setting says how many a node has: COMPSs never starts a task that needs more.
        """
        given = (functools.partial(int, threads), *args)
        units = {"computing_units": threads} if settings().computing_units else {}
        return self.submit(fn, given, {}, location, units)

    def start(
        self,
        base: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        constraints: Mapping[str, Any],
    ) -> Any:
        """Start one of the tasks that make a call: "call", "make" or "make_in_turn"."""
        tasks.delete_scheduled()
        key = uuid.uuid4().hex
        if not runtime_is_up():
            here = [_local_argument(argument) for argument in args]
            named = {name: _local_argument(argument) for name, argument in kwargs.items()}
            at_once = Call(_call_locally, (fn, here, named), {})
            return self._register(key, tasks.start(base, constraints, key, at_once))
        pickled = pickle_call(fn, args, kwargs, self._check_and_convert)
        if pickled.inputs:
            given = (key, pickled.content, pickled.inputs)
            return self._register(key, tasks.start(f"{base}_with", constraints, *given))
        return self._register(key, tasks.start(base, constraints, key, pickled.content))

    def _register(self, key: str, returned: Any) -> Any:
        """Register futures by key; without a runtime, convert return values to done futures."""
        if isinstance(returned, tuple | list):
            return [self._register(key, element) for element in returned]
        if isinstance(returned, TaskResult | TaskFailure):
            future = CompssFuture()
            future.key = key
            futures[key] = future
            function, arguments = returned.__reduce__()
            try:
                function(*arguments)  # the arrival settles the future
            except BaseException:
                if future.outcome is None:
                    raise
            return future
        if isinstance(returned, CompssFuture):
            returned.key = key
            futures[key] = returned
        return returned

    def _constraints_of(self, fn: Any, kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """Remove the constraints of ``@constraint`` above ``@task`` from the arguments.

        It adds them on the first call of the function only.
        """
        element = kwargs.pop(CORE_ELEMENT_KEY, None)
        if element is not None:
            self._constraints[fn] = dict(element.get_impl_constraints())
        try:
            return self._constraints.get(fn, {})
        except TypeError:  # a callable without weak references has no decorators
            return {}

    def _pin(self, location: Location | None) -> Mapping[str, Any]:
        software = settings().pins.get(location) if location is not None else None
        return {} if software is None else {"app_software": software}

    def _check_and_convert(
        self, partition: Partition, start: int
    ) -> tuple[BlockInputs, Sequence[Any]]:
        if not isinstance(partition.executor, CompssExecutor):
            raise InvalidArgumentError(
                "the partition belongs to another backend than the one the task is submitted to; "
                "pass a future of its result instead"
            )
        return partition.executor.inputs_of(partition, start)

    def inputs_of(self, partition: Partition, start: int) -> tuple[BlockInputs, Sequence[Any]]:
        """Return the inputs of a task on a partition, and which are which (for the backend)."""
        source: Any = partition.source
        found: tuple[BlockInputs, Sequence[Any]]
        found = source.task_inputs(partition, start, self._pin(partition.location))
        return found

    def readable_partition(self, partition: Partition) -> Partition:
        """Return an iterable partition for a task that runs in this process (for the backend)."""
        found: Partition = at_location(partition)
        return found

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures, of SplIter or of the program's own tasks, and return their results."""
        return [
            future.result() if isinstance(future, CompssFuture) else compss_wait_on(future)
            for future in futures
        ]

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the memory last reported by a task of each node; None for nodes without report."""
        if not runtime_is_up():
            return dict.fromkeys(locations, available_memory())
        return {at: hosts[at].free if at in hosts else None for at in locations}

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
        """Return the blocks as PyCOMPSs futures, separated by one task per partition."""
        return assemble_blocks(results, made)


def _local_argument(argument: Any) -> Any:
    if isinstance(argument, Partition) and isinstance(argument.executor, CompssExecutor):
        return argument.executor.readable_partition(argument)
    return argument


def _call_locally(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make a call in this process, with futures replaced by their results."""
    return fn(
        *[_with_results(each) for each in args],
        **{name: _with_results(value) for name, value in kwargs.items()},
    )


def _with_results(value: Any) -> Any:
    if isinstance(value, CompssFuture):
        return value.result()
    if type(value) in {list, tuple}:
        return type(value)(map(_with_results, value))
    if type(value) is dict:
        return {key: _with_results(element) for key, element in value.items()}
    return value


EXECUTOR = CompssExecutor()
"""The only instance: an application has one runtime."""


def executor_of_future(future: Any) -> CompssExecutor | None:
    """Return the executor for a PyCOMPSs future; ``None`` for anything else."""
    return EXECUTOR if isinstance(future, Future) else None
