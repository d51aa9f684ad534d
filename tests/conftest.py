"""What every test run shares: hypothesis profiles, and which engines have to be there.

A test that needs an engine says so with ``@pytest.mark.backend("dask")``. Where that engine
cannot be used the test is skipped and the reason printed, so a contributor without it can work on
the rest. A run that is meant to have it names it in ``--expect-backends``: then a missing engine
ends the run at once, and a marked test that skips for whatever reason fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import pytest

import spliter
from tests.slurm.cluster import why_not as why_no_slurm

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = [ROOT, ROOT / "backends", ROOT / "apps", ROOT / "experiments"]

hypothesis.settings.register_profile("dev", max_examples=25, deadline=None)
hypothesis.settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,  # no test judges time
    derandomize=True,  # a red run must be red again
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--expect-slurm",
        action="store_true",
        help="SLURM must be installed: without it the run fails instead of skipping its tests",
    )
    parser.addoption(
        "--expect-backends",
        default="",
        metavar="NAME,NAME",
        help="engines that must be usable: without one the run fails instead of skipping its tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "backend(name): needs this engine; skipped where it cannot be used, "
        "an error where --expect-backends names it",
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


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep in one process what shares a cluster, where tests run in several (``--dist loadgroup``).

    That is a file, or a folder whose ``conftest.py`` has the cluster for the whole of it.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        together = item.path.parent if item.path.parent.name == "ray_backend" else item.path
        item.add_marker(pytest.mark.xdist_group(str(together.relative_to(config.rootpath))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _needed(item):
        reason = _why_not_usable(name)
        if reason:
            pytest.skip(reason)
    if item.get_closest_marker("slurm") and why_no_slurm():
        pytest.skip(why_no_slurm())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected = sorted(_needed(item) & _expected(item.config))
    if item.get_closest_marker("slurm") and item.config.getoption("--expect-slurm"):
        expected.append("slurm")
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


RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python(tmp_path: Path) -> RunPython:
    """Run a fresh interpreter that finds the four packages, in an empty directory."""

    def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
