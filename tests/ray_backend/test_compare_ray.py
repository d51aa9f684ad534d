"""``spliter compare --backend ray``: all ways give the same answers, with the tasks promised."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("ray")

from spliter import Location
from spliter_experiments.compare.engines.ray_engine import ENGINE, RayEngine
from spliter_experiments.compare.ways import OFF_CLUSTER
from tests.conftest import RunPython
from tests.experiments.call_ways import APPS, NBLOCKS, Posed, check_ways, few_ways, pose
from tests.ray_backend.cluster import N_NODES, RayNodes, suppress_output

pytestmark = [pytest.mark.thorough, pytest.mark.backend("ray"), pytest.mark.timeout(200)]

WAYS = [(name, way) for name, way in few_ways(ENGINE) if way not in OFF_CLUSTER]


@pytest.fixture(scope="module")
def posed(nodes: RayNodes) -> Iterator[dict[str, Posed]]:
    engine = RayEngine({Location(node): 1 for node in nodes.ids}, on_this_machine=True)
    with ExitStack() as stack:
        yield {name: stack.enter_context(pose(ENGINE, name, engine, {})) for name in APPS}


def test_ways_are_complete() -> None:
    check_ways(ENGINE)
    assert {way for name, way in WAYS if name == "sum"} == {
        "spliter",
        "per-block",
        "per-block-affinity",
        "streaming-split",
    }


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, way in WAYS if way != "per-block"])
def test_answers_are_those_of_one_task_per_block(
    name: str, way: str, posed: dict[str, Posed]
) -> None:
    with suppress_output():  # Ray Data warns of its own settings
        found = posed[name].answer(way)
    assert posed[name].app.same(found, posed[name].answer("per-block"))


def counts(program: Posed, way: str) -> Iterator[int]:
    """Count the tasks of a way, up to ten times.

    A node leaves a process that does not answer at once out of its figures, on a busy machine most
    of all; all that it has ever run is added when it shows up.
    """
    for _ in range(10):
        yield program.tasks(way)
        time.sleep(0.5)


@pytest.mark.parametrize("way", ["per-block", "per-block-affinity"])
@pytest.mark.parametrize(("name", "passes"), [("sum", 2), ("histogram", 1)])
def test_a_task_for_every_block(name: str, passes: int, way: str, posed: dict[str, Posed]) -> None:
    assert passes * NBLOCKS in counts(posed[name], way)


@pytest.mark.parametrize(("name", "passes"), [("sum", 2), ("histogram", 1)])
def test_a_task_for_every_partition_and_one_for_the_sum(
    name: str, passes: int, posed: dict[str, Posed]
) -> None:
    assert passes * (N_NODES + 1) in counts(posed[name], "spliter")


def test_the_command_starts_nodes_of_its_own(run_python: RunPython) -> None:
    # fmt: off
    done = run_python(
        "-m", "spliter_experiments", "compare", "sum", "--backend", "ray", "--workers", "2",
        "--blocks-per-core", "3", "--rows", "3000", "--dims", "2", "--rounds", "1",
        "--ways", "spliter,per-block-affinity", timeout=150,
    )
    # fmt: on
    assert done.returncode == 0, done.stderr
    assert "ray: 2 workers, 2 cores, 3 blocks per core" in done.stdout
