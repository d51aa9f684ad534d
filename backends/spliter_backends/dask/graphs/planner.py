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
2. A task goes to the partition with the largest sum, over its inputs, of what would have to cross:
   size / (number of tasks that need the input and something else), or 2 if the input was in memory
   before. A task that needs nothing else goes where its input is. Sizes are those of one chunk, as
   far as the graph shows: where several tasks use a value, each of them takes a share of it (a
   slice at its edge, for instance), and only an alias all of it. Constants pull no task, nor do
   values of single tasks, nor those that are used by `MANY` tasks and by more than a partition has
   sources: such a value is for all, like a mean. Among equal partitions the task takes the one in
   which its level is lowest.
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final

from dask.typing import Key

from spliter import InvalidArgumentError
from spliter_backends.dask.graphs.plan import ALONE, Cluster, Output, Plan

NOWHERE: Final = -2
"""Partition of values that have none yet, or that are at an unknown place."""

MANY: Final = 16
"""Tasks from which on a value that they use is for all: it pulls none of them."""

IN_MEMORY: Final = 2.0
"""Weight of a value that is in memory: it is to stay where it is, whoever else uses it."""

ROUNDING: Final = 1e-9
"""Sums of fractions that differ by less are equal."""


def plan_clusters(
    dependencies: Mapping[Key, Collection[Key]],
    wanted: Collection[Key],
    partitions: Sequence[int],
    *,
    held: Mapping[Key, int] | None = None,
    constants: Collection[Key] = (),
    floating: Collection[Key] = (),
    alone: Collection[Key] = (),
    aliases: Collection[Key] = (),
) -> Plan:
    """Group the tasks of a graph into clusters.

    Parameters
    ----------
    dependencies : mapping of hashable to collection of hashable
        The keys that each task needs, in any order. A key that is no task is a value that exists.
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
    aliases : collection of hashable
        Tasks that return what they need.

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
    graph = _Graph(dependencies, frozenset(floating))
    order = depth_first(graph.needs, graph.numbers(wanted))
    at_location = {graph.number[key]: at for key, at in (held or {}).items() if key in graph.number}
    places = _place(graph, order, partitions, at_location)
    values, single, whole = ({*graph.numbers(keys)} for keys in (constants, alone, aliases))
    _assign(graph.needs, order, sum(partitions), places, values, single, whole)
    levels = _levels(graph.needs, order, places)
    locations = [at for at, number in enumerate(partitions) for _ in range(number)]
    return _group(graph, order, wanted, places, levels, locations)


class _Graph:
    """Numbers for the tasks of a graph and for existing values: lists of them are fast.

    Attributes
    ----------
    keys : list of hashable
        Keys of the tasks, then of the existing values.
    number : dict
        Number of each key.
    needs : list of list of int
        What each task needs, in the order of `keys`, without floating tasks.
    copied : dict
        Keys of the floating tasks that a task needs.
    """

    def __init__(
        self, dependencies: Mapping[Key, Collection[Key]], floating: frozenset[Key]
    ) -> None:
        existing = set(chain.from_iterable(dependencies.values())).difference(dependencies)
        self.keys = [*dependencies, *sorted(existing, key=str)]
        self.number = number = {key: at for at, key in enumerate(self.keys)}
        self.needs: list[list[int]] = []
        self.copied: dict[int, list[Key]] = {}
        for at, needed in enumerate(dependencies.values()):
            numbers = [number[key] for key in needed]
            numbers.sort()
            if not floating.isdisjoint(needed):
                self.copied[at] = [self.keys[n] for n in numbers if self.keys[n] in floating]
                numbers = [n for n in numbers if self.keys[n] not in floating]
            self.needs.append(numbers)

    def numbers(self, keys: Collection[Key]) -> list[int]:
        """Return the numbers of those keys that are in the graph."""
        return [self.number[key] for key in keys if key in self.number]


def _place(
    graph: _Graph, order: Sequence[int], partitions: Sequence[int], held: Mapping[int, int]
) -> list[int]:
    """Return the partitions of values: so far of those that exist, in the order of their use."""
    at_location: list[dict[int, None]] = [{} for _ in partitions]
    for task in order if held else ():
        for needed in graph.needs[task]:
            if needed in held:
                at_location[held[needed]][needed] = None
    places = [NOWHERE] * len(graph.keys)
    first = [0, *accumulate(partitions)]
    for location, values in enumerate(at_location):
        for at, value in enumerate(values):
            places[value] = first[location] + at * partitions[location] // len(values)
    return places


def _assign(
    needs: Sequence[Sequence[int]],
    order: Sequence[int],
    partitions: int,
    places: list[int],
    constants: Collection[int],
    alone: Collection[int],
    aliases: Collection[int],
) -> None:
    """Set the partition of each task."""
    depth = [-1] * len(places)
    users = [0] * len(places)
    for task in order:
        deepest = -1
        for needed in needs[task]:
            users[needed] += 1
            deepest = max(deepest, depth[needed])
        if task not in constants:
            depth[task] = deepest + 1
    held = len(places) - places.count(NOWHERE)
    sources = held + sum(depth[task] == 0 for task in order)
    many = max(MANY, sources / partitions)
    weight = _weights(needs, order, users, many, aliases)
    for value in range(len(needs), len(places)):
        weight[value] = IN_MEMORY if places[value] != NOWHERE and users[value] < many else 0.0
    for value in (*constants, *alone):
        weight[value] = 0.0
    run = _runs(needs, order, depth, partitions, weight, alone)
    room = Counter(run.values())
    level = [0] * len(places)

    def level_at(task: int, at: int) -> int:
        made = [n for n in needs[task] if places[n] != NOWHERE]
        return max([level[n] + (places[n] != at) for n in made], default=0)

    def place(task: int, at: int) -> None:
        for needed in needs[task]:
            if places[needed] == NOWHERE and needed in constants:
                places[needed] = max(at, 0)
        places[task], level[task] = at, level_at(task, at)

    for task in order:
        if task in constants or task in run:
            if not weight[task] and places[task] == NOWHERE and (task in run or not users[task]):
                place(task, run.get(task, 0))
            continue  # until a task uses it
        pull: dict[int, float] = {}
        waiting = []
        for needed in needs[task]:
            at = places[needed]
            if at >= 0:
                pull[at] = pull.get(at, 0.0) + weight[needed]
            elif at == NOWHERE and needed in run:
                waiting.append(needed)
        joined = max(pull, key=pull.__getitem__, default=ALONE)
        for needed in waiting:
            at = run[needed]
            if len(waiting) == 1 and pull.get(joined) and room[joined] > 0:
                at = joined
            room[at] -= 1
            place(needed, at)
            pull[at] = pull.get(at, 0.0) + weight[needed]
        most = max(pull.values(), default=0.0) - ROUNDING
        best = [at for at, each in pull.items() if each >= most] or [0]
        place(task, ALONE if task in alone else min(best, key=lambda at: level_at(task, at)))


def _weights(
    needs: Sequence[Sequence[int]],
    order: Sequence[int],
    users: Sequence[int],
    many: float,
    aliases: Collection[int],
) -> list[float]:
    """Return how much each value pulls a task that needs it: what would have to cross for it."""
    size = [1.0] * len(users)
    joining = [0] * len(users)  # users that need something else as well
    for task in order:
        needed = needs[task]
        if needed:
            shares = sum([size[each] / users[each] for each in needed])
            size[task] = size[needed[0]] if task in aliases else min(1.0, shares)
        if len(needed) > 1:
            for each in needed:
                joining[each] += 1
    return [
        one / (others or 1) if 0 < number < many else 0.0
        for one, others, number in zip(size, joining, users, strict=True)
    ]


def _runs(
    needs: Sequence[Sequence[int]],
    order: Sequence[int],
    depth: Sequence[int],
    partitions: int,
    weight: Sequence[float],
    alone: Collection[int],
) -> dict[int, int]:
    """Return the partitions of tasks that no input pulls: those of one depth in equal runs."""
    by_depth: dict[int, list[int]] = {}
    for task in order:
        if depth[task] >= 0 and task not in alone and not any(weight[n] for n in needs[task]):
            by_depth.setdefault(depth[task], []).append(task)
    return {
        task: at * partitions // len(tasks)
        for tasks in by_depth.values()
        for at, task in enumerate(tasks)
    }


def _levels(
    needs: Sequence[Sequence[int]], order: Sequence[int], places: Sequence[int]
) -> list[int]:
    """Return the level of each task."""
    user = [NOWHERE] * len(places)  # the first task that uses a value
    several = bytearray(len(places))  # whether others do
    common = bytearray(len(places))  # whether tasks of several partitions do
    leaving = bytearray(len(places))  # whether a task of another partition does
    for task in order:
        at = places[task]
        for needed in needs[task]:
            first = user[needed]
            if first == NOWHERE:
                user[needed] = task
            else:
                several[needed] = 1
                common[needed] |= places[first] != at
            leaving[needed] |= places[needed] != at or at == ALONE
    for value, is_common in enumerate(common):
        leaving[value] |= is_common
    level = [0] * len(places)
    for task in order:
        level[task] = max([level[n] + leaving[n] for n in needs[task] if n < len(needs)], default=0)
    for task in reversed(order):
        # Not earlier than needed, if the only user waits for nothing but values for all.
        alone = several[task] or leaving[task] or user[task] == NOWHERE
        if not alone and all(n == task or common[n] for n in needs[user[task]]):
            level[task] = level[user[task]]
    return level


def _group(
    graph: _Graph,
    order: Sequence[int],
    wanted: Collection[Key],
    places: Sequence[int],
    levels: Sequence[int],
    locations: Sequence[int],
) -> Plan:
    """Make the clusters, and what travels between them."""
    keys, number = graph.keys, graph.number
    clusters: list[Cluster] = []
    index: dict[tuple[int, int], int] = {}
    of = [NOWHERE] * len(keys)
    for task in order:
        name = places[task], levels[task] if places[task] != ALONE else -task
        of[task] = index.setdefault(name, len(clusters))
        if of[task] == len(clusters):
            clusters.append(Cluster(places[task], levels[task]))
    # Values by consumer, for each cluster; single tasks get each value under its own key.
    sent: list[dict[int, dict[int, None]]] = [{} for _ in clusters]
    singles: list[dict[int, None]] = [{} for _ in clusters]
    direct: list[dict[int, None]] = [{} for _ in clusters]
    copied: list[set[Key]] = [set() for _ in clusters]
    for task in order:
        here = of[task]
        for key in graph.copied.get(task, ()):
            if key not in copied[here]:
                copied[here].add(key)
                clusters[here].keys.append(key)
        for needed in graph.needs[task]:
            there = of[needed]
            if there == here:
                pass
            elif there == NOWHERE or places[needed] == ALONE:
                direct[here][needed] = None
            elif places[task] == ALONE:
                singles[there][needed] = None
            else:
                sent[there].setdefault(here, {})[needed] = None
        clusters[here].keys.append(keys[task])
    made = [key for key in wanted if key in number and of[number[key]] != NOWHERE]
    for key in made:
        if places[number[key]] != ALONE:
            sent[of[number[key]]].setdefault(WANTED, {})[number[key]] = None
    ranked = sorted(
        range(len(clusters)), key=lambda at: (clusters[at].level, clusters[at].partition)
    )
    where = [locations[cluster.partition] for cluster in clusters]
    results: list[Output] = []
    for rank, at in enumerate(ranked):
        cluster = clusters[at]
        cluster.direct = [keys[value] for value in direct[at]]
        cluster.singles = [keys[value] for value in singles[at]]
        near = {user for user in sent[at] if user != WANTED and where[user] == where[at]}
        for output, users in _outputs(rank, sent[at], near, bool(singles[at]), keys):
            cluster.outputs.append(output)
            for user in users:
                (results if user == WANTED else clusters[user].inputs).append(output)
    single = [key for key in made if places[number[key]] == ALONE]
    return Plan([clusters[at] for at in ranked], results, single)


WANTED: Final = -1
"""Consumer of wanted values."""


def _outputs(
    cluster: int,
    sent: Mapping[int, Collection[int]],
    near: Collection[int],
    singles: bool,
    keys: Sequence[Key],
) -> Iterator[tuple[Output, list[int]]]:
    """Yield each output of a cluster, and the clusters that use it, of which some are `near`."""
    users: dict[tuple[int, ...], list[int]] = {}
    for user, values in sent.items():
        users.setdefault((*values,), []).append(user)
    several = len(users) > 1 or singles
    for position, (values, consumers) in enumerate(users.items()):
        stays = several and all(user in near for user in consumers)
        made = tuple(keys[value] for value in values)
        yield Output(cluster, made, position if stays else None), consumers


def depth_first(needs: Sequence[Sequence[int]], wanted: Collection[int]) -> list[int]:
    """Order the tasks that `wanted` needs: each after those that it needs, as late as possible.

    Parameters
    ----------
    needs : sequence of sequence of int
        What each task needs, in the order in which it is to be made. Numbers that are no task's
        are left out.
    wanted : collection of int

    Returns
    -------
    list of int

    Raises
    ------
    InvalidArgumentError
        If tasks depend on each other in a circle.

    Examples
    --------
    >>> depth_first([[], [], [0], [2, 1]], [3])
    [0, 2, 1, 3]
    """
    order: list[int] = []
    state = bytearray(len(needs))  # 1: its needs are on the stack, 2: in `order`
    for first in wanted:
        stack = [first]
        while stack:
            task = stack[-1]
            if state[task]:
                stack.pop()
                if state[task] == 1:
                    state[task] = 2
                    order.append(task)
                continue
            state[task] = 1
            for needed in reversed(needs[task]):
                if needed < len(needs) and state[needed] < 2:
                    if state[needed]:
                        raise InvalidArgumentError(
                            f"tasks number {needed} and {task} need each other; a graph must not "
                            "have circles"
                        )
                    stack.append(needed)
    return order
