"""``spliter compare csvm``: the ways to train a support vector classifier as a cascade.

All but ``sklearn`` run the same kernel (:mod:`spliter_apps._csvm_kernel`): parts of the data are
trained on, the support vectors merged and trained on until one set is left, and that is fed back to
the parts in the next iteration. In all of them the fed-back set goes from task to task and not
through the client. What differs is what a part is:

========================  ====================================================================
``spliter``               a partition: :class:`spliter_apps.cascade_svm.CascadeSVM`
``spliter-materialized``  the same, told to put the blocks of each partition into one
``per-block``             a block, however small; many sets are merged at once
``per-block-paper``       a block; two sets are merged at once, and nothing but support vectors
                          goes up, as in the paper
``rechunk-p2p``           a chunk, after points and labels were rechunked to one chunk per core
``rechunk-tasks``         the same, rechunked by ordinary tasks
``sklearn``               all points: ``sklearn.svm.SVC`` in one process (it has one thread)
``floor``                 the share of a plain process (:mod:`._floor`); merges are made here
========================  ====================================================================
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from distributed import Client, Future
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from spliter_apps._csvm_balance import doubt
from spliter_apps._csvm_kernel import (
    Rows,
    SupportSet,
    conclude,
    merge,
    retrain,
    train,
    united,
)
from spliter_apps._csvm_margins import dual_objective
from spliter_apps.cascade_svm import CascadeSVM
from spliter_experiments._arranged import hold_out
from spliter_experiments._blocks import check_finite, cut_rows, row_starts
from spliter_experiments._comparison import FLOOR, OFF_CLUSTER, SKLEARN, Site
from spliter_experiments._datasets import InputChoice, open_labelled, read_held_out
from spliter_experiments._errors import OptionError
from spliter_experiments._floor import Floor
from spliter_experiments._inputs import Codes, Dataset, Floats, Labels, RowNumbers
from spliter_experiments._results import Value
from spliter_experiments._rounds import Answer, Contender
from spliter_experiments._steps import rechunk_to_cores, result_of, seconds_until


@dataclass(frozen=True)
class Scheme:
    """How a cascade goes about its parts.

    Parameters
    ----------
    arity : int
        Sets that one task merges.
    doubtful : bool
        Whether a part also passes on what is near its margins, as those of the whole are somewhat
        elsewhere. Far fewer rows then have to be looked for a second time.
    """

    arity: int
    doubtful: bool

    def doubt(self, rows: int) -> float:
        """Return how far the margins of a part of so many rows are trusted, in margins."""
        return doubt(rows) if self.doubtful else 0.0


FEW_PARTS = Scheme(arity=2, doubtful=True)
"""What CascadeSVM does."""

MANY_PARTS = Scheme(arity=8, doubtful=True)
"""What took the least time with a part for each block: of 2, 4, 8 and 16 sets merged at once, with
8,000 points in 8, 32, 96 and 384 blocks. Merging two by two took up to four times as long."""

PAPER = Scheme(arity=2, doubtful=False)
"""What the paper does: two by two, and support vectors only."""

SAME_ACCURACY = 0.01
SAME_OBJECTIVE = 0.01
"""Differences, absolute and relative, of what is the same: a cascade comes near the optimum."""

HELD_OUT_SHARE = 5
"""One row of so many is held out to take the accuracy on."""


@dataclass(frozen=True)
class Training:
    """What all ways train.

    Parameters
    ----------
    svc : SVC
        Not trained, with a number for gamma.
    iterations : int
        Of the cascade, at most.
    tol : float
        Relative change of the dual objective that ends it.
    rows : int
        How many there are to train on.
    """

    svc: SVC
    iterations: int
    tol: float
    rows: int


@dataclass(frozen=True)
class Trial:
    """What all ways train, and what they are tried on.

    Parameters
    ----------
    training : Training
        What they train.
    points : ndarray of float64, shape (n, columns)
        Held out, to take the accuracy on.
    labels : ndarray of int64, shape (n,)
        Their classes.
    """

    training: Training
    points: Floats
    labels: Codes


class Classifier:
    """What a way comes to: a model, and how good it is, found out outside the clock.

    Parameters
    ----------
    model : SVC
        Trained.
    trial : Trial
        What it is tried on.
    """

    def __init__(self, model: SVC, trial: Trial) -> None:
        self.model = model
        self._trial = trial

    @functools.cached_property
    def accuracy(self) -> float:
        """Share of the points held out whose class it tells."""
        return float(np.mean(self.model.predict(self._trial.points) == self._trial.labels))

    @functools.cached_property
    def objective(self) -> float:
        """What training has made as large as it could."""
        return dual_objective(self.model, self.model.support_vectors_)


def by_spliter(site: Site, trial: Trial, materialize: Any) -> Answer:
    """Use the estimator."""
    training, svc = trial.training, trial.training.svc
    cascade = CascadeSVM(
        svc.C,
        kernel=svc.kernel,
        gamma=svc.gamma,
        cascade_arity=FEW_PARTS.arity,
        max_iter=training.iterations,
        tol=training.tol,
        materialize=materialize,
    )
    with warnings.catch_warnings():
        # That it could go on is what is asked for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        cascade.fit(site.array, site.labels)
    return Answer(Classifier(cascade.estimator_, trial))


def per_block(site: Site, trial: Trial, scheme: Scheme) -> Answer:
    """Run one task per block, and a tree of merges."""
    client, training = site.client, trial.training
    parts = _make_parts(client, site.blocks, site.label_blocks, site.row_chunks)
    first = _train(client, parts, training, scheme)
    return Answer(Classifier(_by_tasks(client, parts, first, training, scheme), trial))


def by_rechunk(site: Site, trial: Trial, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk."""
    began = time.perf_counter()
    assert site.labels is not None
    client, training = site.client, trial.training
    chunks = rechunk_to_cores(site, site.array, method)
    # "p2p" has a task for each block of an array of one axis where chunks cut through blocks.
    labels = rechunk_to_cores(site, site.labels, "tasks")
    parts = _make_parts(client, chunks, labels, cut_rows(training.rows, len(chunks)))
    # The first level is told at once, so that each part is trained as soon as it is there.
    first = _train(client, parts, training, FEW_PARTS)
    phases = {"rechunk": seconds_until(began, [*chunks, *labels])}
    model = _by_tasks(client, parts, first, training, FEW_PARTS)
    return Answer(Classifier(model, trial), phases)


def by_sklearn(machine: Floor, trial: Trial) -> Answer:
    """Leave it to scikit-learn, in one process."""
    (model,) = machine.call(fit_sklearn, trial.training.svc)
    return Answer(Classifier(model, trial))


def on_floor(floor: Floor, trial: Trial) -> Answer:
    """Train in every plain process; merge here."""
    training = trial.training
    floor.keep("rows", rows_of_blocks)
    sets = floor.call(train_part, training, FEW_PARTS, on="rows")
    solution = conclude(sets, training.svc, training.tol)
    while len(solution.objectives) < training.iterations and not solution.converged:
        sets = floor.call(retrain_part, training, solution, on="rows")
        solution = conclude(sets, training.svc, training.tol, solution)
    return Answer(Classifier(solution.model, trial))


@dataclass(frozen=True)
class Pending:
    """A result of a part or of several, and how many rows it is about."""

    future: Future[Any]
    rows: int


def _make_parts(
    client: Client,
    blocks: Sequence[Future[Any]],
    labels: Sequence[Future[Any]],
    sizes: Sequence[int],
) -> list[Pending]:
    """Tell each block the numbers of its rows, once, which copies nothing."""
    made = client.map(numbered, list(blocks), list(labels), row_starts(sizes), pure=False)
    return [Pending(future, size) for future, size in zip(made, sizes, strict=True)]


def _train(
    client: Client, parts: Sequence[Pending], training: Training, scheme: Scheme
) -> list[Pending]:
    rows = [part.future for part in parts]
    mapped = client.map(train_part, rows, training=training, scheme=scheme, pure=False)
    return [Pending(future, part.rows) for future, part in zip(mapped, parts, strict=True)]


def _by_tasks(
    client: Client,
    parts: Sequence[Pending],
    first: list[Pending],
    training: Training,
    scheme: Scheme,
) -> SVC:
    """Run the cascade with one task per part and merge; the first level has been started."""
    rows = [part.future for part in parts]
    solution = _merge(client, first, training, scheme, None)
    for _ in range(1, training.iterations):
        found = client.map(retrain_part, rows, training=training, solution=solution, pure=False)
        sets = [Pending(future, part.rows) for future, part in zip(found, parts, strict=True)]
        solution = _merge(client, sets, training, scheme, solution)
        # As the estimator does: two iterations are started without a wait between them.
        if result_of(client.submit(has_converged, solution, pure=False)):
            break
    end: SupportSet = result_of(solution)
    return end.model


def _merge(
    client: Client,
    sets: list[Pending],
    training: Training,
    scheme: Scheme,
    last: Future[SupportSet] | None,
) -> Future[SupportSet]:
    """Merge level by level, and compare with the last solution."""
    while len(sets) > scheme.arity:
        groups = [sets[at : at + scheme.arity] for at in range(0, len(sets), scheme.arity)]
        rows = [sum(pending.rows for pending in group) for group in groups]
        # What is fed back leaves nothing to doubt.
        doubts = [scheme.doubt(count) if last is None else 0.0 for count in rows]
        futures = [[pending.future for pending in group] for group in groups]
        merged = client.map(merge_sets, futures, doubts, svc=training.svc, pure=False)
        sets = [Pending(future, count) for future, count in zip(merged, rows, strict=True)]
    solution: Future[SupportSet] = client.submit(
        conclude, [pending.future for pending in sets], training.svc, training.tol, last, pure=False
    )
    return solution


def train_part(rows: Rows, training: Training, scheme: Scheme) -> SupportSet | None:
    """Train on the rows of one part, and keep what may be a support vector of the whole."""
    return train(rows, training.svc, doubt=scheme.doubt(len(rows)))


def retrain_part(rows: Rows, training: Training, solution: SupportSet) -> SupportSet | None:
    """Train on the rows of one part and what is fed back to it, if need be."""
    lacking = training.tol * solution.objectives[-1]
    return retrain(rows, training.svc, solution, lacking * len(rows) / training.rows)


def merge_sets(sets: Sequence[SupportSet | None], doubtful: float, svc: SVC) -> SupportSet | None:
    """Train on the sets of several parts."""
    present = [found for found in sets if found is not None]
    if not doubtful or not present:
        return merge(present, svc)
    return train(united(present), svc, doubt=doubtful)


def numbered(points: Floats, labels: Codes, start: int) -> Rows:
    """Return a block as rows with their numbers in the whole array."""
    return Rows(points, labels, None, np.arange(start, start + len(labels)))


def rows_of_blocks(blocks: Sequence[tuple[Floats, Codes, Codes]]) -> Rows:
    """Put blocks of points, labels and row numbers together."""
    points, labels, numbers = zip(*blocks, strict=True)
    return Rows(np.concatenate(points), np.concatenate(labels), None, np.concatenate(numbers))


def has_converged(solution: SupportSet) -> bool:
    """Tell what the client has to know of a solution."""
    return solution.converged


def fit_sklearn(blocks: Sequence[tuple[Floats, Codes]], svc: SVC) -> SVC:
    """Run scikit-learn on one block."""
    ((points, labels),) = blocks
    model: SVC = svc.fit(points, labels)
    return model


def moments(block: Floats) -> tuple[int, float, float]:
    """Return how many values there are, their mean and their variance."""
    return block.size, float(block.mean()), float(block.var())


def scaled_gamma(site: Site) -> float:
    """Return what SVC calls "scale", of all points."""
    found = site.client.gather(site.client.map(moments, site.blocks, pure=False))
    counts, means, variances = np.array(found).T
    mean = np.average(means, weights=counts)
    variance = np.average(variances + (means - mean) ** 2, weights=counts)
    width: int = site.array.shape[1]
    return float(1 / (width * variance)) if variance > 0 else 1.0


ON_CLUSTER: dict[str, Callable[[Site, Trial], Answer]] = {
    "spliter": lambda site, trial: by_spliter(site, trial, materialize="auto"),
    "spliter-materialized": lambda site, trial: by_spliter(site, trial, materialize=True),
    "per-block": lambda site, trial: per_block(site, trial, MANY_PARTS),
    "per-block-paper": lambda site, trial: per_block(site, trial, PAPER),
    "rechunk-p2p": lambda site, trial: by_rechunk(site, trial, "p2p"),
    "rechunk-tasks": lambda site, trial: by_rechunk(site, trial, "tasks"),
}

WAYS = (*ON_CLUSTER, *OFF_CLUSTER)


@dataclass(frozen=True)
class CascadeSvm:
    """The app.

    Parameters
    ----------
    label : str or None
        Column that holds the classes.
    iterations : int
        Of the cascade, at most.
    tol : float
        Relative change of the dual objective that ends it.
    """

    label: str | None
    iterations: int
    tol: float

    name: ClassVar[str] = "csvm"
    ways: ClassVar[tuple[str, ...]] = WAYS

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise OptionError(f"--iterations must be at least 1, got {self.iterations}")
        if not self.tol >= 0:
            raise OptionError(f"--tol must not be negative, got {self.tol}")

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Open points with labels, and hold some out."""
        extra = choice.rows // (HELD_OUT_SHARE - 1)
        with open_labelled(choice, self.label, extra) as (points, column, classes):
            held = points.rows // HELD_OUT_SHARE
            rest, held_out = hold_out(points, held)
            labels, held_labels = hold_out(column, held)
            yield Dataset(rest, Labels(labels, classes), held_out, Labels(held_labels, classes))

    def check(self, dataset: Dataset) -> None:
        """Accept all data: what has to be known of them takes a look at all rows."""

    def absent(self, client: Client) -> Mapping[str, str]:
        """Return none: all ways need nothing but Dask and scikit-learn."""
        return {}

    def pose(self, site: Site) -> Trial:
        """Return what is to be trained, and on what its accuracy is taken."""
        dataset = site.dataset
        assert dataset.held_out_labels is not None
        check_finite(site.client, dataset.points, site.array)
        svc = SVC(gamma=scaled_gamma(site))
        return Trial(
            Training(svc, self.iterations, self.tol, dataset.points.rows),
            read_held_out(dataset),
            dataset.held_out_labels.read(0, dataset.held_out_labels.rows),
        )

    def contender(self, way: str, site: Site, trial: Trial) -> Contender:
        """Return one of the ways."""
        labels = site.dataset.labels
        assert labels is not None
        if way == SKLEARN:
            return site.contender_in_processes(
                way, lambda machine: by_sklearn(machine, trial), labels
            )
        if way == FLOOR:
            numbers = RowNumbers(labels.rows)
            return site.contender_in_processes(
                way, lambda floor: on_floor(floor, trial), labels, numbers
            )
        return Contender(way, lambda: ON_CLUSTER[way](site, trial))

    def same(self, left: Classifier, right: Classifier) -> bool:
        """Tell whether two models are as good, by what they were to do and on points unseen."""
        return bool(
            abs(left.accuracy - right.accuracy) <= SAME_ACCURACY
            and np.isclose(left.objective, right.objective, rtol=SAME_OBJECTIVE, atol=0)
        )

    def kept(self) -> Mapping[str, Value]:
        """Return the label and the iterations."""
        return {"label": self.label, "iterations": self.iterations, "tol": self.tol}

    def detail(self) -> str:
        """Return the iterations."""
        return f"{self.iterations} iterations"
