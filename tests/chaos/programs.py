"""The programs that the chaos tests run, and their right answers.

A program computes the same answer from the same data in every round; NumPy and scikit-learn compute
the right one from all data in this process.
"""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Protocol, TypeAlias

import dask
import numpy as np
import numpy.typing as npt
import sklearn.cluster
import sklearn.neighbors
from sklearn.svm import SVC

from spliter import Partition, Split, partitioned, split
from spliter_apps import CascadeSVM, KMeans, NearestNeighbors, histogramdd
from tests.chaos.cases import GRAPHS, Case

Array: TypeAlias = npt.NDArray[Any]
Answer: TypeAlias = Mapping[str, Any]
Collections: TypeAlias = tuple[Any, ...]

OBJECTIVE_TOLERANCE: Final = 1e-3
"""Relative; the cascade stops earlier than one SVC for all data."""

DISAGREEING: Final = 0.01
"""Share of points at the margin that the cascade may classify otherwise."""


class Program(Protocol):
    """An application or a loop, its data and its right answers."""

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return the arrays to cut into blocks, points first."""

    def expected(self, arrays: tuple[Array, ...]) -> Answer: ...

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        """Return the answer; results in blocks stay where they are.

        `inputs` is one Split of all collections, or the collections.
        """

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Say in what an answer is wrong; empty if it is right."""


class HistogramProgram:
    """A histogram with edges taken from the data, and one with fixed edges."""

    ranges: Final = ((-2.0, 2.0), (-1.0, 3.0))

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        return (rng.normal(size=(n_rows, 2)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        return self._answer(np.histogramdd, arrays[0])

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        for _ in range(3):  # so that a round takes long enough for faults to hit it
            self._answer(histogramdd, inputs[0])
        return self._answer(histogramdd, inputs[0])

    def _answer(self, function: Callable[..., Any], points: Any) -> Answer:
        found, edges = function(points, bins=(5, 7))
        fixed, _ = function(points, bins=9, range=self.ranges)
        return {"found": found, "edges": np.concatenate(edges), "fixed": fixed}

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        return _first_difference(answer, expected, np.array_equal)


class KMeansProgram:
    """Lloyd's algorithm from given first centres, and the labels of all points."""

    n_clusters: Final = 5

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points that form no clusters, so that iteration goes on."""
        return (rng.random((n_rows, 3)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        return self._answer(sklearn.cluster.KMeans, arrays[0], arrays[0])

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        return self._answer(KMeans, inputs[0], arrays[0])

    def _answer(self, estimator: Any, points: Any, array: Array) -> Answer:
        start = np.ascontiguousarray(array[: self.n_clusters] + 1e-4)
        model = estimator(self.n_clusters, init=start, n_init=1, max_iter=12, tol=0.0).fit(points)
        return {"centers": model.cluster_centers_, "labels": model.labels_}

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        return _first_difference(answer, expected, lambda a, b: np.allclose(a, b, 1e-7, 1e-9))


class CascadeProgram:
    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points of two classes that overlap, and their labels."""
        labels = rng.integers(0, 2, n_rows)
        return rng.normal(size=(n_rows, 3)) + labels[:, None], labels

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        points, labels = arrays
        model = SVC(tol=1e-5).fit(points, labels)
        return {"objective": dual_objective(model), "predicted": model.predict(points)}

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        fitted = CascadeSVM(max_iter=20, tol=1e-6, svc_tol=1e-5, cascade=True).fit(*inputs)
        return {
            "objective": fitted.objective_[-1],
            "predicted": fitted.predict(collections[0]),
            "support": fitted.support_,
            "vectors": fitted.support_vectors_,
        }

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        if not np.array_equal(answer["vectors"], arrays[0][answer["support"]]):
            return "support vectors are not the points of their numbers"
        if not np.isclose(answer["objective"], expected["objective"], rtol=OBJECTIVE_TOLERANCE):
            return f"objective {answer['objective']} instead of {expected['objective']}"
        if answer["predicted"].shape != expected["predicted"].shape:
            return f"{answer['predicted'].shape} predictions"
        others = int((answer["predicted"] != expected["predicted"]).sum())
        if others > max(DISAGREEING * len(arrays[0]), 1):
            return f"{others} of {len(arrays[0])} points are predicted otherwise"
        return ""


class NeighborsProgram:
    """Nearest neighbours of queries in memory, and of the points themselves, in blocks."""

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points, no two of which are equally far from a third."""
        return (rng.random((n_rows, 3)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        return self._answer(sklearn.neighbors.NearestNeighbors, arrays[0], arrays[0], arrays[0])

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        return self._answer(NearestNeighbors, inputs[0], collections[0], arrays[0])

    def _answer(self, estimator: Any, fitted_to: Any, points: Any, array: Array) -> Answer:
        model = estimator(n_neighbors=3).fit(fitted_to)
        distances, items = model.kneighbors(array[::17] + 0.01)
        own_distances, own_items = model.kneighbors(points)
        return {
            "distances": distances,
            "items": items,
            "own distances": own_distances,
            "own items": own_items,
        }

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        return _first_difference(answer, expected, lambda a, b: np.allclose(a, b, 1e-9, 1e-6))


class MapReduceProgram:
    """Count how often the threads of all locations see each row."""

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return rows that hold their own number."""
        return (np.arange(n_rows)[:, None],)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        return {"seen": np.ones(len(arrays[0]), np.int64)}

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        parts = inputs[0] if isinstance(inputs[0], Split) else split(collections[0], schedule="SS")
        seen = parts.map_reduce(count_rows_slowly, operator.add, len(arrays[0])).result()
        return {"seen": seen}

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        return _first_difference(answer, expected, np.array_equal)


def count_rows_slowly(partition: Partition, n_rows: int) -> Array:
    """Count the rows of a partition by their numbers, slowly enough for faults to hit it."""
    seen = np.zeros(n_rows, np.int64)
    for block in partition:
        time.sleep(0.01)
        np.add.at(seen, block[:, 0], 1)
    return seen


class GraphsProgram:
    """Dask's own methods, one task per partition: values for all, products, neighbours."""

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return integers, whose sums are exact."""
        return (rng.integers(-9, 10, (n_rows, 3)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        return self._answers(arrays[0])

    def run(self, inputs: Collections, collections: Collections, arrays: tuple[Array, ...]) -> Any:
        x = collections[0].map_blocks(copy_slowly, dtype=arrays[0].dtype)
        answers: tuple[Answer] = dask.compute(self._answers(x), scheduler=partitioned())
        return answers[0]

    def _answers(self, x: Any) -> dict[str, Any]:
        return {
            "squares": ((x - x.sum(axis=0)) ** 2).sum(axis=0),
            "products": x.T @ x,
            "neighbours": (x[1:] * x[:-1]).sum(axis=0),
        }

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        return _first_difference(answer, expected, np.array_equal)


def copy_slowly(block: Array) -> Array:
    """Return a copy, slowly enough for faults to hit it."""
    time.sleep(0.01)
    return block.copy()


PROGRAMS: Final[Mapping[str, Program]] = {
    "histogram": HistogramProgram(),
    "k-means": KMeansProgram(),
    "cascade-svm": CascadeProgram(),
    "neighbours": NeighborsProgram(),
    "map-reduce": MapReduceProgram(),
    GRAPHS: GraphsProgram(),
}
"""By the names of ``cases.APPS``, and what is drawn on request."""


def rounds(
    case: Case,
    collections: Collections,
    arrays: tuple[Array, ...],
    goes_on: Callable[[], bool],
    judge: Callable[[Answer], None],
) -> None:
    """Run the application of a case on the same collections until `goes_on` returns False.

    `judge` gets each answer, and raises if it is wrong.
    """
    program = PROGRAMS[case.app]
    with ExitStack() as stack:
        # Not converged is no error here: the right answer has the same number of iterations.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        inputs = collections
        if case.as_split:
            parts = split(
                *collections,
                partitions_per_location=case.partitions_per_location,
                schedule=case.schedule,
                materialize=case.materialize,
                prefetch=case.prefetch,
            )
            inputs = (stack.enter_context(parts),)
        first = program.run(inputs, collections, arrays)
        judge(_gathered(first))
        while goes_on():
            answer = program.run(inputs, collections, arrays)
            judge(_gathered(answer))
            _delete(answer)
        # Results made before the faults still exist after them, or can be made again.
        judge(_gathered(first))
        _delete(first)


def dual_objective(model: SVC) -> float:
    """Return the dual objective of a two-class SVC with the kernel "rbf", from its definition."""
    support = model.support_vectors_
    squares = ((support[:, None] - support[None]) ** 2).sum(axis=2)
    signed = model.dual_coef_[0]
    return float(np.abs(signed).sum() - 0.5 * signed @ np.exp(-model._gamma * squares) @ signed)


def _gathered(answer: Answer) -> Answer:
    """Bring results that are in blocks to this process."""
    return {name: _in_memory(result) for name, result in answer.items()}


def _in_memory(result: Any) -> Any:
    if isinstance(result, list):  # of the local engine
        return np.concatenate(result)
    return result.compute() if hasattr(result, "compute") else result


def _delete(answer: Answer) -> None:
    """Free results whose engine does not free them by itself."""
    for result in answer.values():
        if hasattr(result, "delete"):
            result.delete()


def _first_difference(
    answer: Answer, expected: Answer, same: Callable[[Array, Array], bool]
) -> str:
    for name, right in expected.items():
        found = np.asarray(answer[name])
        if found.shape != right.shape:
            return f"{name}: shape {found.shape} instead of {right.shape}"
        exact = right.dtype.kind in "iu"
        if not (np.array_equal(found, right) if exact else same(found, right)):
            return f"{name}: {int((found != right).sum())} of {right.size} values differ"
    return ""
