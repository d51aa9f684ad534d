"""A Dask cluster for the time of a command: an embedded one, or the user's own."""

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

from spliter_backends.dask.client.environment import versions_at
from spliter_backends.dask.versions import wrong_versions
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.errors import ClusterError

CONNECT_SECONDS = 10
WORKERS_SECONDS = 30


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[Client]:
    """Connect to a cluster with at least one worker, started and stopped here if embedded.

    Raises
    ------
    ClusterError
        If the scheduler or a worker cannot be reached in time.
    """
    with ExitStack() as stack:
        if choice.address is None:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=choice.workers,
                    threads_per_worker=choice.threads,
                    processes=True,
                    # Any free port: the usual one may be taken, by another cluster or a notebook.
                    # Of this host only: without it, Dask shows the page on every interface.
                    dashboard_address="127.0.0.1:0",
                )
            )
            client = stack.enter_context(Client(cluster))
            client.register_plugin(Uninterrupted())
            # Its callback of the garbage collector swallows the KeyboardInterrupt of a Ctrl-C
            # that comes while it runs, and a comparison makes much garbage.
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
        # Dask waits for ever for the greeting of a server that takes connections and is silent.
        asyncio.run(asyncio.wait_for(_greet(address), CONNECT_SECONDS))
        return Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or f"no answer in {CONNECT_SECONDS} s"
        raise ClusterError(f"no scheduler answers at {address}: {reason}") from error
    except (TypeError, RuntimeError) as error:
        # Dask's ways to say that it has no certificate, or may not speak without one.
        raise ClusterError(
            f"cannot speak to the scheduler at {address}: {error}; certificates are taken from "
            "Dask's configuration (distributed.comm.tls: ca-file, client.cert, client.key)"
        ) from error


async def _greet(address: str) -> None:
    """Connect as a Dask client and hang up."""
    security = Security().get_connection_args("client")
    comm = await connect(address, timeout=CONNECT_SECONDS, **security)
    comm.abort()


def _address_of(scheduler: str) -> str:
    """Read a scheduler file at once: Dask would wait for ever for one that is missing."""
    path = Path(scheduler)
    if not path.is_file():
        if ":" in scheduler:
            return scheduler
        raise ClusterError(
            f"--scheduler {scheduler}: neither an address (tcp://HOST:PORT) nor a scheduler file"
        )
    try:
        address = json.loads(path.read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterError(
            f"{scheduler} is not a scheduler file (dask scheduler --scheduler-file FILE)"
        ) from error
    return str(address)


def cores_of(client: Client) -> int:
    """Return how many tasks the cluster runs at once."""
    return sum(client.nthreads().values())


def is_on_this_machine(client: Client) -> bool:
    """Whether every worker runs on this host, so that plain processes here compare with it."""
    return set(client.run(platform.node).values()) == {platform.node()}


def process_versions(client: Client) -> dict[str, str | None]:
    """Return the version of SplIter at scheduler and workers, None where there is none."""
    found: dict[str, str | None] = client.sync(versions_at, client, asynchronous=False)
    return found


class Uninterrupted(WorkerPlugin):
    """Lets workers live through Ctrl-C, which reaches them too: the command ends them itself.

    If the command is killed, workers end by themselves: Dask has them watch their parent.
    """

    def setup(self, worker: Worker) -> None:
        """Ignore the signal from now on; runs in the main thread of a worker's process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_versions(versions: Mapping[str, str | None]) -> None:
    """Check that the scheduler and all workers have this version of SplIter.

    Raises
    ------
    ClusterError
        If one has another version, or none.
    """
    if wrong := wrong_versions(versions):
        raise ClusterError(wrong)
