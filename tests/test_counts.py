"""Tasks, messages and bytes of each program, as they are written down: a slower SplIter shows here.

``UPDATE_COUNTS=1 pytest tests/test_counts.py`` writes the numbers anew; read the difference, and
bring ``docs/performance.md`` up to date, before it is committed.
"""

from __future__ import annotations

import functools
import operator
import os
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client, wait
from sklearn.exceptions import ConvergenceWarning

from spliter import reduce, split
from spliter_apps import CascadeSVM, KMeans, NearestNeighbors, histogramdd
from spliter_backends.dask.client import batch as dask_batch
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans as KMeansComparison
from spliter_experiments.compare.workloads.knn import Neighbors
from spliter_experiments.compare.workloads.sums import Sum
from tests.conftest import ROOT
from tests.counting import Counts, counter, settle
from tests.dask_backend.programs import total
from tests.dask_workers import workers_of
from tests.experiments.staging import staged_on_dask

pytestmark = pytest.mark.backend("dask")

EXPECTED = ROOT / "tests" / "expected_counts.toml"
PAGE = ROOT / "docs" / "performance.md"
SIZES = (16, 64)
"""Blocks: what SplIter costs must not grow with them."""

Program = Callable[[], Any]


@pytest.fixture(scope="module")
def client(dask_cluster: Any) -> Iterator[Client]:
    """Client that sends a pass in one message.

    However slow this machine is: tasks that are submitted one after the other do not wait for
    each other 1 ms, but a hundred times that.
    """
    with (
        patch.object(dask_batch, "QUIET_SECONDS", 0.1),
        patch.object(dask_batch, "MAX_DELAY", 10.0),
        Client(dask_cluster) as connected,
    ):
        yield connected


def in_turn(client: Client, array: np.ndarray[Any, Any], nblocks: int) -> da.Array:
    """Put an array on the workers, its blocks in turn."""
    workers = workers_of(client)
    pieces = np.array_split(array, nblocks)
    futures = [
        client.submit(np.array, piece, workers=[workers[at % 2]], pure=False)
        for at, piece in enumerate(pieces)
    ]
    wait(futures)
    blocks = [
        da.from_delayed(future, piece.shape, piece.dtype)
        for future, piece in zip(futures, pieces, strict=True)
    ]
    whole: da.Array = da.concatenate(blocks).persist()
    wait(whole)
    return whole


def core_programs(client: Client, nblocks: int) -> dict[str, Program]:
    """Return the steps of a program, each counted alone."""
    numbers = in_turn(client, np.arange(640), nblocks)
    parts = split(numbers)
    parts.map(total)

    def a_pass() -> int:
        futures = parts.map(total)
        found: int = reduce(operator.add, futures).result(timeout=60)
        assert found == 640 * 639 // 2
        return found

    return {"split": lambda: split(numbers), "pass": a_pass}


def one_iteration(points: da.Array, labels: da.Array) -> CascadeSVM:
    """Train once: how many further iterations there are depends on the points."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return CascadeSVM(max_iter=1, tol=0.0, cascade=True).fit(points, labels)


def app_programs(client: Client, nblocks: int) -> dict[str, Program]:
    """Return the applications, on points that are on the workers."""
    values = np.random.default_rng(0).random((640, 3))
    points = in_turn(client, values, nblocks)
    labels = in_turn(client, (values.sum(axis=1) > 1.5).astype(np.int64), nblocks)
    kmeans = KMeans(n_clusters=3, init=values[:3], n_init=1, max_iter=3, tol=0.0)
    return {
        "histogram": lambda: histogramdd(points, bins=4, range=[(0, 1)] * 3),
        "kmeans": lambda: kmeans.fit(points),
        "csvm": lambda: one_iteration(points, labels),
        "knn": lambda: NearestNeighbors(n_neighbors=2).fit(points).kneighbors(values[:20]),
    }


COMPARED: dict[str, tuple[Any, Any]] = {
    "sum": (Sum(passes=1), ways_of(ENGINE, Sum)),
    "histogram": (Histogram(bins=3), ways_of(ENGINE, Histogram)),
    "kmeans": (
        KMeansComparison(clusters=3, iterations=3, seed=0),
        ways_of(ENGINE, KMeansComparison),
    ),
    "csvm": (CascadeSvm(label=None, iterations=1, tol=0.0), ways_of(ENGINE, CascadeSvm)),
    "knn": (Neighbors(neighbors=2, queries=20), ways_of(ENGINE, Neighbors)),
}
COUNTED_WAYS = ("per-block", "spliter")


def counted_ways(client: Client, nblocks: int) -> Iterator[tuple[str, Counts]]:
    """Count the ways that ``spliter compare`` runs."""
    for name, (app, table) in COMPARED.items():
        dataset = app.open(InputChoice(None, None, 640, 3, 0))
        with staged_on_dask(client, dataset, nblocks) as site:
            problem = app.pose(site)
            rest = site.engine.idle_state(
                [site.array] if site.labels is None else [site.array, site.labels]
            )
            for way in COUNTED_WAYS:
                rest.wait()
                settle(client)
                run = functools.partial(table.run[way], site, problem)
                with counter(client) as count:
                    yield f"compare-{name}-{way}", count(run)
            rest.wait()


def counted(client: Client, nblocks: int) -> dict[str, Counts]:
    """Count everything with so many blocks."""
    found = {}
    with counter(client) as count:
        for programs in (core_programs(client, nblocks), app_programs(client, nblocks)):
            for name, program in programs.items():
                found[name] = count(program)
    return {**found, **dict(counted_ways(client, nblocks))}


@pytest.fixture(scope="module")
def found(client: Client) -> dict[str, dict[str, Counts]]:
    """All counts, by program and number of blocks."""
    by_size = {nblocks: counted(client, nblocks) for nblocks in SIZES}
    names = list(by_size[SIZES[0]])
    return {name: {f"blocks-{n}": by_size[n][name] for n in SIZES} for name in names}


def expected() -> dict[str, dict[str, dict[str, int]]]:
    """Read what is written down."""
    content: dict[str, dict[str, dict[str, int]]] = tomllib.loads(
        EXPECTED.read_text(encoding="utf-8")
    )
    return content


def written(found: dict[str, dict[str, Counts]]) -> str:
    """Write counts down.

    Bytes only where they depend neither on where Dask starts a task nor on how many points support
    a classifier.
    """
    lines = ["# What each program costs on two workers of one thread; see test_counts.py."]
    for name, sizes in found.items():
        lines += ["", f"[{name}]"]
        for size, counts in sizes.items():
            entries = asdict(counts)
            if name.endswith("per-block") or "csvm" in name:
                del entries["nbytes"]
            inside = ", ".join(f"{key} = {number}" for key, number in entries.items())
            lines.append(f"{size} = {{ {inside} }}")
    return "\n".join(lines) + "\n"


@pytest.mark.thorough
@pytest.mark.feature("batches")
def test_counts_are_those_written_down(found: dict[str, dict[str, Counts]]) -> None:
    if os.environ.get("UPDATE_COUNTS"):
        EXPECTED.write_text(written(found), encoding="utf-8")
    wanted = expected()
    assert sorted(found) == sorted(wanted)
    different = {
        f"{name}, {size}": (asdict(counts), wanted[name][size])
        for name, sizes in found.items()
        for size, counts in sizes.items()
        if not wanted[name][size].items() <= asdict(counts).items()
    }
    assert different == {}, "found and written down"


def test_what_splitting_costs_does_not_grow_with_the_blocks() -> None:
    wanted = expected()
    few, many = (f"blocks-{n}" for n in SIZES)
    own = [name for name in wanted if not name.endswith("per-block")]
    assert {name: wanted[name][few] for name in own} == {name: wanted[name][many] for name in own}
    for name in set(wanted) - set(own):
        assert wanted[name][many]["tasks"] >= 2 * wanted[name][few]["tasks"]


def test_a_split_and_a_pass_move_nothing_but_one_result() -> None:
    wanted = expected()
    for size in wanted["split"].values():
        assert (size["tasks"], size["nbytes"], size["who_has"]) == (0, 0, 1)
    for size in wanted["pass"].values():
        # Two partitions and their sum; one of the two sums goes to the other.
        assert (size["tasks"], size["graphs"]) == (3, 1)


def rows_of_the_page() -> list[str]:
    """Return the table of counts as Markdown."""
    rows = [
        "| program | tasks | graphs sent | `who_has` | bytes between workers |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, sizes in expected().items():
        cells = [
            "/".join(dict.fromkeys(str(counts.get(key, "-")) for counts in sizes.values()))
            for key in ("tasks", "graphs", "who_has", "nbytes")
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def test_the_page_shows_these_counts() -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- counts: begin -->\n", "<!-- counts: end -->"
    table = "\n".join(rows_of_the_page())
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if os.environ.get("UPDATE_COUNTS"):
        PAGE.write_text(f"{before}{begin}\n{table}\n\n{end}{after}", encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
    assert f"{begin}\n{table}\n\n{end}" in text
