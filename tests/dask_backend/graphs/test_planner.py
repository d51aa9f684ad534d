"""Clusters of any graph give what the graph gives: every task once, no circles, no value kept."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.typing import Key
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError
from spliter_backends.dask.graphs.coarse import build
from spliter_backends.dask.graphs.planner import ALONE, Plan, depth_first, plan_clusters
from spliter_backends.dask.internals.graphs import constant_size, ordered_dependencies

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
        constants = {key for key, node in self.tasks.items() if constant_size(node) >= 0}
        return plan_clusters(
            ordered_dependencies(self.tasks),
            self.wanted,
            self.partitions,
            held={key: at for key, at in self.held.items() if at >= 0},
            constants=constants,
            floating=(self.floating & constants) - {*self.wanted},
            alone=self.alone - constants,
        )


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
    assert sum(constant_size(node) < 0 for node in coarse.tasks.values()) == plan.ntasks


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
    floating = {key for key in placed if constant_size(problem.tasks[key]) >= 0}
    assert all(placed[key] == 1 for key in placed.keys() - (problem.floating & floating))


class Live:
    """A value that counts how many of its kind there are."""

    now: ClassVar[int] = 0

    def __init__(self) -> None:
        type(self).now += 1

    def __del__(self) -> None:
        type(self).now -= 1


@given(problems())
def test_values_are_dropped_after_their_last_use(problem: Problem) -> None:
    most: dict[Key, int] = {}

    def make(key: Key, *_: Any) -> Live:
        most[key] = Live.now
        return Live()

    dependencies = ordered_dependencies(problem.tasks)
    tasks = {key: Task(key, make, key, *map(TaskRef, needs)) for key, needs in dependencies.items()}
    tasks.update({key: Task(key, make, key) for key in problem.held})
    # One partition, so one cluster: what is live is what later tasks use.
    plan = plan_clusters(ordered_dependencies(tasks), problem.wanted, [1])
    (cluster,) = plan.clusters
    coarse = build(plan, tasks, "token", ["w"])
    result = dask.get(coarse.tasks, coarse.wanted)
    for at, key in enumerate(cluster.keys):
        used = {n for later in cluster.keys[at:] for n in tasks[later].dependencies}
        assert most[key] == len({*cluster.keys[:at]} & (used | {*problem.wanted}))
    assert Live.now == len(problem.wanted)
    del result
    assert Live.now == 0


class Counted:
    """A key that counts how often it is hashed, so how often the planner uses it."""

    used: ClassVar[int] = 0

    def __init__(self, name: object) -> None:
        self.name = name

    def __hash__(self) -> int:
        type(self).used += 1
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and self.name == other.name


def normalised(chunks: int) -> dict[Any, list[Any]]:
    """Each chunk less the mean of all."""
    key = {name: Counted(name) for name in ("mean", "sum")}
    x, s, d = ([Counted((kind, at)) for at in range(chunks)] for kind in "xsd")
    graph: dict[Any, list[Any]] = {key["sum"]: d, key["mean"]: s}
    for at in range(chunks):
        graph |= {x[at]: [], s[at]: [x[at]], d[at]: [x[at], key["mean"]]}
    return graph


def steps(graph: Mapping[Any, Sequence[Any]]) -> int:
    Counted.used = 0
    plan_clusters(graph, [next(iter(graph))], [2, 2])
    return Counted.used


def test_planning_is_linear() -> None:
    assert steps(normalised(8000)) <= 2.05 * steps(normalised(4000))
    assert steps(normalised(8000)) <= 50 * (3 + 5) * 8000  # tasks and dependencies


def partitions_by_level(plan: Plan) -> list[tuple[int, int, int]]:
    return [(each.level, each.partition, len(each.keys)) for each in plan.clusters]


def test_a_value_for_all_delays_no_partition() -> None:
    graph = normalised(32)
    plan = plan_clusters(graph, [next(iter(graph))], [1, 1])
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
        depth_first({"a": ["b"], "b": ["a"]}, ["a"])


def test_there_must_be_a_partition() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one partition"):
        plan_clusters({"a": []}, ["a"], [0])
