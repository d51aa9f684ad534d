"""``spliter compare csvm``: train a support vector classifier as a cascade.

All ways but ``sklearn`` run the kernel of :class:`spliter_apps.CascadeSVM`: train on each part of
the data, merge support vectors and train on them until one set is left, and feed that set back to
all parts in the next iteration. A part is a partition (``spliter``), a block or chunk, or the share
of a plain process (``floor``). ``per-block-paper`` merges two sets at once and passes on support
vectors only. A way ends early if the objective changes by at most `tol`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import typer
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from spliter_apps.svm import CascadeSVM
from spliter_apps.svm.kernel import find_violations, finish, improve
from spliter_apps.svm.margins import dual_objective
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice, open_labelled, read_held_out
from spliter_experiments.compare.data.sources import (
    Codes,
    Dataset,
    Floats,
    Labels,
    RowNumbers,
    hold_out,
)
from spliter_experiments.compare.data.sources import Rows as RowSource
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.compare.ways import FLOOR, SKLEARN, WAYS
from spliter_experiments.compare.workloads.app import App
from spliter_experiments.compare.workloads.csvm_cascade import (
    FEW_PARTS,
    MANY_PARTS,
    Scheme,
    Training,
    rows_of_blocks,
    run_cascade,
    train_part,
)
from spliter_experiments.compare.workloads.site import Parts, Site, check_finite
from spliter_experiments.harness.runner import Answer

SAME_ACCURACY = 0.01
SAME_OBJECTIVE = 0.01
"""Absolute and relative tolerance of equal models: a cascade only approximates the optimum."""

HELD_OUT_SHARE = 5
"""One row of this many is held out to measure the accuracy."""


@dataclass(frozen=True)
class Run:
    """Training parameters, and the held-out points and labels to test on."""

    training: Training
    points: Floats
    labels: Codes


class Classifier:
    """A trained model; its accuracy and objective are computed on demand, outside the timed run."""

    def __init__(self, model: SVC, run: Run) -> None:
        self.model = model
        self._run = run

    @functools.cached_property
    def accuracy(self) -> float:
        return float(np.mean(self.model.predict(self._run.points) == self._run.labels))

    @functools.cached_property
    def objective(self) -> float:
        """Value of the dual objective, which training maximizes."""
        return dual_objective(self.model, self.model.support_vectors_)


def by_spliter(site: Site[Engine], run: Run) -> Answer:
    """Train SplIter's estimator, on materialized partitions, as it does by default."""
    training, svc = run.training, run.training.svc
    cascade = CascadeSVM(
        svc.C,
        kernel=svc.kernel,
        gamma=svc.gamma,
        cascade_arity=FEW_PARTS.arity,
        max_iter=training.iterations,
        tol=training.tol,
        cascade=True,
    )
    with warnings.catch_warnings():
        # The iteration limit is intended.
        warnings.simplefilter("ignore", ConvergenceWarning)
        with site.split(site.array, site.labels, materialize=True) as partitions:
            cascade.fit(partitions)
    return Answer(Classifier(cascade.estimator_, run))


def by_sklearn(machine: Baseline, run: Run) -> Answer:
    (model,) = machine.call(fit_sklearn, run.training.svc)
    return Answer(Classifier(model, run))


def on_floor(floor: Baseline, run: Run) -> Answer:
    training = run.training
    floor.keep("rows", rows_of_blocks)
    sets = floor.call(train_part, training, FEW_PARTS, on="rows")
    solution = finish(sets, training.svc)
    while len(solution.objectives) < training.iterations and not solution.converged:
        found = floor.call(find_violations, solution, on="rows")
        solution = improve(found, training.svc, training.tol, solution)
    return Answer(Classifier(solution.model, run))


def fit_sklearn(blocks: Sequence[tuple[Floats, Codes]], svc: SVC) -> SVC:
    ((points, labels),) = blocks
    model: SVC = svc.fit(points, labels)
    return model


def moments(block: Floats) -> tuple[int, float, float]:
    return block.size, float(block.mean()), float(block.var())


def scaled_gamma(site: Site[Engine]) -> float:
    """Return the value of SVC's ``gamma="scale"`` for all points."""
    found = site.engine.results(site.engine.call_blocks(site.array, moments))
    counts, means, variances = np.array(found).T
    mean = np.average(means, weights=counts)
    variance = np.average(variances + (means - mean) ** 2, weights=counts)
    width: int = site.array.shape[1]
    return float(1 / (width * variance)) if variance > 0 else 1.0


@dataclass(frozen=True)
class CascadeSvm(App[Run]):
    """Comparison of Cascade SVMs, trained on the classes in the column `label`.

    The cascade ends after `iterations`, or when the dual objective changes by less than a share of
    `tol`.
    """

    label: Annotated[
        str | None, typer.Option(help="Column of the input that holds the classes, as numbers.")
    ] = None
    iterations: Annotated[
        int,
        typer.Option(min=1, help="Iterations, at most; after few, ways may differ."),
    ] = 5
    tol: Annotated[
        float,
        typer.Option(min=0, help="Relative change of the dual objective that ends it before."),
    ] = 1e-3

    name: ClassVar = "csvm"
    ways: ClassVar = WAYS["csvm"]
    defaults: ClassVar = {"rows": 8_000, "dims": 20}
    split_ways: ClassVar = {"spliter": by_spliter, "spliter-materialized": by_spliter}
    off_cluster: ClassVar = {SKLEARN: by_sklearn, FLOOR: on_floor}
    about: ClassVar = "{iterations} iterations"

    def open(self, choice: InputChoice) -> Dataset:
        extra = choice.rows // (HELD_OUT_SHARE - 1)
        points, column, classes = open_labelled(choice, self.label, extra)
        held = points.rows // HELD_OUT_SHARE
        rest, held_out = hold_out(points, held)
        labels, held_labels = hold_out(column, held)
        return Dataset(rest, Labels(labels, classes), held_out, Labels(held_labels, classes))

    def pose(self, site: Site[Engine]) -> Run:
        dataset = site.dataset
        assert dataset.held_out_labels is not None
        check_finite(site.engine, dataset.points, site.array)
        svc = SVC(gamma=scaled_gamma(site))
        return Run(
            Training(svc, self.iterations, self.tol, dataset.points.rows),
            read_held_out(dataset),
            dataset.held_out_labels.read(0, dataset.held_out_labels.rows),
        )

    @staticmethod
    def by_parts(parts: Parts, run: Run, scheme: Scheme = MANY_PARTS) -> Answer:
        return Answer(Classifier(run_cascade(parts, run.training, scheme), run))

    def aligned(self, way: str, dataset: Dataset) -> Sequence[RowSource]:
        labels = dataset.labels
        assert labels is not None
        return (labels,) if way == SKLEARN else (labels, RowNumbers(labels.rows))

    def same(self, left: Classifier, right: Classifier) -> bool:
        return bool(
            abs(left.accuracy - right.accuracy) <= SAME_ACCURACY
            and np.isclose(left.objective, right.objective, rtol=SAME_OBJECTIVE, atol=0)
        )
