"""Start dataClay's services and Ray's nodes in a job step, and wait until clusters are ready.

Batch scripts call ``python -m spliter_slurm.services COMMAND``. Each service command
takes a free port, writes its address to a file on the shared file system, and executes the service.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from spliter_experiments.harness.errors import ExperimentError, ServiceError
from spliter_experiments.harness.files import write_whole

LOOK_SECONDS = 0.2
ANSWER_SECONDS = 5.0

app = typer.Typer(no_args_is_help=True, add_completion=False)

Interface = Annotated[str | None, typer.Option(help="Network interface to listen on.")]
Address = Annotated[str, typer.Option(help="HOST:PORT.")]
Count = Annotated[int, typer.Option(min=1, help="How many.")]
OutputFile = Annotated[Path, typer.Option(help="Where to write HOST:PORT.")]
Seconds = Annotated[float, typer.Option(help="Bound of the wait.")]


def address_of(interface: str | None) -> str:
    """Return the IPv4 address of a network interface, such as ``ib0``, or of this host's name.

    Examples
    --------
    >>> address_of("lo")
    '127.0.0.1'
    """
    if interface is None:
        return socket.gethostbyname(socket.gethostname())
    import psutil

    found = psutil.net_if_addrs()
    for entry in found.get(interface, ()):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise ServiceError(
        f"{socket.gethostname()} has no interface {interface!r} with an IPv4 address; it has "
        f"{', '.join(sorted(found))}. --network chooses another"
    )


def keep_port(address: str) -> int:
    """Reserve a free port until this process, or the program it executes, has ended.

    A bound socket that does not listen keeps other processes from getting the port by chance, but
    lets programs listen that share addresses, as Redis and gRPC do.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind((address, 0))
    port: int = keeper.getsockname()[1]
    os.set_inheritable(keeper.detach(), True)
    return port


def _become(command: Sequence[str], settings: Mapping[str, str]) -> None:
    from spliter_backends.dataclay.cluster.services import environment

    everywhere = {"DATACLAY_LOGLEVEL": "WARNING", "DATACLAY_EPHEMERAL": "true"}
    os.execvpe(command[0], list(command), environment((), {**everywhere, **settings}))


@app.command()
def store(file: OutputFile, interface: Interface = None) -> None:
    """Become dataClay's key-value store."""
    from spliter_backends._shared.redis_store import STORE_HINT, find_store

    found = find_store()
    if found is None or not found.is_redis:
        raise ServiceError(f"there is no key-value store for dataClay; {STORE_HINT}")
    address = address_of(interface)
    port = keep_port(address)
    write_whole(file, f"{address}:{port}")
    options = {"--port": str(port), "--bind": address, "--protected-mode": "no", "--save": ""}
    _become([*found.command, *(word for pair in options.items() for word in pair)], {})


@app.command()
def metadata(file: OutputFile, store: Address, interface: Interface = None) -> None:
    """Become dataClay's metadata service."""
    from spliter_backends.dataclay.cluster.services import metadata_command

    address = address_of(interface)
    port = keep_port(address)
    write_whole(file, f"{address}:{port}")
    settings = {
        "DATACLAY_METADATA_HOST": address,
        "DATACLAY_METADATA_PORT": str(port),
        "DATACLAY_METADATA_LISTEN_ADDRESS": address,
    }
    _become(metadata_command(), {**_store_settings(store), **settings})


@app.command()
def backend(
    store: Address,
    threads: Count,
    scratch: Annotated[Path, typer.Option(help="Folder on this node's disk.")],
    interface: Interface = None,
    backend_id: Annotated[uuid.UUID | None, typer.Option("--id", help="By default random.")] = None,
) -> None:
    """Become a backend of dataClay."""
    from spliter_backends.dataclay.cluster.services import backend_command

    address = address_of(interface)
    port = keep_port(address)
    own = backend_id or uuid.uuid4()
    folder = scratch / str(own)
    folder.mkdir(parents=True)
    settings = {
        "DATACLAY_BACKEND_ID": str(own),
        "DATACLAY_BACKEND_HOST": address,
        "DATACLAY_BACKEND_PORT": str(port),
        "DATACLAY_BACKEND_LISTEN_ADDRESS": address,
        "DATACLAY_STORAGE_PATH": str(folder),
    }
    _become(backend_command(threads), {**_store_settings(store), **settings})


def _store_settings(address: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    return {"DATACLAY_KV_HOST": host, "DATACLAY_KV_PORT": port}


@app.command()
def dask_ready(
    scheduler_file: Annotated[Path, typer.Option(help="What the scheduler wrote.")],
    workers: Count,
    seconds: Seconds,
) -> None:
    """Wait until all workers have come to a Dask scheduler."""
    from spliter_experiments.compare.engines.dask_engine import _client_of

    deadline = time.monotonic() + seconds
    with _client_of(str(scheduler_file)) as client:

        def there() -> int:
            return len(client.nthreads())

        came = _until(there, workers, deadline)
    if came < workers:
        raise ServiceError(
            f"{came} of {workers} workers came in {seconds:g} s to that of {scheduler_file}"
        )


@app.command()
def dataclay_ready(store: Address, metadata: Address, backends: Count, seconds: Seconds) -> None:
    """Wait until dataClay's metadata service answers and all backends are known."""
    import redis

    from spliter_experiments.compare.engines.dataclay_engine import knock, parse_address
    from spliter_experiments.harness.errors import ClusterError

    deadline = time.monotonic() + seconds
    host, port = parse_address(store)

    def known() -> int:
        try:
            with redis.Redis(host, port, socket_timeout=ANSWER_SECONDS) as asked:
                return len(asked.keys("/backend/*"))
        except redis.RedisError:
            return 0

    def answers() -> int:
        try:
            knock(*parse_address(metadata))
        except ClusterError:
            return 0
        return 1

    came = _until(known, backends, deadline)
    if came < backends:
        raise ServiceError(f"{came} of {backends} backends came to {store} in {seconds:g} s")
    if not _until(answers, 1, deadline):
        raise ServiceError(f"the metadata service at {metadata} does not answer")


@app.command()
def ray_node(
    cpus: Count,
    store_memory: Annotated[int, typer.Option(help="Bytes of the object store.")],
    folder: Annotated[Path, typer.Option(help="For Ray's files, on this node's disk.")],
    head: Annotated[str | None, typer.Option(help="HOST:PORT of the head; else become it.")] = None,
    interface: Interface = None,
) -> None:
    """Become a node of Ray; the head writes its address to the file ray_current_cluster."""
    joins = [f"--address={head}"]
    begins = ["--head", "--port=0", "--include-dashboard=false", f"--temp-dir={folder}"]
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *(begins if head is None else joins),
        f"--num-cpus={cpus}",
        f"--object-store-memory={store_memory}",
        f"--node-ip-address={address_of(interface)}",
        "--disable-usage-stats",
    ]
    os.execv(command[0], command)


@app.command()
def ray_ready(address: Address, nodes: Count, seconds: Seconds) -> None:
    """Wait until all nodes have joined a Ray cluster."""
    from spliter_backends.ray.cluster import usable_nodes
    from spliter_experiments.compare.engines.engine import ClusterChoice
    from spliter_experiments.compare.engines.ray_engine import connected

    deadline = time.monotonic() + seconds
    with connected(ClusterChoice(address, 1, 1)):
        came = _until(lambda: len(usable_nodes()), nodes, deadline)
    if came < nodes:
        raise ServiceError(f"{came} of {nodes} nodes of Ray came to {address} in {seconds:g} s")


def _until(count: Callable[[], int], wanted: int, deadline: float) -> int:
    """Poll until the count is as wanted or the deadline has passed; return the last count."""
    while (there := count()) < wanted and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return there


def main() -> None:
    """Run a command; report our own errors without a traceback."""
    try:
        app()
    except ExperimentError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
