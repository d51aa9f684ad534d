"""Time what `partitioned()` does with a graph before it runs: the cost per task of Dask.

    python benchmarks/plan_graph.py 10000 100000 1000000
    python benchmarks/plan_graph.py 1000000 --run ours

The graph subtracts the mean of all chunks from each, squares and sums. Prints, in microseconds of
CPU time per task of the graph, what Dask takes to make the graph, and what `partitioned()` takes to
plan and to pickle the clusters; with ``--run`` instead the seconds from start to result on two
workers. Then the peak memory of this process, in which the scheduler runs too.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import dask.array as da
from dask.core import flatten
from distributed import Client, LocalCluster

from spliter_backends.dask.graphs.coarse import build
from spliter_backends.dask.graphs.partitioned import Partitioned
from spliter_backends.dask.internals.graphs import final_expression, tasks_of

TASKS_PER_CHUNK = 3.7
"""Of the program, once Dask has fused what follows each other."""


def normalised(tasks: int) -> Any:
    """Return a lazy array whose graph has about so many tasks."""
    x = da.ones((round(tasks / TASKS_PER_CHUNK), 8), chunks=(1, 8))
    return ((x - x.mean(axis=0)) ** 2).sum(axis=0)


def measure(ours: Partitioned, lazy: Any) -> str:
    """Return what it costs to make, plan and build the graph."""
    start = time.process_time()
    expr = final_expression([lazy])
    tasks, _ = tasks_of(expr)
    made = time.process_time()
    planned: Any = ours._plan(ours.client, tasks, [*flatten(expr.__dask_keys__())], {})
    middle = time.process_time()
    build(planned.plan, planned.tasks, "token", planned.workers)
    seconds = (made - start, middle - made, time.process_time() - middle)
    number = len(tasks)
    costs = [f"{1e6 * each / number:.1f}" for each in seconds]
    return f"{number} tasks: {costs[0]} us made, {costs[1]} planned, {costs[2]} built"


def run(ours: Partitioned, lazy: Any, way: str) -> str:
    """Return how long the graph takes."""
    start = time.perf_counter()
    lazy.compute(scheduler=ours if way == "ours" else ours.client)
    return f"{way}: {time.perf_counter() - start:.1f} s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("tasks", type=int, nargs="+", help="of the graphs, about")
    parser.add_argument("--run", choices=("ours", "dask"), help="run the graphs")
    options = parser.parse_args()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        ours = Partitioned(client, None)
        for tasks in options.tasks:
            lazy = normalised(tasks)
            line = run(ours, lazy, options.run) if options.run else measure(ours, lazy)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{line}, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
