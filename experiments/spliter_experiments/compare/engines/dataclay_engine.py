"""dataClay engine of the comparisons."""

from __future__ import annotations

import asyncio
import itertools
import pydoc
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spliter import BackendNotUsableError, Location
from spliter_backends.dataclay import DataClayArray
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import DataClayExecutor, current_executor
from spliter_backends.dataclay.output import suppress_output
from spliter_experiments.compare.data.sources import Rows, row_starts
from spliter_experiments.compare.engines.dataclay_meter import CallMeter, kept_at
from spliter_experiments.compare.engines.dataclay_objects import ArrayBlock
from spliter_experiments.compare.engines.engine import (
    ClusterChoice,
    EngineKind,
    KeptResults,
    LocatedEngine,
    Pairing,
    Placement,
    check_versions,
    chunks_of,
    read_errors_named,
    result_of,
    seats,
)
from spliter_experiments.harness.errors import ClusterError, OptionError

with suppress_output():
    from dataclay import Client

CONNECT_SECONDS = 10

HEALTH_SERVICE = "dataclay.proto.metadata.MetadataService"


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[DataClayExecutor]:
    """Connect to a dataClay with at least one backend, started and stopped here if embedded."""
    try:
        if choice.address is None:
            with EmbeddedDataClay(choice.workers, threads=choice.threads) as cluster:
                cluster.client()
                yield current_executor()
            return
        host, port = parse_address(choice.address)
        knock(host, port)
        with suppress_output(), Client(host=host, port=port):
            yield current_executor()
    except BackendNotUsableError as error:
        raise ClusterError(str(error)) from error


def parse_address(address: str) -> tuple[str, int]:
    """Split the address of a metadata service into host and port.

    >>> parse_address("127.0.0.1:16587")
    ('127.0.0.1', 16587)
    """
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise OptionError(f"--address takes HOST:PORT of a metadata service, got {address!r}")
    return host, int(port)


def knock(host: str, port: int) -> None:
    """Check that a metadata service answers; dataClay itself would retry forever."""
    question = health_pb2.HealthCheckRequest(service=HEALTH_SERVICE)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            health_pb2_grpc.HealthStub(channel).Check(question, timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            raise ClusterError(
                f"no metadata service of dataClay answers at {host}:{port}: {error.details()}"
            ) from error


def backends_of(executor: DataClayExecutor) -> list[Location]:
    session = executor.session
    found = [Location(str(backend)) for backend in session.wait(session.backend_ids())]
    if not found:
        raise ClusterError("this dataClay has no backends; start some")
    return found


def hosts_of(executor: DataClayExecutor, backends: list[Location]) -> set[str]:
    return set(_ask_all(executor, backends, socket.gethostname))


def check_backends(executor: DataClayExecutor, backends: list[Location]) -> None:
    found = _ask_all(executor, backends, pydoc.locate, "spliter.__version__")
    check_versions("dataclay", dict(zip(backends, found, strict=True)))


def _ask_all(
    executor: DataClayExecutor, backends: list[Location], function: Callable[..., Any], *args: Any
) -> list[Any]:
    """Run a function of the standard library, which any backend can import, at each backend."""
    asked = [executor.submit(function, args, {}, backend) for backend in backends]
    return [result_of(future) for future in asked]


with suppress_output():
    from dataclay.event_loop import get_dc_event_loop


@dataclass(frozen=True, eq=False)
class LoadedArray(DataClayArray):
    """A collection of :class:`ArrayBlock` objects, with references to them.

    Looking one up by its id would take a remote call.
    """

    objects: tuple[ArrayBlock, ...]


@dataclass(frozen=True)
class DataClayEngine(LocatedEngine):
    """A connected dataClay; implements :class:`.engine.Engine`."""

    executor: DataClayExecutor

    @contextmanager
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> Iterator[LoadedArray]:
        backends = seats(len(row_chunks), self.capacities, placement)
        loading = [
            self.executor.submit(make_block, (source, start, start + rows), {}, backend)
            for backend, start, rows in zip(
                backends, row_starts(row_chunks), row_chunks, strict=True
            )
        ]
        with read_errors_named(source):
            objects = tuple(result_of(future) for future in loading)
        row_nbytes = like.itemsize * int(np.prod(like.shape[1:]))
        nbytes = np.asarray(row_chunks, dtype=np.int64) * row_nbytes
        array = LoadedArray(_ids(objects), chunks_of(row_chunks, like), like.dtype, nbytes, objects)
        try:
            yield array
        finally:
            array.delete()

    def call_blocks(
        self,
        blocks: LoadedArray,
        kernel: Callable[..., Any],
        aligned: LoadedArray | None = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Any]:
        """Call an active method on all blocks in parallel.

        Calls are made from dataClay's own event loop, which is somewhat faster than a thread per
        call.
        """
        none: list[tuple[Any, ...]] = [()] * blocks.nblocks
        numbers = none if starts is None else [(start,) for start in starts]
        others = none if aligned is None else [(it,) for it in aligned.objects]
        return self._call_all(
            [
                (block, "apply", kernel, other, number, shared)
                for block, other, number in zip(blocks.objects, others, numbers, strict=True)
            ]
        )

    def _call_all(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Make calls ``(object, method, *arguments)`` in parallel."""
        runtime = self.executor.session.runtime

        async def call_all() -> list[Any]:
            pending = [
                runtime.call_remote_method(block, method, arguments, {})
                for block, method, *arguments in calls
            ]
            return list(await asyncio.gather(*pending))

        calling = asyncio.run_coroutine_threadsafe(call_all(), get_dc_event_loop())
        found: list[Any] = result_of(calling)
        return found

    def call_pairs(
        self,
        blocks: LoadedArray,
        others: LoadedArray,
        pairing: Pairing,
        starts: Sequence[int],
        **shared: Any,
    ) -> list[Any]:
        """Keep what is made of a block in an object at its backend, and call it with each other.

        Each of the other blocks passes through this process: objects that call other backends may
        deadlock. There are copies of as many at a time as tasks can run.
        """
        made = self._call_all(
            [
                (block, "derive", pairing.make, start)
                for block, start in zip(blocks.objects, starts, strict=True)
            ]
        )
        try:
            merged = []
            for at in range(0, others.nblocks, self.cores):
                some = others.objects[at : at + self.cores]
                copies = self._call_all([(it, "apply", np.asarray, (), (), {}) for it in some])
                pairs = itertools.product(copies, made)
                found = self._call_all(
                    [(one, "apply", pairing.ask, (), (copy,), shared) for copy, one in pairs]
                )
                merged += [
                    pairing.merge(found[first : first + len(made)], **shared)
                    for first in range(0, len(found), len(made))
                ]
            return merged
        finally:
            unknown = np.zeros(len(made), dtype=np.int64)
            DataClayArray(_ids(made), ((-1,) * len(made),), None, unknown).delete()

    def idle_state(self, collections: Sequence[LoadedArray] = ()) -> KeptResults:
        return KeptResults.now(lambda: kept_at(self.executor, self.capacities))

    def meter(self) -> CallMeter:
        return CallMeter(self.executor)


def _ids(objects: Sequence[ArrayBlock]) -> tuple[uuid.UUID, ...]:
    return tuple(block._dc_meta.id for block in objects)


def make_block(source: Rows, start: int, stop: int) -> ArrayBlock:
    block = ArrayBlock(source.read(start, stop))
    block.make_persistent()
    return block


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[DataClayEngine]:
    with connected(choice) as executor:
        backends = backends_of(executor)
        check_backends(executor, backends)
        here = hosts_of(executor, backends) == {socket.gethostname()}
        yield DataClayEngine(executor.capacities(backends), here, executor)


ENGINE = EngineKind(
    name="dataclay", placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}), connect=connect
)
