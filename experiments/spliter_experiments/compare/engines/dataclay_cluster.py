"""Connect to a dataClay while a command runs: an embedded one, or the user's own."""

from __future__ import annotations

import pydoc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spliter import BackendNotUsableError, Location
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import DataClayExecutor, current_executor
from spliter_backends.dataclay.output import suppress_output
from spliter_experiments.compare.engines.engine import ClusterChoice, check_versions, result_of
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

    Examples
    --------
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
