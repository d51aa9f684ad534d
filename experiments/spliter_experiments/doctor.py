"""``spliter doctor``: report which backends are usable here, and what the others lack.

This module needs only the standard library and the core, because it reports missing packages.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

import spliter
from spliter import BackendInfo
from spliter_backends._shared import compss_requirements
from spliter_backends._shared.redis_store import STORE_HINT, find_store
from spliter_experiments.harness.errors import ClusterError, ExperimentError, OptionError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.options import words

FIRST_PYTHON_WITHOUT_DATACLAY = (3, 13)
FIRST_REDIS_TOO_NEW = 8


COMMAND_PACKAGES = {
    "dask": "dask",
    "distributed": "distributed",
    "jinja2": "jinja2",
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "rich": "rich",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "threadpoolctl": "threadpoolctl",
    "typer": "typer",
    "zarr": "zarr",
}
"""Modules of the extra ``experiments``, and the distributions that contain them."""


def missing_packages() -> list[str]:
    """Return the distributions of the extra ``experiments`` that are not installed."""
    return [
        distribution
        for module, distribution in COMMAND_PACKAGES.items()
        if importlib.util.find_spec(module) is None
    ]


@dataclass(frozen=True)
class Requirement:
    """A requirement of a backend besides its Python package.

    What is found is its version or location, empty if it is missing or unsuitable.
    """

    backend: str
    what: str
    found: str
    advice: str


def requirements() -> list[Requirement]:
    return [
        Requirement("dataclay", "package dataclay", _version("dataclay"), _dataclay_advice()),
        Requirement("dataclay", "package redis", _usable_redis(), 'pip install "redis<8"'),
        Requirement("dataclay", "key-value store", _store(), f"to start one here: {STORE_HINT}"),
        *(
            Requirement("compss", need.what, need.found, need.advice)
            for need in compss_requirements.requirements()
        ),
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _dataclay_advice() -> str:
    if sys.version_info >= FIRST_PYTHON_WITHOUT_DATACLAY:
        return "dataClay needs Python < 3.13; make an environment with an older one"
    return 'pip install "pyspliter[dataclay]"'


def _usable_redis() -> str:
    version = _version("redis")
    # From version 8, a client has at most 100 connections, too few for many concurrent calls.
    return version if version and int(version.partition(".")[0]) < FIRST_REDIS_TOO_NEW else ""


def _store() -> str:
    store = find_store()
    return "" if store is None else store.name


NARROWEST = 30
"""Minimum width of the last column of a table on a narrow terminal, in characters."""


@dataclass(frozen=True)
class Report:
    """Findings of ``spliter doctor``.

    `missing` are packages of the other commands. With a `scheduler`, `cluster` has the version of
    SplIter at the scheduler and each worker of that Dask cluster.
    """

    machine: Facts
    backends: Sequence[BackendInfo]
    needs: Sequence[Requirement]
    missing: Sequence[str]
    scheduler: str | None = None
    cluster: Mapping[str, str | None] | None = None

    def as_json(self) -> str:
        """Return the report as a JSON object; ``advice`` says how to install what is missing."""
        found = dataclasses.asdict(self)
        for entry, info in zip(found["backends"], self.backends, strict=True):
            entry["advice"] = advice(info)
        return json.dumps(found, indent=2, ensure_ascii=False)

    def as_text(self, width: int) -> str:
        """Return the report as tables of plain text for a terminal of `width` columns."""
        machine = self.machine
        tables: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = [
            (
                "Backends",
                ("name", "usable", "version", "why not, and what to do"),
                [
                    (info.name, yes_no(info.usable), info.version or "-", advice(info))
                    for info in sorted(self.backends, key=lambda info: not info.usable)
                ],
            ),
            (
                "What engines need besides",
                ("for", "what", "found", "where, or what to do"),
                [
                    (need.backend, need.what, yes_no(bool(need.found)), need.found or need.advice)
                    for need in self.needs
                ],
            ),
            (
                "This machine",
                ("what", "value"),
                [
                    ("system", machine.system),
                    ("processor", machine.processor),
                    ("cores", str(machine.cores)),
                    ("memory", f"{machine.memory / 1e9:.1f} GB"),
                    *machine.versions.items(),
                ],
            ),
        ]
        if self.cluster is not None:
            rows: list[tuple[str, ...]] = [
                (process, version or "-", yes_no(version == spliter.__version__))
                for process, version in sorted(self.cluster.items())
            ]
            headings = ("process", "spliter", "same as here")
            tables.append((f"Scheduler and workers of {self.scheduler}", headings, rows))
        ready = ", ".join(info.name for info in self.backends if info.usable)
        parts = [f"Ready to use: {ready}\n", *(table(*content, width) for content in tables)]
        if self.missing:
            parts.append(
                f"The other commands also need {', '.join(self.missing)}: "
                'pip install "pyspliter[experiments]"\n'
            )
        return "\n".join(parts)


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


def advice(info: BackendInfo) -> str:
    """Return why a backend is unusable, and the command that installs what it lacks."""
    if info.usable:
        return ""
    install = f'pip install "pyspliter[{info.extra}]"' if info.extra else ""
    return "; ".join(filter(None, [info.reason, install if install not in info.reason else ""]))


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Format rows in columns; the last column is wrapped to the rest of `width`.

    >>> print(table("Fruit", ("name", "colour"), [("fig", "violet or green")], 14))
    Fruit
      name  colour
      fig   violet
            or
            green
    <BLANKLINE>
    """
    lines = [headings, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headings) - 1)]
    indent = 2 + sum(widths) + 2 * len(widths)
    least = max(map(len, " ".join(headings).split()))
    rest = max(width - indent, NARROWEST if width > NARROWEST else least)
    text = [title]
    for line in lines:
        first = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=False))
        pieces = textwrap.wrap(line[-1], rest, break_long_words=False) or [""]
        text.append(f"  {first}  {pieces[0]}".rstrip())
        text += [" " * indent + piece for piece in pieces[1:]]
    return "\n".join(text) + "\n"


def examine(scheduler: str | None = None) -> Report:
    """Collect the report, with the versions at a Dask cluster if one is given."""
    return Report(
        machine=facts(),
        backends=spliter.backends(),
        needs=requirements(),
        missing=missing_packages(),
        scheduler=scheduler,
        cluster=None if scheduler is None else _versions_at(scheduler),
    )


def _versions_at(scheduler: str) -> Mapping[str, str | None]:
    try:
        from spliter_experiments.compare.engines.dask_engine import connected, process_versions
        from spliter_experiments.compare.engines.engine import ClusterChoice
    except ModuleNotFoundError as error:
        raise ClusterError(
            f'--scheduler needs Dask: {error}; pip install "pyspliter[dask]"'
        ) from error
    with connected(ClusterChoice(scheduler, workers=1, threads=1)) as client:
        return process_versions(client)


def run(scheduler: str | None, require: str | None, as_json: bool) -> int:
    """Print the report and check what was required.

    Returns the exit code: 2 if a required backend cannot be used, or the cluster has another
    version.
    """
    try:
        report = examine(scheduler)
        width = shutil.get_terminal_size().columns
        print(report.as_json() if as_json else report.as_text(width))  # noqa: T201
        check_required(words(require or ""), report.backends)
        if report.cluster is not None:
            from spliter_experiments.compare.engines.dask_engine import check_versions

            check_versions(report.cluster)
    except ExperimentError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def check_required(names: Sequence[str], infos: Sequence[BackendInfo]) -> None:
    by_name = {info.name: info for info in infos}
    for name in names:
        if name not in by_name:
            raise OptionError(f"there is no backend {name!r}; there are {', '.join(by_name)}")
        if not by_name[name].usable:
            raise ClusterError(f"backend {name!r} is required: {advice(by_name[name])}")
