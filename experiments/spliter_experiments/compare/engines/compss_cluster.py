"""The nodes of a COMPSs application: which there are, and that they can run what is asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import spliter
from spliter import Location
from spliter_backends.compss import make_blocks
from spliter_backends.compss.api import compss_get_number_of_resources, runtime_is_up
from spliter_backends.compss.executor import EXECUTOR
from spliter_backends.compss.outcome import host_name
from spliter_backends.compss.settings import configure
from spliter_experiments.compare.engines.compss_launch import launched_resources
from spliter_experiments.compare.engines.compss_nodes import units_in
from spliter_experiments.compare.engines.compss_watch import START_SECONDS
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.errors import ClusterError


@dataclass(frozen=True)
class Nodes:
    """What there is.

    Parameters
    ----------
    units : mapping of str to int
        Tasks that each node runs at once.
    on_this_machine : bool
        Whether all of them are this host.
    """

    units: Mapping[Location, int]
    on_this_machine: bool


@dataclass(frozen=True)
class Whereabouts:
    """What a task tells of where it ran."""

    node: str
    host: str
    version: str


def tell() -> Whereabouts:
    """Tell about this node; runs in a task."""
    return Whereabouts(host_name(), socket.gethostname(), spliter.__version__)


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[Nodes]:
    """Find the nodes of the application that this is the main program of.

    Raises
    ------
    ClusterError
        If it is none, not all nodes have run a task in time, or one has another SplIter.
    """
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
        _check(told)
        names = [Location(name) for name in sorted(told)]
        here = {one.host for one in told.values()} == {socket.gethostname()}
        yield Nodes(EXECUTOR.capacities(names), here)
    finally:
        configure(computing_units=before.computing_units)


def _ask_all(listed: int) -> dict[str, Whereabouts]:
    """Run a task at every node.

    Raises
    ------
    ClusterError
        If some have not run one in time.
    """
    count = listed or max(int(compss_get_number_of_resources()), 1)
    told: dict[str, Whereabouts] = {}
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


def _check(told: Mapping[str, Whereabouts]) -> None:
    wrong = [
        f"{one.node} has {one.version}"
        for one in told.values()
        if one.version != spliter.__version__
    ]
    if wrong:
        raise ClusterError(
            f"COMPSs nodes without spliter {spliter.__version__}: {'; '.join(wrong)}; install "
            "the same version there, with its extras [experiments,compss]"
        )
