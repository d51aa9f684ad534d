"""Connect to a Dask cluster while a command runs: a local one, or the user's own."""

from __future__ import annotations

import asyncio
import json
import platform
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distributed import Client, LocalCluster, Security, Worker, WorkerPlugin
from distributed.comm import connect
from distributed.gc import disable_gc_diagnosis

from spliter_backends.dask.client.environment import query_versions, wrong_versions
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.errors import ClusterError

CONNECT_SECONDS = 10
WORKERS_SECONDS = 30


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[Client]:
    """Connect to a cluster with at least one worker, started and stopped here if embedded."""
    with ExitStack() as stack:
        if choice.address is None:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=choice.workers,
                    threads_per_worker=choice.threads,
                    processes=True,
                    # Any free port, as the default may be taken; this host only, as Dask serves the
                    # dashboard on every interface by default.
                    dashboard_address="127.0.0.1:0",
                )
            )
            client = stack.enter_context(Client(cluster))
            client.register_plugin(Uninterrupted())
            # Dask's garbage collection callback swallows the KeyboardInterrupt of a Ctrl-C that
            # arrives while it runs, and a comparison triggers many collections.
            disable_gc_diagnosis(force=True)
            yield client
            return
        client = stack.enter_context(_client_of(choice.address))
        try:
            client.wait_for_workers(1, timeout=WORKERS_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler at {choice.address} has no worker after {WORKERS_SECONDS} s"
            ) from error
        yield client


def _client_of(scheduler: str) -> Client:
    address = _address_of(scheduler)
    try:
        # Dask waits forever for the handshake of a server that accepts connections but is silent.
        asyncio.run(asyncio.wait_for(_greet(address), CONNECT_SECONDS))
        return Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or f"no answer in {CONNECT_SECONDS} s"
        raise ClusterError(f"no scheduler answers at {address}: {reason}") from error
    except (TypeError, RuntimeError) as error:
        # Dask raises these if certificates are missing or the server requires encryption.
        raise ClusterError(
            f"cannot speak to the scheduler at {address}: {error}; certificates are taken from "
            "Dask's configuration (distributed.comm.tls: ca-file, client.cert, client.key)"
        ) from error


async def _greet(address: str) -> None:
    security = Security().get_connection_args("client")
    comm = await connect(address, timeout=CONNECT_SECONDS, **security)
    comm.abort()


def _address_of(scheduler: str) -> str:
    """Return the address in a scheduler file; Dask would wait forever for a missing file."""
    path = Path(scheduler)
    if not path.is_file():
        if ":" in scheduler:
            return scheduler
        raise ClusterError(
            f"{scheduler} is neither an address (tcp://HOST:PORT) nor a scheduler file"
        )
    try:
        address = json.loads(path.read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterError(
            f"{scheduler} is not a scheduler file (dask scheduler --scheduler-file FILE)"
        ) from error
    return str(address)


def is_on_this_machine(client: Client) -> bool:
    """Return whether all workers run on this host, so that local processes are comparable."""
    return set(client.run(platform.node).values()) == {platform.node()}


def process_versions(client: Client) -> dict[str, str | None]:
    found: dict[str, str | None] = client.sync(query_versions, client, asynchronous=False)
    return found


class Uninterrupted(WorkerPlugin):
    """Makes workers ignore Ctrl-C, which reaches them too: the command stops them itself.

    If the command is killed, workers end by themselves, because Dask has them watch their parent.
    """

    def setup(self, worker: Worker) -> None:
        """Ignore SIGINT; runs in the main thread of the worker process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_versions(versions: Mapping[str, str | None]) -> None:
    if wrong := wrong_versions(versions):
        raise ClusterError(wrong)
