r"""Costs of the parts of a run, and the time of one pass of tasks: the basis of the model.

A pass of tasks over the data takes

.. math:: t_0 + N g + \max(N (s - g), \lceil N / C \rceil w)

with :math:`N` tasks of :math:`w` seconds of work each on :math:`C` cores; :math:`t_0` is the round
trip of one empty task, :math:`s` the scheduler's time per task, and :math:`g` the part of it that
cannot overlap with work, because a task must be sent before it can start.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from spliter_experiments.evaluation.plan import FLOAT_BYTES, PlannedRun
from spliter_experiments.evaluation.schema import Scenario

MERGED_AT_ONCE = 16
"""Number of partial results that one task merges."""


@dataclass(frozen=True)
class Curve:
    """A cost as a function of size, interpolated and extrapolated by power laws.

    Parameters
    ----------
    sizes, values : tuple of float
        Ascending sizes and the cost measured at each; positive, at least two.

    Examples
    --------
    >>> squares = Curve((1.0, 10.0, 100.0), (2.0, 200.0, 20_000.0))
    >>> round(squares.at(5), 6), round(squares.at(1000))
    (50.0, 2000000)
    """

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, size: float) -> float:
        """Return the cost at a size."""
        place = bisect.bisect_left(self.sizes, size, 1, len(self.sizes) - 1)
        left, right = self.sizes[place - 1], self.sizes[place]
        low, high = self.values[place - 1], self.values[place]
        power = math.log(high / low) / math.log(right / left)
        return float(low * (max(size, 1.0) / left) ** power)


@dataclass(frozen=True)
class NeighborCosts:
    """Costs of the kernels of nearest neighbours.

    Parameters
    ----------
    build : Curve
        Seconds to build a tree, by number of points.
    ask : Curve
        Seconds of one query, by the points of the tree.
    merge : float
        Seconds to merge one tree's neighbours of one query.
    """

    build: Curve
    ask: Curve
    merge: float


@dataclass(frozen=True)
class Costs:
    """Costs of the parts of a run.

    Parameters
    ----------
    round_trip : float
        Seconds from submitting one empty task to its result.
    task : float
        Seconds of the scheduler per task.
    telling : float
        Part of `task` that does not overlap with work.
    bandwidth : float
        Bytes per second between two nodes.
    per_block, per_row : float
        Seconds of the kernel per block and per row; 0 for apps with another cost function.
    split_block, pass_block : float
        Seconds of SplIter per block: of a split, and of each pass.
    neighbors : NeighborCosts or None
        For nearest neighbours only.
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

    def kernel(self, rows: float) -> float:
        """Return the kernel's seconds on a block of `rows` rows."""
        return self.per_block + self.per_row * rows


def pass_seconds(costs: Costs, tasks: int, cores: int, work: float) -> float:
    """Return the seconds of a pass of equal tasks, without merging their results.

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
    """Return the seconds of a rechunk: a task per block, and each node's transfer of its data."""
    if run.blocks == run.cores:
        return 0.0
    nbytes = run.rows * scenario.parameters.dims * FLOAT_BYTES / run.nodes
    moved = nbytes * (run.nodes - 1) / run.nodes
    return run.blocks * costs.task + moved / costs.bandwidth
