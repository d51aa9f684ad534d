"""The four applications as the chaos suite runs them, and what they must answer.

A program computes the same answer from the same data in every round. What is right comes from
NumPy and scikit-learn on the whole data in this process.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import sklearn.cluster
import sklearn.neighbors
from sklearn.svm import SVC

from spliter import split
from spliter_apps import CascadeSVM, KMeans, NearestNeighbors, histogramdd
from spliter_experiments.chaos.cases import Case

Array: TypeAlias = npt.NDArray[Any]
Answer: TypeAlias = Mapping[str, Any]
Collections: TypeAlias = tuple[Any, ...]

ACCURACY: Final = 1e-3
"""How far the dual objective of the cascade may be from that of one machine for all data."""

DISAGREEING: Final = 0.01
"""Part of the points that the cascade may classify otherwise: those at the very margin."""


class Program(ABC):
    """An application, its data and its oracle."""

    @abstractmethod
    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return the arrays that are to be cut into blocks, points first."""

    @abstractmethod
    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        """Return what is right, computed in this process."""

    @abstractmethod
    def run(self, opened: Any, collections: Collections, arrays: tuple[Array, ...]) -> Answer:
        """Run the application once; what it has made in blocks is left where it is.

        `opened` is a Split of all collections, or ``None``: then it splits them itself.
        """

    @abstractmethod
    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Say in what an answer is wrong; nothing if it is right."""


class HistogramProgram(Program):
    """A histogram of points on edges that are looked for, and one of fixed edges."""

    ranges: Final = ((-2.0, 2.0), (-1.0, 3.0))

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points of two columns."""
        return (rng.normal(size=(n_rows, 2)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        """Return NumPy's."""
        found, edges = np.histogramdd(arrays[0], bins=(5, 7))
        fixed, _ = np.histogramdd(arrays[0], bins=9, range=self.ranges)
        return {"found": found, "edges": np.concatenate(edges), "fixed": fixed}

    def run(self, opened: Any, collections: Collections, arrays: tuple[Array, ...]) -> Answer:
        """Count several times over, as it takes no time."""
        sample = collections[0] if opened is None else opened
        answer: dict[str, Any] = {}
        for _ in range(4):
            found, edges = histogramdd(sample, bins=(5, 7))
            fixed, _ = histogramdd(sample, bins=9, range=self.ranges)
            answer = {"found": found, "edges": np.concatenate(edges), "fixed": fixed}
        return answer

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Compare to the last bit."""
        return _first_difference(answer, expected, np.array_equal)


class KMeansProgram(Program):
    """Lloyd's algorithm from given first centres, and the labels of all points."""

    n_clusters: Final = 5
    settings: Final[Mapping[str, Any]] = {"n_init": 1, "max_iter": 12, "tol": 0.0}

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points that form no clusters, so that iteration goes on."""
        return (rng.random((n_rows, 3)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        """Return scikit-learn's."""
        (points,) = arrays
        fitted = sklearn.cluster.KMeans(
            self.n_clusters, init=self._start(points), **self.settings
        ).fit(points)
        return {"centers": fitted.cluster_centers_, "labels": fitted.labels_}

    def run(self, opened: Any, collections: Collections, arrays: tuple[Array, ...]) -> Answer:
        """Fit."""
        points = collections[0] if opened is None else opened
        model = KMeans(self.n_clusters, init=self._start(arrays[0]), **self.settings).fit(points)
        return {"centers": model.cluster_centers_, "labels": model.labels_}

    def _start(self, points: Array) -> Array:
        return np.ascontiguousarray(points[: self.n_clusters] + 1e-4)

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Compare centres to rounding; labels differ nowhere."""
        return _first_difference(answer, expected, lambda a, b: np.allclose(a, b, 1e-7, 1e-9))


class CascadeProgram(Program):
    """A Cascade SVM and its predictions."""

    settings: Final[Mapping[str, Any]] = {
        "max_iter": 20,
        "tol": 1e-6,
        "svc_tol": 1e-5,
        "cascade": True,
    }

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points of two classes that overlap, and their labels."""
        labels = rng.integers(0, 2, n_rows)
        return rng.normal(size=(n_rows, 3)) + labels[:, None], labels

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        """Return what one SVC makes of all data."""
        points, labels = arrays
        model = SVC(tol=1e-5).fit(points, labels)
        return {"objective": dual_objective(model), "predicted": model.predict(points)}

    def run(self, opened: Any, collections: Collections, arrays: tuple[Array, ...]) -> Answer:
        """Fit, and predict where the points are."""
        fitted = CascadeSVM(**self.settings)
        fitted = fitted.fit(*collections) if opened is None else fitted.fit(opened)
        return {
            "objective": fitted.objective_[-1],
            "predicted": fitted.predict(collections[0]),
            "support": fitted.support_,
            "vectors": fitted.support_vectors_,
        }

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Compare the objective and the predictions; support vectors are rows of the points."""
        if not np.array_equal(answer["vectors"], arrays[0][answer["support"]]):
            return "support vectors are not the points of their numbers"
        if not np.isclose(answer["objective"], expected["objective"], rtol=ACCURACY):
            return f"objective {answer['objective']} instead of {expected['objective']}"
        if answer["predicted"].shape != expected["predicted"].shape:
            return f"{answer['predicted'].shape} predictions"
        others = int((answer["predicted"] != expected["predicted"]).sum())
        if others > max(DISAGREEING * len(arrays[0]), 1):
            return f"{others} of {len(arrays[0])} points are predicted otherwise"
        return ""


class NeighborsProgram(Program):
    """Nearest neighbours of queries in memory, and of the points themselves, in blocks."""

    n_neighbors: Final = 3

    def data(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, ...]:
        """Return points, no two of which are equally far from a third."""
        return (rng.random((n_rows, 3)),)

    def expected(self, arrays: tuple[Array, ...]) -> Answer:
        """Return scikit-learn's."""
        (points,) = arrays
        model = sklearn.neighbors.NearestNeighbors(n_neighbors=self.n_neighbors).fit(points)
        return self._asked(model, points, self._queries(points))

    def run(self, opened: Any, collections: Collections, arrays: tuple[Array, ...]) -> Answer:
        """Plant trees and ask them."""
        points = collections[0] if opened is None else opened
        model = NearestNeighbors(n_neighbors=self.n_neighbors).fit(points)
        return self._asked(model, collections[0], self._queries(arrays[0]))

    def _queries(self, points: Array) -> Array:
        return points[::17] + 0.01

    def _asked(self, model: Any, points: Any, queries: Array) -> Answer:
        distances, items = model.kneighbors(queries)
        own_distances, own_items = model.kneighbors(points)
        return {
            "distances": distances,
            "items": items,
            "own distances": own_distances,
            "own items": own_items,
        }

    def difference(self, answer: Answer, expected: Answer, arrays: tuple[Array, ...]) -> str:
        """Compare numbers of neighbours exactly, distances to rounding."""
        return _first_difference(answer, expected, lambda a, b: np.allclose(a, b, 1e-9, 1e-6))


PROGRAMS: Final[Mapping[str, Program]] = {
    "histogram": HistogramProgram(),
    "k-means": KMeansProgram(),
    "cascade-svm": CascadeProgram(),
    "neighbours": NeighborsProgram(),
}
"""By the names of ``cases.APPS``."""


def rounds(
    case: Case,
    collections: Collections,
    arrays: tuple[Array, ...],
    go_on: Callable[[], bool],
    judge: Callable[[Answer], None],
) -> None:
    """Run the application of a case again and again on the same collections.

    Parameters
    ----------
    case : Case
        What to run, and how.
    collections : tuple
        The blocks of the arrays, on the engine.
    arrays : tuple of ndarray
        The data.
    go_on : callable
        Asked after each round.
    judge : callable
        Given each answer; raises if it is wrong.
    """
    program = PROGRAMS[case.app]
    with ExitStack() as stack:
        # Not converged is no error here: the same number of iterations is made as by the oracle.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        opened = None
        if case.as_split:
            opened = stack.enter_context(
                split(
                    *collections,
                    partitions_per_location=case.partitions_per_location,
                    materialize=case.materialize,
                )
            )
        first = program.run(opened, collections, arrays)
        judge(_here(first))
        while go_on():
            answer = program.run(opened, collections, arrays)
            judge(_here(answer))
            _delete(answer)
        # What was made before the faults is there after them, or can be made again.
        judge(_here(first))
        _delete(first)


def dual_objective(model: SVC) -> float:
    """Return the dual objective of a two-class SVC with the kernel "rbf", from its definition.

    Parameters
    ----------
    model : sklearn.svm.SVC
        Fitted.

    Returns
    -------
    float
        The sum of the multipliers minus half their quadratic form.
    """
    support = model.support_vectors_
    squares = ((support[:, None] - support[None]) ** 2).sum(axis=2)
    signed = model.dual_coef_[0]
    return float(np.abs(signed).sum() - 0.5 * signed @ np.exp(-model._gamma * squares) @ signed)


def _here(answer: Answer) -> Answer:
    """Bring what an engine has made in blocks to this process."""
    return {name: _gathered(made) for name, made in answer.items()}


def _gathered(made: Any) -> Any:
    if isinstance(made, list):  # of the local engine
        return np.concatenate(made)
    return made.compute() if hasattr(made, "compute") else made


def _delete(answer: Answer) -> None:
    """Free what does not free itself."""
    for made in answer.values():
        if hasattr(made, "delete"):
            made.delete()


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
