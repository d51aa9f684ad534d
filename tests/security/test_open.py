"""What is open while SplIter runs: ports of this host alone, folders of this user alone."""

from __future__ import annotations

import ast
import contextlib
import operator
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil
import pytest

from spliter import reduce, split
from spliter_experiments.compare.engines.engine import ClusterChoice
from tests.conftest import ROOT
from tests.dask_backend.programs import total
from tests.dask_workers import described_workers


def processes() -> list[psutil.Process]:
    here = psutil.Process()
    return [here, *here.children(recursive=True)]


def listening(among: Iterable[psutil.Process]) -> set[tuple[str, int]]:
    """Return the addresses at which processes take connections or datagrams."""
    found = set()
    for process in among:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM
            }
    return found


def written(among: Iterable[psutil.Process]) -> set[str]:
    """Return the files that processes have open to write."""
    found = set()
    for process in among:
        with contextlib.suppress(psutil.NoSuchProcess):
            files = process.open_files()
            found |= {file.path for file in files if getattr(file, "mode", "r") != "r"}
    return found


def is_private(folder: Path) -> bool:
    """Whether nobody but its owner can look into a folder."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


def test_a_port_on_every_interface_would_be_seen() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert ("0.0.0.0", server.getsockname()[1]) in listening([psutil.Process()])


def test_local_backend_opens_nothing() -> None:
    here = [psutil.Process()]
    before = listening(here), written(here)
    with split([np.arange(4)] * 8) as parts:
        assert reduce(operator.add, parts.map(total)).result() == 48
        assert (listening(here), written(here)) == before


@pytest.mark.backend("dask")
def test_embedded_dask_cluster_is_for_this_host_and_user() -> None:
    import dask.array as da

    from spliter_experiments.compare.engines.dask_engine import connected

    known = {process.pid for process in processes()[1:]}
    before = listening(processes())
    with connected(ClusterChoice(None, workers=2, threads=1)) as client:
        new = [process for process in processes() if process.pid not in known]
        files = written(new)
        with split(da.arange(100, chunks=10).persist()) as parts:
            assert reduce(operator.add, parts.map(total)).result(timeout=60) == 4950
            opened = listening(new) - before
            assert written(new) - files == set()
        workers = described_workers(client).values()
        folders = [Path(worker["local_directory"]) for worker in workers]
        assert {ip for ip, _ in opened} == {"127.0.0.1"}
        # Scheduler, its page, two workers with a page each and what watches over them.
        assert len(opened) >= 6
        assert len(folders) == 2
        assert all(map(is_private, folders))


def test_no_cluster_of_ours_shows_its_page_on_every_interface() -> None:
    files = [
        file
        for root in ("backends", "apps", "experiments", "slurm")
        for file in (ROOT / root).rglob("*.py")
    ]
    calls = [
        (str(file.relative_to(ROOT)), {word.arg: ast.unparse(word.value) for word in call.keywords})
        for file in files
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("LocalCluster")
    ]
    assert "experiments/spliter_experiments/compare/engines/dask_engine.py" in dict(calls)
    # Without an address Dask takes a port of every interface; so it does with a bare port.
    for name, words in calls:
        assert words.get("dashboard_address") in ("'127.0.0.1:0'", "None"), name
