r"""Group the tasks of a graph into clusters: tasks whose inputs lie in one partition, run as one.

Pure functions on task graphs given as dependencies; no engine, no client, no data. Five steps::

    x0  x1 | x2  x3      roots in depth-first order, cut into as many runs as there are partitions
     |   |    |   |
    s0  s1 | s2  s3      a task goes to the partition of its inputs             level 0
      \ |    |  /
       t0    t1                                                                 level 0
         \  /
          u              the inputs lie in two partitions: one of them crosses   level 1

1. :func:`depth_first` orders the tasks so that values are used soon after they are made. Values
   that exist are cut in this order into as many runs as their location has partitions.
2. A task goes to the partition with the largest sum, over its inputs, of 1 / (number of tasks that
   use the input), or of 2 if the input was in memory before. Constants pull no task, nor do values
   that are used by `MANY` tasks and by more than a partition has sources: such a value is for all,
   like a mean. Among equal partitions the task takes the one in which its level is lowest.
3. A task that nothing pulls is a root. Those of one depth are cut into equal runs, as many as there
   are partitions; a root whose first user needs no other root, but a value that is placed already,
   joins that one as long as its partition has fewer roots than its share.
4. The **level** of a task is the highest of its inputs, where an input that is used in another
   partition than its own, or in several, counts one more. A task of which the only user waits for
   nothing but values for all partitions runs with that user, so that its value is not kept.
5. The tasks of one partition and level are a **cluster**. Clusters cannot form a circle: a value
   that leaves its partition raises the level of all its users.

All steps take time linear in the tasks and their dependencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from dask.typing import Key

from spliter import InvalidArgumentError

ALONE: Final = -1
"""Partition of tasks that stay single tasks."""


@dataclass(frozen=True)
class Output:
    """Values of a cluster that the same other clusters use; they travel as one.

    Parameters
    ----------
    cluster : int
        Index of the cluster that makes them.
    keys : tuple of hashable
        Their keys, in the order in which they are made.
    """

    cluster: int
    keys: tuple[Key, ...]


@dataclass
class Cluster:
    """Tasks that run as one.

    Parameters
    ----------
    partition : int
        Partition in which they run; `ALONE` for a task that stays a single one.
    level : int
        Number of times that values have crossed partitions before.
    keys : list of hashable
        Tasks in depth-first order.
    inputs : list of Output
        Values of other clusters.
    direct : list of hashable
        Keys of single tasks, or of values that no task of the graph makes.
    outputs : list of Output
        Values that other clusters use, or that are wanted.
    singles : list of hashable
        Values that single tasks use: each becomes a task of its own.
    """

    partition: int
    level: int
    keys: list[Key] = field(default_factory=list)
    inputs: list[Output] = field(default_factory=list)
    direct: list[Key] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    singles: list[Key] = field(default_factory=list)

    @property
    def ntasks(self) -> int:
        """Number of tasks: the cluster, and each of its outputs if there are several."""
        outputs = len(self.outputs) + len(self.singles)
        return 1 + (outputs if outputs > 1 or self.singles else 0)


@dataclass(frozen=True)
class Plan:
    """Clusters of a graph, and where the wanted values come from.

    Parameters
    ----------
    clusters : list of Cluster
        In an order in which they can run.
    wanted : list of Output
        Wanted values that clusters make.
    direct : list of hashable
        Wanted values that single tasks make.
    """

    clusters: list[Cluster]
    wanted: list[Output]
    direct: list[Key]

    @property
    def ntasks(self) -> int:
        """Number of tasks that run the clusters."""
        return sum(cluster.ntasks for cluster in self.clusters)


def plan_clusters(
    dependencies: Mapping[Key, Sequence[Key]],
    wanted: Collection[Key],
    partitions: Sequence[int],
    *,
    held: Mapping[Key, int] | None = None,
    constants: Collection[Key] = (),
    floating: Collection[Key] = (),
    alone: Collection[Key] = (),
) -> Plan:
    """Group the tasks of a graph into clusters.

    Parameters
    ----------
    dependencies : mapping of hashable to sequence of hashable
        The keys that each task needs. A key that is no task is a value that exists.
    wanted : collection of hashable
        Keys of tasks whose values are wanted.
    partitions : sequence of int
        Number of partitions at each location; partitions are numbered through all of them.
    held : mapping of hashable to int, optional
        Locations of existing values, as far as they are known. Those at one location are cut, in
        the order in which tasks use them, into as many runs as it has partitions.
    constants : collection of hashable
        Tasks without dependencies that are values: no task goes where they are.
    floating : collection of hashable
        Small constants: they are copied to every cluster that uses them.
    alone : collection of hashable
        Tasks that stay single tasks.

    Returns
    -------
    Plan

    Raises
    ------
    InvalidArgumentError
        If tasks depend on each other in a circle, or there is no partition.

    Examples
    --------
    >>> chunks = {f"x{n}": [] for n in range(4)} | {f"s{n}": [f"x{n}"] for n in range(4)}
    >>> plan = plan_clusters(chunks | {"sum": ["s0", "s1", "s2", "s3"]}, ["sum"], [1, 1])
    >>> for cluster in plan.clusters:
    ...     print(cluster.partition, cluster.level, cluster.keys)
    0 0 ['x0', 's0', 'x1', 's1']
    1 0 ['x2', 's2', 'x3', 's3']
    0 1 ['sum']
    """
    if sum(partitions) < 1:
        raise InvalidArgumentError(f"there must be at least one partition, got {partitions!r}")
    constants, floating, alone = frozenset(constants), frozenset(floating), frozenset(alone)
    order = depth_first(dependencies, wanted)
    placed = _place(order, dependencies, partitions, held or {})
    moving = {
        key: [each for each in dependencies[key] if each not in floating]
        for key in order
        if key not in floating
    }
    partition = _assign(moving, sum(partitions), placed, constants, alone)
    level = _levels(moving, partition)
    places = {key: (partition[key], level[key]) for key in moving}
    return _group(order, dependencies, wanted, places, floating, alone)


def _place(
    order: Sequence[Key],
    dependencies: Mapping[Key, Sequence[Key]],
    partitions: Sequence[int],
    held: Mapping[Key, int],
) -> dict[Key, int]:
    """Return the partition of each existing value."""
    at_location: list[dict[Key, None]] = [{} for _ in partitions]
    for key in order:
        for needed in dependencies[key]:
            if needed in held and needed not in dependencies:
                at_location[held[needed]][needed] = None
    first = [0, *accumulate(partitions)]
    return {
        key: first[location] + at * partitions[location] // len(keys)
        for location, keys in enumerate(at_location)
        for at, key in enumerate(keys)
    }


def _assign(
    dependencies: Mapping[Key, Sequence[Key]],
    partitions: int,
    placed: Mapping[Key, int],
    constants: frozenset[Key],
    alone: frozenset[Key],
) -> dict[Key, int]:
    """Return the partition of each task, given the tasks in depth-first order."""
    depth: dict[Key, int] = {}
    for key, needs in dependencies.items():
        made = [depth[each] for each in needs if each in depth]
        if key not in constants:
            depth[key] = 1 + max(made, default=-1)
    users = Counter(
        needed
        for needs in dependencies.values()
        for needed in needs
        if needed in dependencies or needed in placed
    )
    sources = len(placed) + sum(at == 0 for at in depth.values())
    many = max(MANY, sources / partitions)
    weight = {
        key: 0.0
        if key in constants or number >= many
        else (IN_MEMORY if key in placed else 1 / number)
        for key, number in users.items()
    }
    run = _runs(dependencies, depth, partitions, weight, alone)
    room = Counter(run.values())
    places: dict[Key, int] = dict(placed)
    level = dict.fromkeys(placed, 0)

    def level_at(key: Key, at: int) -> int:
        made = [each for each in dependencies[key] if each in level]
        return max((level[each] + (places[each] != at) for each in made), default=0)

    def place(key: Key, at: int) -> None:
        for needed in dependencies[key]:
            if needed in constants and needed not in places:
                places[needed], level[needed] = max(at, 0), 0
        places[key], level[key] = at, level_at(key, at)

    for key, needs in dependencies.items():
        if key in constants:
            if key not in users:
                place(key, 0)
            continue  # until a task uses it
        if key in run:
            if not weight.get(key):
                place(key, run[key])
            continue  # until a task uses it
        pull: dict[int, float] = {}
        waiting = []
        for needed in needs:
            if needed in run and needed not in places:
                waiting.append(needed)
            elif needed in places and places[needed] != ALONE:
                at = places[needed]
                pull[at] = pull.get(at, 0.0) + weight[needed]
        joined = max(pull, key=pull.__getitem__, default=ALONE)
        for needed in waiting:
            at = run[needed]
            if len(waiting) == 1 and pull.get(joined) and room[joined] > 0:
                at = joined
            room[at] -= 1
            place(needed, at)
            pull[at] = pull.get(at, 0.0) + weight[needed]
        most = max(pull.values(), default=0.0)
        best = [at for at, each in pull.items() if each >= most - ROUNDING] or [0]
        place(key, ALONE if key in alone else min(best, key=lambda at: level_at(key, at)))
    return places


def _runs(
    dependencies: Mapping[Key, Sequence[Key]],
    depth: Mapping[Key, int],
    partitions: int,
    weight: Mapping[Key, float],
    alone: frozenset[Key],
) -> dict[Key, int]:
    """Return the partitions of tasks that no input pulls: those of one depth in equal runs."""
    by_depth: dict[int, list[Key]] = {}
    for key, at in depth.items():
        if key not in alone and not any(weight.get(each) for each in dependencies[key]):
            by_depth.setdefault(at, []).append(key)
    return {
        key: at * partitions // len(keys)
        for keys in by_depth.values()
        for at, key in enumerate(keys)
    }


def _levels(
    dependencies: Mapping[Key, Sequence[Key]], partition: Mapping[Key, int]
) -> dict[Key, int]:
    """Return the level of each task."""
    user: dict[Key, Key] = {}
    several: set[Key] = set()  # users
    common: set[Key] = set()  # users in several partitions
    for key, needs in dependencies.items():
        for needed in needs:
            other = user.setdefault(needed, key)
            if other != key:
                several.add(needed)
                if partition[other] != partition[key]:
                    common.add(needed)
    leaving = common | {
        needed
        for needed, other in user.items()
        if partition.get(needed) != partition[other] or partition[other] == ALONE
    }
    level: dict[Key, int] = {}
    for key, needs in dependencies.items():
        level[key] = max((level[n] + (n in leaving) for n in needs if n in level), default=0)
    for key in reversed([*dependencies]):
        # Not earlier than needed, if the only user waits for nothing but values for all.
        fused = key in user and key not in several and key not in leaving
        if fused and all(n == key or n in common for n in dependencies[user[key]]):
            level[key] = level[user[key]]
    return level


def _group(
    order: Sequence[Key],
    dependencies: Mapping[Key, Sequence[Key]],
    wanted: Collection[Key],
    places: Mapping[Key, tuple[int, int]],
    floating: frozenset[Key],
    alone: frozenset[Key],
) -> Plan:
    """Make the clusters, and what travels between them."""
    clusters: dict[Any, Cluster] = {}
    of: dict[Key, Any] = {}
    for key in order:
        if key not in floating:
            at = of[key] = (ALONE, key) if key in alone else places[key]
            clusters.setdefault(at, Cluster(*places[key]))
    # Keys by consumer, for each cluster; single tasks get each value under its own key.
    sent: dict[Any, dict[Any, dict[Key, None]]] = {at: {} for at in clusters}
    singles: dict[Any, dict[Key, None]] = {at: {} for at in clusters}
    direct: dict[Any, dict[Key, None]] = {at: {} for at in clusters}
    copied: dict[Any, dict[Key, None]] = {at: {} for at in clusters}
    for key in order:
        if key in floating:
            continue
        at = of[key]
        for needed in dependencies[key]:
            if needed in floating:
                if needed not in copied[at]:
                    copied[at][needed] = None
                    clusters[at].keys.append(needed)
            elif (there := of.get(needed)) is None or needed in alone:
                direct[at][needed] = None
            elif there == at:
                pass
            elif key in alone:
                singles[there][needed] = None
            else:
                sent[there].setdefault(at, {})[needed] = None
        clusters[at].keys.append(key)
    for key in wanted:
        if key in of and key not in alone:
            sent[of[key]].setdefault(WANTED, {})[key] = None
    ordered = sorted(clusters.items(), key=lambda item: (item[1].level, item[1].partition))
    number = {at: index for index, (at, _) in enumerate(ordered)}
    results: list[Output] = []
    for at, cluster in ordered:
        cluster.direct, cluster.singles = [*direct[at]], [*singles[at]]
        outputs: dict[tuple[Key, ...], Output] = {}
        for consumer, keys in sent[at].items():
            output = outputs.setdefault((*keys,), Output(number[at], (*keys,)))
            (results if consumer is WANTED else clusters[consumer].inputs).append(output)
        cluster.outputs = [*outputs.values()]
    direct_results = [key for key in wanted if key in of and key in alone]
    return Plan([cluster for _, cluster in ordered], results, direct_results)


WANTED: Final = object()
"""Consumer of wanted values."""

MANY: Final = 16
"""Tasks from which on a value that they use is for all: it pulls none of them."""

IN_MEMORY: Final = 2.0
"""Weight of a value that is in memory: it is to stay where it is, whoever else uses it."""

ROUNDING: Final = 1e-9
"""Sums of fractions that differ by less are equal."""


def depth_first(dependencies: Mapping[Key, Sequence[Key]], wanted: Collection[Key]) -> list[Key]:
    """Order the keys that `wanted` needs: each after those that it depends on, as late as possible.

    Parameters
    ----------
    dependencies : mapping of hashable to sequence of hashable
        The keys that each task needs, in the order in which they are to be made. Keys that are in
        no task are left out.
    wanted : collection of hashable

    Returns
    -------
    list of hashable

    Raises
    ------
    InvalidArgumentError
        If tasks depend on each other in a circle.

    Examples
    --------
    >>> depth_first({"a": [], "b": [], "c": ["a"], "d": ["c", "b"]}, ["d"])
    ['a', 'c', 'b', 'd']
    """
    order: list[Key] = []
    finished: set[Key] = set()
    started: set[Key] = set()
    for first in wanted:
        stack = [first]
        while stack:
            key = stack[-1]
            if key in finished or key not in dependencies:
                stack.pop()
                continue
            if key in started:
                stack.pop()
                finished.add(key)
                order.append(key)
                continue
            started.add(key)
            for needed in reversed(dependencies[key]):
                if needed in dependencies and needed not in finished:
                    if needed in started:  # and not finished: it waits for `key`
                        raise InvalidArgumentError(
                            f"the tasks {needed!r} and {key!r} need each other; a graph must not "
                            "have circles"
                        )
                    stack.append(needed)
    return order
