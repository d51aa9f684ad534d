"""Run the tests of Dask and xarray on two workers, with `partitioned` as their scheduler.

``python -m tests.dask_backend.graphs.judge [--ways WAY ...] [MODULE ...]`` runs the installed test
modules once per way, prints what passed and how many graphs ran as clusters, and lists each test
whose outcome differs between the ways; it exits with 1 if there is one. All modules take hours.

Their `assert_eq` computes with ``scheduler="sync"``, and persists before it computes. Here every
scheduler with a name is replaced. The replacement has no `persist`, so Dask computes all chunks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest import mock

import dask
import pytest
from distributed import Client

from spliter import partitioned
from spliter_backends.dask.graphs import partitioned as scheduling
from tests.dask_backend.conftest import start_processes

WAYS: Final = {
    "distributed": "Dask's own scheduling",
    "partitioned": "ours",
    "clusters": "ours, which forms clusters even if they save no tasks",
}

MODULES: Final = [
    *(
        f"dask.array.tests.test_{subject}"
        for subject in ("reductions", "ufunc", "slicing", "overlap", "linalg", "routines")
    ),
    "dask.dataframe.tests.test_arithmetics_reduction",
    "dask.dataframe.tests.test_groupby",
    "dask.dataframe.dask_expr.tests.test_reductions",
    "dask.dataframe.dask_expr.tests.test_groupby",
    "dask.dataframe.dask_expr.tests.test_describe",
    "xarray.tests.test_dask",
    "xarray.tests.test_groupby",
]


class Judge:
    """Pytest plugin that gives every collection one scheduler, and records the outcomes."""

    def __init__(self, way: str, file: Path) -> None:
        self.file = file
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.graphs = Counter[str]()
        self.cleanup = ExitStack()
        self.replace(way)

    def replace(self, way: str) -> None:
        """Start a cluster, and replace the schedulers that Dask knows by name."""
        cluster = self.cleanup.enter_context(start_processes())
        client: Any = self.cleanup.enter_context(Client(cluster))
        send = client.get
        choose: Any = dask.base.get_scheduler

        def counted(graph: Any, keys: Any, **options: Any) -> Any:
            coarse = "partitioned" in getattr(graph, "layers", ())
            self.graphs["clusters" if coarse else "forwarded"] += 1
            return send(graph, keys, **options)

        scheduler: Any = counted if way == "distributed" else partitioned(client)

        def get(graph: Any, keys: Any, **_: Any) -> Any:
            return scheduler(graph, keys)

        named: set[Any] = {None, counted, *dask.base.named_schedulers.values()}

        def chosen(*arguments: Any, **options: Any) -> Any:
            found = choose(*arguments, **options)
            return get if found in named else found

        for place, name, value in (
            (client, "get", counted),
            (dask, "get", get),
            (dask.base, "get_scheduler", chosen),
            (scheduling, "SAVING", 0 if way == "clusters" else scheduling.SAVING),
        ):
            self.cleanup.enter_context(mock.patch.object(place, name, value))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            expected = "x" if hasattr(report, "wasxfail") else ""
            self.outcomes[report.nodeid] = expected + report.outcome
            if report.outcome == "failed":
                self.reasons[report.nodeid] = str(report.longreprtext)[-3000:]

    def pytest_unconfigure(self) -> None:
        self.file.write_text(json.dumps([self.outcomes, self.graphs, self.reasons]))
        self.cleanup.close()


def judge(module: str, way: str) -> list[Any]:
    """Return the outcome of each test, the number of graphs by what became of them, and reasons."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} is not installed"
    root = Path(spec.origin).parents[module.count(".")]
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "-c", "/dev/null", f"--rootdir={root}", "--timeout=600", "--tb=short"]
        options += ["-p", "no:cacheprovider", "-p", "no:randomly"]
        file = Path(folder) / "outcomes.json"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", __spec__.name, "--child", way, str(file)]
        subprocess.run([*command, spec.origin, *options], check=False, env=env)
        found: list[Any] = json.loads(file.read_text())
        return found


def main() -> int:
    """Run the modules, print what passed, and return 1 if ways differ."""
    if sys.argv[1:2] == ["--child"]:
        way, file, *options = sys.argv[2:]
        return pytest.main(options, plugins=[Judge(way, Path(file))])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["distributed", "partitioned"])
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    given = parser.parse_args()
    different = 0
    for module in given.modules or MODULES:
        found = {way: judge(module, way) for way in given.ways}
        for way, (outcomes, graphs, _) in found.items():
            print(f"{module} {way}: {dict(Counter(outcomes.values()))}, {graphs}", flush=True)
        for test in sorted({test for outcomes, *_ in found.values() for test in outcomes}):
            ends = {way: outcomes.get(test, "missing") for way, (outcomes, *_) in found.items()}
            if len({*ends.values()}) > 1:
                different += 1
                print(f"DIFFERENT {test}: {ends}")
                for way, (*_, reasons) in found.items():
                    print(f"  {way}: {reasons.get(test, '')}", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
