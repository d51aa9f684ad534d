"""Time the planner alone, to see that it stays linear in the number of blocks.

    python benchmarks/planner.py --blocks 10000 100000 1000000 --locations 1000

Prints, for blocks with one holder and with three, the best of some runs, and the same per
million blocks: that column must not grow with the number of blocks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from spliter import Location, Placement, plan


def placement_of(blocks: int, locations: int, replicas: int, seed: int) -> Placement:
    """Make a placement with uneven blocks, each at some locations next to each other.

    Parameters
    ----------
    blocks, locations, replicas : int
        How many of each; every block has `replicas` holders.
    seed : int
        Of the random numbers.

    Returns
    -------
    Placement
        The same for the same arguments.
    """
    random = np.random.default_rng(seed)
    first = random.integers(0, locations, blocks)
    holders = (first[:, None] + np.arange(replicas)) % locations
    names = tuple(Location(f"tcp://10.{n // 256}.{n % 256}.1:8786") for n in range(locations))
    return Placement(
        names,
        np.arange(blocks + 1, dtype=np.int64) * replicas,
        holders.ravel(),
        random.integers(1, 2**27, blocks),
    )


def seconds_to_plan(placement: Placement, cores: int, runs: int) -> float:
    """Return the seconds of the fastest of some runs.

    Parameters
    ----------
    placement : Placement
        What to plan.
    cores : int
        Of each location.
    runs : int
        How often.

    Returns
    -------
    float
        Seconds.
    """
    capacities = dict.fromkeys(placement.locations, cores)
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        plan(placement, capacities)
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--locations", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=4, help="of each location")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    row = "{:>9} {:>10} {:>10} {:>16}\n".format
    sys.stdout.write(row("replicas", "blocks", "seconds", "s per 10^6"))
    for replicas in options.replicas:
        for blocks in options.blocks:
            placement = placement_of(blocks, options.locations, replicas, seed=0)
            seconds = seconds_to_plan(placement, options.cores, options.runs)
            per_million = f"{seconds / blocks * 1e6:.2f}"
            sys.stdout.write(row(replicas, blocks, f"{seconds:.3f}", per_million))


if __name__ == "__main__":
    main()
