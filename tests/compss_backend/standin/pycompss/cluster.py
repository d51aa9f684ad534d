"""The stand-in's cluster: processes as nodes, futures, and a scheduler that follows the data.

Not part of PyCOMPSs. As there, objects are tracked by identity until they are waited for or
deleted; every object reaches a task as a pickle of its own; a task runs where most of its input
is, unless a constraint says otherwise; a task that raises ends in an error for whoever waits.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import queue
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

from pycompss.api.parameter import direction_of
from pycompss.runtime.management.classes import Future
from pycompss.util.context import CONTEXT
from pycompss.util.exceptions import SerializerException

WAIT: Final = 60.0
"""Seconds after which a task that has not ended is an error."""

SIMPLE: Final = (bool, int, float, str, bytes, type(None))


@dataclass(eq=False)
class Datum:
    """One version of an object: its pickle, once made, and the nodes that have it."""

    pickled: bytes | None = None
    holders: set[str] = field(default_factory=set)
    error: str | None = None
    made: threading.Event = field(default_factory=threading.Event)
    wanted_by: list[Job] = field(default_factory=list)


@dataclass(eq=False)
class Job:
    """A task that was submitted."""

    module: str
    name: str
    arguments: dict[str, Any]
    """By name; data stand for objects, lists of them for collections."""
    returns: list[Datum]
    updates: list[tuple[str, Any]]
    """Parameters that the task changes, with the data (or lists of data) they become."""
    several: bool
    constraints: Mapping[str, Any]
    in_turn: bool
    """Whether it goes to the next node, as ``is_distributed`` says."""
    missing: set[int] = field(default_factory=set)


def data_in(value: Any) -> Iterator[Datum]:
    """Yield the data in a structure of lists."""
    if isinstance(value, Datum):
        yield value
    elif isinstance(value, list):
        for element in value:
            yield from data_in(element)


def replaced(value: Any, function: Callable[[Datum], Any]) -> Any:
    """Return the structure with something else in the place of each datum."""
    if isinstance(value, Datum):
        return function(value)
    return [replaced(element, function) for element in value] if isinstance(value, list) else value


class Cluster:
    """Nodes that run tasks; a context manager during which the stand-in is in master mode.

    Parameters
    ----------
    nodes : mapping of str to str
        Name of each node, and the name of the software that it alone has.
    """

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self.nodes = dict(nodes)
        self.transfers = 0
        """Objects that one node has received from another."""
        self.submitted: list[str] = []
        """Names of the tasks, in the order they were submitted."""
        self.ran: list[tuple[str, str, Mapping[str, Any]]] = []
        """Name, node and constraints of tasks, in the order they were placed."""
        self._tracked: dict[int, tuple[Any, Datum]] = {}
        self._lock = threading.RLock()
        self._queues: dict[str, queue.Queue[Job | None]] = {}
        self._threads: list[threading.Thread] = []
        self._turn = 0
        self._turns: Counter[str] = Counter()
        self._under_way: set[Job] = set()

    def __enter__(self) -> Cluster:
        """Start the nodes."""
        global RUNNING  # noqa: PLW0603 -- an application has one runtime
        context = multiprocessing.get_context("spawn")
        for name in self.nodes:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, name), daemon=True)
            process.start()
            theirs.close()
            self._queues[name] = queue.Queue()
            thread = threading.Thread(target=self._feed, args=(name, ours, process), daemon=True)
            thread.start()
            self._threads.append(thread)
        CONTEXT.where = "MASTER"
        RUNNING = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the nodes."""
        global RUNNING  # noqa: PLW0603 -- an application has one runtime
        RUNNING = None
        CONTEXT.where = "OUT_OF_SCOPE"
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._threads:
            thread.join(WAIT)

    def submit(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        directions: Mapping[str, Any],
        returns: Any,
        constraints: Mapping[str, Any],
        in_turn: bool = False,
    ) -> Any:
        """Start a task; return its future, or a list of futures."""
        with self._lock:
            given: dict[str, Any] = {}
            updates: list[tuple[str, Any]] = []
            for name, value in arguments.items():
                direction, depth = direction_of(directions.get(name, "IN"))
                given[name] = self._given(value, direction, depth)
                if "OUT" in direction or direction == "COMMUTATIVE":
                    updates.append((name, self._new_version(value, depth)))
            futures, made = self._futures(returns)
            several = isinstance(futures, list)
            name = function.__name__
            job = Job(
                function.__module__, name, given, made, updates, several, dict(constraints), in_turn
            )
            self.submitted.append(job.name)
            self._under_way.add(job)
            for datum in data_in(list(given.values())):
                if not datum.made.is_set():
                    job.missing.add(id(datum))
                    datum.wanted_by.append(job)
            if not job.missing:
                self._place(job)
        return futures

    def _given(self, value: Any, direction: str, depth: int) -> Any:
        if depth and isinstance(value, list | tuple):
            return [self._given(element, direction, depth - 1) for element in value]
        if direction.endswith("OUT") and "IN" not in direction:
            return None
        known = self._tracked.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, SIMPLE) and not isinstance(value, bytes):
            return value
        try:
            datum = Datum(pickle.dumps(value, protocol=5))
        except Exception as error:
            raise SerializerException(f"cannot serialize {value!r}") from error
        datum.made.set()
        if not direction.endswith("DELETE"):
            self._tracked[id(value)] = (value, datum)
        return datum

    def _new_version(self, value: Any, depth: int) -> Any:
        if depth and isinstance(value, list | tuple):
            return [self._new_version(element, depth - 1) for element in value]
        datum = Datum()
        self._tracked[id(value)] = (value, datum)
        return datum

    def _futures(self, returns: Any) -> tuple[Any, list[Datum]]:
        if not returns:
            return None, []
        several = isinstance(returns, list | tuple) or (isinstance(returns, int) and returns > 1)
        kinds = returns if isinstance(returns, list | tuple) else [returns]
        if isinstance(returns, int):
            kinds = [object] * returns
        futures = []
        for kind in kinds:
            own = isinstance(kind, type) and kind not in (object, int, float, bool, str, list, dict)
            try:
                futures.append(kind() if own else Future())
            except TypeError:
                futures.append(Future())
        made = [Datum() for _ in futures]
        for future, datum in zip(futures, made, strict=True):
            self._tracked[id(future)] = (future, datum)
        return (futures if several else futures[0]), made

    def _place(self, job: Job) -> None:
        """Choose the node with most of the input; nobody's input goes to the nodes in turn."""
        software = job.constraints.get("app_software")
        names = [name for name, has in self.nodes.items() if software in (None, has)]
        if not names:
            self._finish(job, None, f"no node has the software {software!r}")
            return
        if job.in_turn:
            chosen = names[self._turns[job.name] % len(names)]
            self._turns[job.name] += 1
            self._given_to(chosen, job)
            return
        held = dict.fromkeys(names, 0)
        for datum in data_in(list(job.arguments.values())):
            for name in datum.holders & held.keys():
                held[name] += len(datum.pickled or b"")
        best = max(held.values())
        candidates = [name for name in names if held[name] == best]
        if not best:
            self._turn += 1
        chosen = candidates[self._turn % len(candidates) if not best else 0]
        self._given_to(chosen, job)

    def _given_to(self, chosen: str, job: Job) -> None:
        self.ran.append((job.name, chosen, job.constraints))
        self._queues[chosen].put(job)

    def _feed(self, name: str, pipe: Connection, process: Any) -> None:
        """Give one node its tasks, one at a time."""
        while (job := self._queues[name].get()) is not None:
            with self._lock:
                errors = [d.error for d in data_in(list(job.arguments.values())) if d.error]
                sent = replaced(list(job.arguments.values()), lambda d: self._sent(d, name))
            if errors:
                self._finish(job, None, errors[0])
                continue
            names = [update for update, _ in job.updates]
            try:
                pipe.send(
                    (
                        job.module,
                        job.name,
                        list(job.arguments),
                        sent,
                        names,
                        len(job.returns),
                        job.several,
                    )
                )
                results, error = pipe.recv() if pipe.poll(WAIT) else (None, "no answer")
            except (OSError, EOFError) as lost:
                results, error = None, f"the node is gone: {lost!r}"
            self._finish(job, name, error, results)
        pipe.close()
        process.join(WAIT)

    def _sent(self, datum: Datum, node: str) -> Pickled | None:
        if datum.holders and node not in datum.holders:
            self.transfers += 1
        datum.holders.add(node)
        return None if datum.pickled is None else Pickled(datum.pickled)

    def _finish(
        self, job: Job, node: str | None, error: str | None, results: list[bytes] | None = None
    ) -> None:
        with self._lock:
            made = [*job.returns, *(d for _, update in job.updates for d in data_in(update))]
            for number, datum in enumerate(made):
                datum.error = error
                datum.pickled = results[number] if results and not error else None
                datum.holders = {node} if node and not error else set()
                datum.made.set()
            self._under_way.discard(job)
            for datum in made:
                for waiting in datum.wanted_by:
                    waiting.missing.discard(id(datum))
                    if not waiting.missing:
                        self._place(waiting)
                datum.wanted_by.clear()

    def wait_on(self, value: Any, mode: str) -> Any:
        """Wait for an object; a list or dict of them element by element."""
        known = self._tracked.get(id(value))
        if known is None:
            if isinstance(value, list):
                return [self.wait_on(element, mode) for element in value]
            if isinstance(value, dict):
                return {key: self.wait_on(element, mode) for key, element in value.items()}
            return value
        datum = known[1]
        if not datum.made.wait(WAIT):
            raise TimeoutError(f"a task has not ended within {WAIT:g} s")
        if datum.error:
            raise RuntimeError(f"a task has failed:\n{datum.error}")
        try:
            found = pickle.loads(datum.pickled or b"")
        except Exception as error:
            raise SerializerException("Cannot deserialize object") from error
        if mode != "r":
            self._tracked.pop(id(value), None)
        return found

    def delete(self, value: Any) -> None:
        """Stop tracking an object."""
        self._tracked.pop(id(value), None)

    def holders(self, value: Any) -> set[str]:
        """Return the nodes that have an object."""
        return set(self._tracked[id(value)][1].holders)

    def tracked(self) -> int:
        """Return how many objects are tracked."""
        return len(self._tracked)

    def submitted_count(self, name: str) -> int:
        """Return how many tasks of a name, constrained or not, have been submitted."""
        return sum(submitted.partition("_constrained_")[0] == name for submitted in self.submitted)

    def barrier(self) -> None:
        """Wait for all tasks."""
        for job in list(self._under_way):
            for datum in job.returns:
                datum.made.wait(WAIT)


RUNNING: Cluster | None = None
"""The cluster that the program runs on, if it does."""


@dataclass(frozen=True)
class Pickled:
    """An object on its way to a node."""

    content: bytes


def revealed(value: Any) -> Any:
    """Unpickle what a task is given."""
    if isinstance(value, Pickled):
        return pickle.loads(value.content)
    return [revealed(element) for element in value] if isinstance(value, list) else value


def flat(value: Any, like: Any) -> Iterator[Any]:
    """Yield what a changed parameter holds now."""
    if isinstance(like, list):
        for element, shape in zip(value, like, strict=True):
            yield from flat(element, shape)
    else:
        yield value


def serve(pipe: Connection, name: str) -> None:
    """Be a node: run tasks until the pipe is closed."""
    CONTEXT.where = "WORKER"
    os.environ.update(COMPSS_NUM_NODES="1", COMPSS_NUM_THREADS="1")
    while True:
        try:
            module, function, names, sent, updates, returned, several = pipe.recv()
        except (EOFError, OSError):
            return
        os.environ["COMPSS_HOSTNAMES"] = name
        try:
            given = dict(zip(names, map(revealed, sent), strict=True))
            call = getattr(importlib.import_module(module), function)
            result = call(**given, compss_key="key")
            results = list(result) if several else [result] * returned
            for update in updates:
                results += flat(given[update], sent[names.index(update)])
            pipe.send(([pickle.dumps(value, protocol=5) for value in results], None))
        except BaseException:  # noqa: BLE001 -- whatever it is, the master hears of it
            pipe.send((None, traceback.format_exc()))
