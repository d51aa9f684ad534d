"""Clusters of any graph give what the graph gives: every task once, no circles, no value kept."""

from __future__ import annotations

import operator
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

import dask
import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.typing import Key
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError
from spliter_backends.dask.graphs import planner
from spliter_backends.dask.graphs.coarse import build
from spliter_backends.dask.graphs.plan import ALONE, Plan
from spliter_backends.dask.graphs.planner import plan_clusters
from spliter_backends.dask.internals.graphs import aliases, constant_sizes, separated

pytestmark = pytest.mark.backend("dask")

RAN: list[Key] = []


def combine(key: Key, *arguments: Any) -> int:
    """Return a number that depends on everything, and record the run."""
    RAN.append(key)
    return zlib.crc32(repr((key, arguments)).encode())


@dataclass
class Problem:
    """A graph, what is wanted of it, and where its existing values are."""

    tasks: dict[Key, Any]
    held: dict[Key, int]
    wanted: list[Key]
    partitions: list[int]
    floating: set[Key]
    alone: set[Key]

    @property
    def existing(self) -> dict[Key, Any]:
        """Values that exist."""
        return {key: DataNode(key, zlib.crc32(repr(key).encode())) for key in self.held}

    def plan(self) -> Plan:
        constants = {*constant_sizes(self.tasks)}
        return plan_clusters(
            needs(self.tasks),
            self.wanted,
            self.partitions,
            held={key: at for key, at in self.held.items() if at >= 0},
            constants=constants,
            floating=(self.floating & constants) - {*self.wanted},
            alone=self.alone - constants,
            aliases=aliases(self.tasks),
        )


def needs(tasks: Mapping[Key, Any]) -> dict[Key, Any]:
    return {key: node.dependencies for key, node in tasks.items()}


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    partitions = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
    places = st.integers(-1, len(partitions) - 1).filter(lambda at: at < 0 or partitions[at])
    held: dict[Key, int] = {f"held{n}": draw(places) for n in range(draw(st.integers(0, 6)))}
    number = draw(st.integers(1, 40))
    tasks: dict[Key, Any] = {}
    for at in range(number):
        key = f"task{at}"
        # Recent ones give chains and trees; any gives diamonds, crossings and values for all.
        before = [*held, *tasks]
        recent = before[-draw(st.sampled_from([1, 3, 100])) :]
        needed = draw(st.lists(st.sampled_from(recent), max_size=4)) if recent else []
        references = [TaskRef(each) for each in needed]
        kind = draw(st.sampled_from(["task", "task", "nested", "alias", "constant"]))
        if kind == "constant":
            tasks[key] = DataNode(key, at)
        elif kind == "alias" and needed:
            tasks[key] = Alias(key, needed[0])
        elif kind == "nested" and references:
            tasks[key] = Task(key, combine, key, List(*references[1:], 5), Dict(a=references[0]))
        else:
            tasks[key] = Task(key, combine, key, *references)
    some = st.sets(st.sampled_from([*tasks]), max_size=8)
    wanted = draw(st.lists(st.sampled_from([*tasks]), min_size=1, max_size=5, unique=True))
    return Problem(tasks, held, wanted, partitions, draw(some), draw(some))


@given(problems())
def test_clusters_give_what_the_graph_gives(problem: Problem) -> None:
    expected = dask.get({**problem.tasks, **problem.existing}, problem.wanted)
    needed = Counter(RAN)
    RAN.clear()
    plan = problem.plan()
    coarse = build(plan, problem.tasks, "token", [f"w{n}" for n in range(sum(problem.partitions))])
    graph = {**coarse.tasks, **problem.existing}
    found = dict(zip(plan.direct, dask.get(graph, plan.direct), strict=True))
    RAN.clear()
    made = dask.get(graph, [*plan.direct, *coarse.wanted])
    for output, values in zip(plan.wanted, made[len(plan.direct) :], strict=True):
        found.update(zip(output.keys, values, strict=True))
    assert [found.get(key, "missing") for key in problem.wanted] == [*expected]
    assert Counter(RAN) == needed, "every task that is needed runs once"
    RAN.clear()
    # Small constants of single tasks are in the graph as well, but are no tasks.
    assert len(coarse.tasks) - len(constant_sizes(coarse.tasks)) == plan.ntasks


@given(problems())
def test_clusters_are_in_an_order_in_which_they_can_run(problem: Problem) -> None:
    plan = problem.plan()
    made: set[Any] = {*problem.held}
    for number, cluster in enumerate(plan.clusters):
        assert all(output.cluster < number for output in cluster.inputs)
        assert all(key in made for key in cluster.direct)
        inside = {key for output in cluster.inputs for key in output.keys} | {*cluster.direct}
        if cluster.partition == ALONE:
            inside |= made  # a single task takes each value under its own key
        for key in cluster.keys:
            assert problem.tasks[key].dependencies <= inside
            inside.add(key)
        made |= {*cluster.keys} if cluster.partition == ALONE else {*cluster.singles}
        assert cluster.partition == ALONE or 0 <= cluster.partition < sum(problem.partitions)
    placed = Counter(key for cluster in plan.clusters for key in cluster.keys)
    floating = problem.floating & constant_sizes(problem.tasks).keys()
    assert all(placed[key] == 1 for key in placed.keys() - floating)


class Live:
    """A value that counts how many of its kind there are."""

    now: ClassVar[int] = 0
    most: ClassVar[dict[Key, int]] = {}

    def __init__(self) -> None:
        type(self).now += 1

    def __del__(self) -> None:
        type(self).now -= 1


def make(key: Key, *_: Any) -> Live:
    """Return a value, and record how many there were before."""
    Live.most[key] = Live.now
    return Live()


@given(problems())
def test_values_are_dropped_after_their_last_use(problem: Problem) -> None:
    tasks: dict[Key, Any] = {
        key: Task(key, make, key, *map(TaskRef, needed))
        for key, needed in needs(problem.tasks).items()
    }
    tasks.update({key: Task(key, make, key) for key in problem.held})
    # One partition, so one cluster: what is live is what later tasks use.
    plan = plan_clusters(needs(tasks), problem.wanted, [1])
    (cluster,) = plan.clusters
    coarse = build(plan, tasks, "token", ["w"])
    result = dask.get(coarse.tasks, coarse.wanted)
    for at, key in enumerate(cluster.keys):
        used = {n for later in cluster.keys[at:] for n in tasks[later].dependencies}
        assert Live.most[key] == len({*cluster.keys[:at]} & (used | {*problem.wanted}))
    assert Live.now == len(problem.wanted)
    del result
    assert Live.now == 0


def normalised(chunks: int) -> dict[Any, list[Any]]:
    """Each chunk less the mean of all."""
    graph: dict[Any, list[Any]] = {"sum": [("d", at) for at in range(chunks)]}
    graph["mean"] = [("s", at) for at in range(chunks)]
    for at in range(chunks):
        graph |= {("x", at): [], ("s", at): [("x", at)], ("d", at): [("x", at), "mean"]}
    return graph


def steps(graph: Mapping[Any, Sequence[Any]]) -> int:
    """Return how many lines the planner runs."""
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count if frame.f_code.co_filename == planner.__file__ else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        plan_clusters(graph, ["sum"], [2, 2])
    finally:
        sys.settrace(before)
    return lines


def test_planning_is_linear() -> None:
    assert steps(normalised(2000)) <= 2.05 * steps(normalised(1000))
    assert steps(normalised(2000)) <= 55 * (3 + 5) * 2000  # tasks and dependencies


def partitions_by_level(plan: Plan) -> list[tuple[int, int, int]]:
    return [(each.level, each.partition, len(each.keys)) for each in plan.clusters]


def test_a_value_for_all_delays_no_partition() -> None:
    graph = normalised(32)
    plan = plan_clusters(graph, ["sum"], [1, 1])
    assert partitions_by_level(plan)[:-1] == [
        (0, 0, 32),
        (0, 1, 32),
        (1, 0, 1),  # the mean
        (2, 0, 16),
        (2, 1, 16),
    ]


def merged(chunks: int) -> dict[Any, list[Any]]:
    """Each chunk with a frame that all use, which is a task."""
    graph: dict[Any, list[Any]] = {"sum": [("m", at) for at in range(chunks)], "frame": []}
    for at in range(chunks):
        graph |= {("x", at): [], ("m", at): [("x", at), "frame"]}
    return graph


def test_chunks_are_made_when_they_are_used() -> None:
    plan = plan_clusters(merged(32), ["sum"], [1, 1])
    assert partitions_by_level(plan)[:-1] == [(0, 0, 1), (1, 0, 32), (1, 1, 32)]


def test_slices_of_one_result_go_where_they_are_used() -> None:
    """As in a singular value decomposition: the second factor is cut for all blocks."""
    graph: dict[Any, list[Any]] = {"factor": [("q", at) for at in range(32)]}
    for at in range(32):
        graph |= {("x", at): [], ("q", at): [("x", at)], ("slice", at): ["factor"]}
        graph[("u", at)] = [("x", at), ("slice", at)]
    graph["end"] = [("u", at) for at in range(32)]
    plan = plan_clusters(graph, ["end"], [1, 1])
    work = Counter({(each.level, each.partition): len(each.keys) for each in plan.clusters})
    for level in {level for level, _ in work}:
        assert abs(work[level, 0] - work[level, 1]) <= 2, "no partition waits for the other"
    assert plan.ntasks <= 16


def test_held_values_stay_where_they_are() -> None:
    held: dict[Key, int] = {("x", at): at * 7 % 2 for at in range(32)}
    graph: dict[Any, list[Any]] = {("s", at): [("x", at)] for at in range(32)}
    graph["sum"] = [("s", at) for at in range(32)]
    for cluster in plan_clusters(graph, ["sum"], [1, 1], held=held).clusters:
        assert all(held[key] == cluster.partition for key in cluster.direct)


def crossing(plan: Plan) -> set[Any]:
    """Return the values that go from one partition to another."""
    return {
        key
        for cluster in plan.clusters
        for output in cluster.inputs
        if plan.clusters[output.cluster].partition != cluster.partition
        for key in output.keys
    }


def test_edges_of_chunks_cross_and_not_chunks() -> None:
    """As in `map_overlap` of columns: each chunk needs slices of its neighbours, and itself."""
    held: dict[Key, int] = {("x", at): at % 2 for at in range(32)}
    graph: dict[Any, list[Any]] = {("column", at): [("x", at)] for at in range(32)}
    for at in range(1, 31):
        graph[("low", at)], graph[("high", at)] = [("column", at - 1)], [("column", at + 1)]
        graph |= {("same", at): [("column", at)]}
        graph[("joined", at)] = [("low", at), ("same", at), ("high", at)]
        graph[("sum", at)] = [("joined", at)]
    graph["end"] = [("sum", at) for at in range(1, 31)]
    whole = {key for key in graph if key[0] == "same"}
    plan = plan_clusters(graph, ["end"], [1, 1], held=held, aliases=whole)
    crossed = Counter(key[0] for key in crossing(plan))
    assert crossed["low"] >= 28 and crossed["high"] >= 28
    assert crossed["same"] <= 2, "those at both ends, of which the graph shows no other slice"
    assert crossed["column"] == 0


def test_what_needs_one_value_inside_of_a_task_is_made_there() -> None:
    """As in a running sum: the last item of each chunk crosses, not the chunk."""
    tasks: dict[Key, Any] = {("total", 0): Task(("total", 0), int)}
    for at in range(32):
        last = Task(None, operator.getitem, TaskRef(("x", at)), -1)
        tasks[("x", at)] = Task(("x", at), list, TaskRef(("held", at)))
        tasks[("total", at + 1)] = Task(("total", at + 1), max, TaskRef(("total", at)), last)
    held: dict[Any, int] = {("held", at): at * 7 % 2 for at in range(32)}
    tasks = separated(tasks, {("total", 32)})  # one that stays as it is
    plan = plan_clusters(needs(tasks), [("total", 31)], [1, 1], held=held)
    assert {key[0] for key in crossing(plan)} == {"argument"}
    assert plan.ntasks == 3
    found = dask.get(tasks | {key: DataNode(key, (3, key[1])) for key in held}, [("total", 32)])
    assert found == (31,)


def test_after_single_tasks_all_partitions_work() -> None:
    graph: dict[Any, list[Any]] = {("barrier", at): [] for at in range(32)}
    graph |= {("after", at): [("barrier", at)] for at in range(32)}
    graph["end"] = [("after", at) for at in range(32)]
    alone = {("barrier", at) for at in range(32)}
    plan = plan_clusters(graph, ["end"], [1, 1], alone=alone)
    assert partitions_by_level(plan)[32:] == [(1, 0, 16), (1, 1, 16), (2, 0, 1)]


def test_annotations_of_single_tasks_go_along() -> None:
    tasks: dict[Key, Any] = {("x", at): Task(("x", at), int) for at in range(8)}
    tasks["end"] = Task("end", max, *map(TaskRef, tasks))
    given: dict[Key, Any] = {("x", 3): {"GPU": 1}}
    annotations: dict[str, dict[Key, Any]] = {
        "resources": given,
        "workers": {("x", 3): ["w9"]},
        "retries": {("x", 3): 2},
    }
    plan = plan_clusters(needs(tasks), ["end"], [1, 1], alone=given)
    (layer,) = build(plan, tasks, "token", ["w0", "w1"]).layered(annotations).layers.values()
    found = {
        kind: {key: at for key in layer if (at := value(key))}
        for kind, value in (layer.annotations or {}).items()
    }
    assert found["resources"] == given
    assert found["retries"] == {("x", 3): 2}
    assert found["workers"].pop(("x", 3)) == ["w9"]
    assert found["workers"].keys() == found["allow_other_workers"].keys()
    assert [*found["workers"].values()] == [["w0"], ["w1"]]


def test_values_of_unknown_place_do_not_gather_their_users() -> None:
    graph: dict[Any, list[Any]] = {("s", at): [("x", at)] for at in range(32)}
    graph["sum"] = [("s", at) for at in range(32)]
    plan = plan_clusters(graph, ["sum"], [1, 1])
    assert partitions_by_level(plan) == [(0, 0, 16), (0, 1, 16), (1, 0, 1)]


def test_a_long_chain_loads_in_all_partitions() -> None:
    graph: dict[Any, list[Any]] = {0: []}
    for at in range(1, 5000):
        graph |= {("load", at): [], at: [at - 1, ("load", at)]}
    loads = Counter[int]()
    for cluster in plan_clusters(graph, [4999], [1, 1]).clusters:
        loads[cluster.partition] += sum(isinstance(key, tuple) for key in cluster.keys)
    assert abs(loads[0] - loads[1]) <= 2


def test_a_circle_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="need each other"):
        plan_clusters({"a": ["b"], "b": ["a"]}, ["a"], [1])


def test_there_must_be_a_partition() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one partition"):
        plan_clusters({"a": []}, ["a"], [0])
