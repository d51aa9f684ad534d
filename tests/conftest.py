"""Shared by all tests: the two tiers, hypothesis profiles, and which engines have to be there.

``scripts/test`` leaves out the tests marked ``thorough``: those in the folders of ``THOROUGH``,
those that need an engine other than those of ``SHORT``, those that start a Dask cluster of their
own (``start_cluster``), and files and tests that have the mark themselves. ``scripts/test --all``
runs them too.

A test that needs an engine says so with ``@pytest.mark.backend("dask")``. Where that engine
cannot be used the test is skipped and the reason printed, so a contributor without it can work on
the rest. A run that is meant to have it names it in ``--expect-backends``: then a missing engine
ends the run at once, and a marked test that skips for whatever reason fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import spliter
from spliter_backends.local.executor import LocalExecutor
from tests.running import run_command
from tests.slurm.cluster import why_not as why_no_slurm

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = [ROOT, *(ROOT / name for name in ("backends", "apps", "experiments", "slurm"))]

THOROUGH = {
    "ahead",
    "chaos",
    "compss",
    "compss_backend",
    "dataclay",
    "dataclay_backend",
    "evaluation",
    "experiments",
    "fuzz",
    "pipeline",
    "programs",
    "ray",
    "ray_backend",
    "records",
    "scale",
    "security",
    "slurm",
}
"""Folders of tests that only ``scripts/test --all`` runs."""

SHORT = {"local", "dask", "files", "xarray", "zarr"}
"""Engines of the tests that ``scripts/test`` runs; others need a server or runtime of their own."""

hypothesis.settings.register_profile("quick", max_examples=10, deadline=None)
hypothesis.settings.register_profile(
    "thorough",
    max_examples=100,
    deadline=None,  # no test judges time
    derandomize=True,  # a red run must be red again
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def leaves_out(config: pytest.Config, folders: Collection[str] = THOROUGH) -> bool:
    """Whether this run has no tests of any of these folders."""
    return config.option.markexpr == "not thorough" and not THOROUGH.isdisjoint(folders)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--expect-slurm",
        action="store_true",
        help="SLURM must be installed: without it the run fails instead of skipping its tests",
    )
    parser.addoption(
        "--expect-servers",
        action="store_true",
        help="servers of records must be installed: without one its tests fail instead of skipping",
    )
    parser.addoption(
        "--expect-backends",
        default="",
        metavar="NAME,NAME",
        help="engines that must be usable: without one the run fails instead of skipping its tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start background jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers",
        "backend(name): needs this engine; skipped where it cannot be used, "
        "an error where --expect-backends names it",
    )
    config.addinivalue_line("markers", "thorough: only scripts/test --all runs it")
    config.addinivalue_line(
        "markers",
        "feature(name): of Dask; skipped where tests/dask_backend/without.py turns it off",
    )
    config.addinivalue_line(
        "markers",
        "slurm: starts a real SLURM; skipped where it is not installed, an error with "
        "--expect-slurm",
    )
    if config.getoption("--expect-slurm") and why_no_slurm():
        raise pytest.UsageError(f"--expect-slurm: {why_no_slurm()}")
    why_not = {name: _why_not_usable(name) for name in _expected(config)}
    missing = [f"{name}: {reason}" for name, reason in why_not.items() if reason]
    if missing:
        raise pytest.UsageError("--expect-backends: " + "; ".join(missing))


@pytest.hookimpl(tryfirst=True)  # before tests are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark thorough tests."""
    for item in items:
        folders = set(item.path.relative_to(config.rootpath).parts)
        own_cluster = "start_cluster" in getattr(item, "fixturenames", ())
        if THOROUGH & folders or _needed(item) - SHORT or own_cluster:
            item.add_marker("thorough")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file, which share a cluster, in one process; those of Ray all in one.

    Not by ``xdist_group``: from pytest 9.2 on xdist 3.8 ignores that mark.
    """
    from xdist.scheduler import LoadFileScheduling

    def scope_of(nodeid: str) -> str:
        folder, _, file = nodeid.split("::", 1)[0].rpartition("/")
        return folder if folder.endswith("ray_backend") else f"{folder}/{file}"

    # In the order of the files: those with the longest tests are among the first.
    config.option.loadscopereorder = False
    scheduler: Any = LoadFileScheduling(config, log)
    scheduler._split_scope = scope_of
    return scheduler


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if leaves_out(config):
        terminalreporter.write_line("thorough tests were left out; all: scripts/test --all")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _needed(item):
        reason = _why_not_usable(name)
        if reason:
            pytest.skip(reason)
    if item.get_closest_marker("slurm") and why_no_slurm():
        pytest.skip(why_no_slurm())
    turned_off = os.environ.get("SPLITER_TESTS_WITHOUT", "").split(",")
    for marker in item.iter_markers("feature"):
        if not {"all", *marker.args}.isdisjoint(turned_off):
            pytest.skip(f"without {marker.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected = sorted(_needed(item) & _expected(item.config))
    if item.get_closest_marker("slurm") and item.config.getoption("--expect-slurm"):
        expected.append("slurm")
    if "records" in item.path.parts and item.config.getoption("--expect-servers"):
        expected.append("servers")
    if report.skipped and not hasattr(report, "wasxfail") and expected:
        report.outcome = "failed"
        report.longrepr = f"skipped, although {expected} must be usable: {report.longrepr}"
    return report


def _expected(config: pytest.Config) -> set[str]:
    return {name.strip() for name in config.getoption("--expect-backends").split(",")} - {""}


def _needed(item: pytest.Item) -> set[str]:
    return {name for marker in item.iter_markers("backend") for name in marker.args}


def _why_not_usable(name: str) -> str:
    """Say why a backend cannot be used here; empty if it can."""
    for info in spliter.backends():
        if info.name == name:
            return info.reason
    return f"there is no backend {name!r}"


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[Any]:
    """Start two workers of one thread, for all tests that leave them as they were."""
    from tests.dask_backend.conftest import start_processes

    with start_processes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(dask_cluster: Any) -> Iterator[Any]:
    """Client of the shared cluster; one for each file, and the default one in it."""
    from distributed import Client

    with Client(dask_cluster) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python(tmp_path: Path) -> RunPython:
    """Run a fresh interpreter that finds the five packages, in an empty directory."""

    def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return run_command(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
            timeout=timeout,
        )

    return run


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the local backend have two cores, whatever the machine has."""
    executor = LocalExecutor(threads=2)
    monkeypatch.setattr("spliter_backends.local.locator.default_executor", lambda: executor)
