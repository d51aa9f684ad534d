"""Time three ways to write a loop whose passes need what all tasks of the one before have found.

    python benchmarks/loops.py --steps 50 --rounds 12

The loop is the one of docs/your-own-loop.md: gradient descent on scikit-learn's breast cancer data
in blocks of 7 rows, on two Dask workers of one thread. `gather` has the results of each step
brought here; `ahead` sends ten steps in one message, whose tasks get what those of the step before
have found; `exchange` has one task per partition, and the tasks tell each other. All come to the
same. Medians of interleaved rounds, and how many times as long as `exchange` the others take.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from distributed import Client, LocalCluster, wait
from sklearn.datasets import load_breast_cancer

from spliter import Exchange, Partition, Split, exchanges, gather, split, task

Floats = npt.NDArray[np.float64]
MOST_AHEAD = 10


@task
def gradient(partition: Partition, weights: Floats) -> Floats:
    """Add up the gradient of a logistic regression over pairs of points and labels."""
    result = np.zeros_like(weights)
    for block, labels in partition:
        features = np.column_stack([np.ones(len(block)), block])
        result += features.T @ (1 / (1 + np.exp(-features @ weights)) - labels) / 569
    return result


@task
def descend(partition: Partition, *before: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Make the step that those before lead to; return its weights and this part's gradient."""
    weights = before[0][0] - sum(found for _, found in before)
    return weights, gradient(partition, weights)


@task
def descend_together(
    partition: Partition, exchange: Exchange, steps: int, weights: Floats
) -> tuple[int, Floats]:
    """Make steps for as long as the other tasks keep up; return how many, and the weights."""
    for step in range(steps):
        found = exchange.allgather(gradient(partition, weights))
        if found is None:
            return step, weights
        weights = weights - sum(found)
    return steps, weights


def by_gather(parts: Split, steps: int, weights: Floats) -> Floats:
    """Bring the gradients here in each step."""
    for _ in range(steps):
        weights = weights - sum(gather(parts.map(gradient, weights)))
    return weights


def by_ahead(parts: Split, steps: int, weights: Floats) -> Floats:
    """Send ten steps at once."""
    made: list[Any] = [(weights, np.zeros_like(weights))]
    for begin in range(0, steps, MOST_AHEAD):
        with parts.together():
            for _ in range(begin, min(begin + MOST_AHEAD, steps)):
                made = [descend(partition, *made) for partition in parts]
        made = gather(made)
    last: Floats = made[0][0] - sum(found for _, found in made)
    return last


def by_exchange(parts: Split, steps: int, weights: Floats) -> Floats:
    """Make all steps in one task per partition."""
    met = exchanges(parts)
    assert met is not None, "Dask has them"
    with parts.together():
        futures = [descend_together(*pair, steps, weights) for pair in zip(parts, met, strict=True)]
    done, weights = max(gather(futures), key=lambda found: int(found[0]))
    if done < steps:
        raise RuntimeError("a task was left alone; measure on a machine that does nothing else")
    return weights


WAYS: dict[str, Callable[[Split, int, Floats], Floats]] = {
    "gather": by_gather,
    "ahead": by_ahead,
    "exchange": by_exchange,
}


def measured(steps: int, rounds: int) -> Iterator[dict[str, float]]:
    """Yield seconds of each way, round by round."""
    points, malignant = load_breast_cancer(return_X_y=True)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        x = da.from_array(points, chunks=(7, 30)).persist()
        y = da.from_array(malignant, chunks=7).persist()
        wait([x, y])
        for _ in range(rounds):
            seconds, found = {}, []
            for name, way in WAYS.items():
                start = time.perf_counter()
                with split(x, y, materialize=True) as parts:
                    found.append(way(parts, steps, np.zeros(31)))
                seconds[name] = time.perf_counter() - start
            assert all(np.allclose(one, found[0]) for one in found)
            yield seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args(arguments)
    _, *rounds = measured(options.steps, options.rounds + 1)  # the first one warms up
    print(f"{options.steps} steps, {options.rounds} rounds")
    for name in WAYS:
        median = statistics.median(one[name] for one in rounds)
        ratios = sorted(one[name] / one["exchange"] for one in rounds)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name:10} {1000 * median:6.0f} ms, {spread} times as long as exchange")


if __name__ == "__main__":
    main()
