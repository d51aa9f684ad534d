r"""What the parts of runs cost, and what a pass of tasks comes to: the ground of the model.

A pass of tasks over the data takes

.. math:: t_0 + N g + \max(N (s - g), \lceil N / C \rceil w)

with :math:`N` tasks of :math:`w` seconds of work each on :math:`C` cores; :math:`t_0` is the time
of one empty task there and back, :math:`s` what the scheduler takes for a task, and :math:`g` that
part of it that no work hides, because the task has to be told before it can start.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from spliter_experiments.evaluation.plan import FLOAT_BYTES, PlannedRun
from spliter_experiments.evaluation.schema import Scenario

MERGED_AT_ONCE = 16
"""Partial results that one task merges."""


@dataclass(frozen=True)
class Curve:
    """A cost by a size: a power law between those that were measured, and beyond them.

    Parameters
    ----------
    sizes, values : tuple of float
        Ascending sizes, and what was measured; positive, two at least.

    Examples
    --------
    >>> squares = Curve((1.0, 10.0, 100.0), (2.0, 200.0, 20_000.0))
    >>> round(squares.at(5), 6), round(squares.at(1000))
    (50.0, 2000000)
    """

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, size: float) -> float:
        """Return the cost of a size."""
        place = bisect.bisect_left(self.sizes, size, 1, len(self.sizes) - 1)
        left, right = self.sizes[place - 1], self.sizes[place]
        low, high = self.values[place - 1], self.values[place]
        power = math.log(high / low) / math.log(right / left)
        return float(low * (max(size, 1.0) / left) ** power)


@dataclass(frozen=True)
class NeighborCosts:
    """What the kernels of nearest neighbours cost.

    Parameters
    ----------
    build : Curve
        Seconds to build a tree, by its points.
    ask : Curve
        Seconds of one query, by the points of the tree.
    merge : float
        Seconds to merge the neighbours that one tree has for one query.
    """

    build: Curve
    ask: Curve
    merge: float


@dataclass(frozen=True)
class CascadeCosts:
    """What the steps of a cascade cost, and how many rows they leave.

    Parameters
    ----------
    train : Curve
        Seconds to train on a part of the data, by its rows.
    merge : Curve
        Seconds to train on rows that parts have handed over, by their number.
    kept, support : Curve
        Rows that a part hands over, by those it is about: with those near its margins, and
        support vectors alone.
    look : float
        Seconds to see what a solution lacks of a row, for each of its support vectors.
    iterations : int
        How many it took.
    """

    train: Curve
    merge: Curve
    kept: Curve
    support: Curve
    look: float
    iterations: int


@dataclass(frozen=True)
class Costs:
    """What the parts of a run cost.

    Parameters
    ----------
    round_trip : float
        Seconds of one empty task, there and back.
    task : float
        Seconds that the scheduler takes for a task.
    telling : float
        The part of it that no work hides.
    bandwidth : float
        Bytes per second from one node to another.
    per_block, per_row : float
        Seconds of the kernel: for a block however small, and for each row. 0 for apps whose
        kernels cost otherwise.
    split_block, pass_block : float
        Seconds of SplIter for each block: to split, and in each pass.
    neighbors : NeighborCosts or None
        Those of nearest neighbours.
    cascade : CascadeCosts or None
        Those of a cascade.
    """

    round_trip: float
    task: float
    telling: float
    bandwidth: float
    per_block: float
    per_row: float
    split_block: float = 0.0
    pass_block: float = 0.0
    neighbors: NeighborCosts | None = None
    cascade: CascadeCosts | None = None

    def kernel(self, rows: float) -> float:
        """Return the seconds of the kernel on one block."""
        return self.per_block + self.per_row * rows


def pass_seconds(costs: Costs, tasks: int, cores: int, work: float) -> float:
    """Return the seconds of one pass of equal tasks, without merging what they return.

    Examples
    --------
    >>> costs = Costs(0.01, 0.001, 0.0002, 1e9, 0, 0)
    >>> pass_seconds(costs, tasks=10, cores=10, work=1)
    1.012
    >>> pass_seconds(costs, tasks=1000, cores=10, work=0.001)
    1.01
    """
    hidden = max(tasks * (costs.task - costs.telling), math.ceil(tasks / cores) * work)
    return round(costs.round_trip + tasks * costs.telling + hidden, 12)


def rechunk_seconds(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the seconds to rechunk: a task per block, and the data of a node over its link."""
    if run.blocks == run.cores:
        return 0.0
    nbytes = run.rows * scenario.parameters.dims * FLOAT_BYTES / run.nodes
    moved = nbytes * (run.nodes - 1) / run.nodes
    return run.blocks * costs.task + moved / costs.bandwidth
