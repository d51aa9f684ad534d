"""Every way on a real dataClay gives the answer of plain processes, with the calls promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("spliter_backends.dataclay", exc_type=ImportError)

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.engines.dataclay_engine import ENGINE, DataClayEngine
from spliter_experiments.compare.engines.engine import ClusterChoice
from tests.experiments.call_ways import APPS, NBLOCKS, Posed, check_ways, few_ways, pose

pytestmark = pytest.mark.backend("dataclay")

WAYS = few_ways(ENGINE)


@pytest.fixture(scope="module")
def engine() -> Iterator[DataClayEngine]:
    with ENGINE.connect(ClusterChoice(None, workers=2, threads=1)) as connected:
        assert isinstance(connected, DataClayEngine)
        yield connected


@pytest.fixture(scope="module")
def posed(engine: DataClayEngine, processes: dict[str, Baseline]) -> Iterator[dict[str, Posed]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(pose(ENGINE, name, engine, processes)) for name in APPS}


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_answers_are_those_of_calls_for_every_block(
    name: str, way: str, posed: dict[str, Posed]
) -> None:
    rest = posed[name].site.engine.idle_state([posed[name].site.array])
    found, wanted = posed[name].answer(way), posed[name].answer("per-block")
    assert posed[name].app.same(found, wanted)
    del found
    rest.wait()


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("sum", 2),  # passes
        ("histogram", 1),
        # One in each iteration, and one for the labels.
        ("kmeans", 4 + 1),
        ("knn", 1),
    ],
)
def test_a_call_for_every_block(name: str, calls: int, posed: dict[str, Posed]) -> None:
    assert posed[name].tasks("per-block") == calls * NBLOCKS


def test_a_cascade_calls_every_block_in_every_iteration(posed: dict[str, Posed]) -> None:
    tasks = posed["csvm"].tasks("per-block")
    assert tasks % NBLOCKS == 0
    assert 1 < tasks / NBLOCKS <= 5


@pytest.mark.parametrize(("name", "passes"), [("sum", 2), ("histogram", 1)])
def test_a_call_for_every_partition_and_one_for_the_sum(
    name: str, passes: int, posed: dict[str, Posed]
) -> None:
    assert posed[name].tasks("spliter") == passes * (2 + 1)


@pytest.mark.parametrize("name", ["kmeans", "csvm", "knn"])
def test_fewer_calls_than_one_for_every_block(name: str, posed: dict[str, Posed]) -> None:
    assert posed[name].tasks("spliter") < posed[name].tasks("per-block")


def test_ways_there_are() -> None:
    check_ways(ENGINE)
