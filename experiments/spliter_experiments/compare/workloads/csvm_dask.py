"""The ways to train a Cascade SVM on Dask: one task per part of the data, and one per merge.

Results go from task to task and not through the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future
from sklearn.svm import SVC

from spliter_apps.svm.kernel import SupportSet, conclude, improve, missing
from spliter_experiments.compare.data.blocks import cut_rows, row_starts
from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.engine import Ways, result_of
from spliter_experiments.compare.workloads.csvm import ESTIMATOR, Classifier, Trial
from spliter_experiments.compare.workloads.csvm_cascade import (
    FEW_PARTS,
    MANY_PARTS,
    PAPER,
    Scheme,
    Training,
    conclude_again,
    merge_sets,
    numbered,
    retrain_part,
    train_part,
)
from spliter_experiments.compare.workloads.dask_steps import (
    DaskSite,
    rechunk_to_cores,
    seconds_until,
)
from spliter_experiments.harness.runner import Answer


def per_block(site: DaskSite, trial: Trial, scheme: Scheme) -> Answer:
    """Run one task per block, and a tree of merges."""
    client, training = site.engine.client, trial.training
    parts = make_parts(client, blocks_of(site.array), blocks_of(site.labels), site.row_chunks)
    first = start_training(client, parts, training, scheme)
    return Answer(Classifier(run_cascade(client, parts, first, training, scheme), trial))


def by_rechunk(site: DaskSite, trial: Trial, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk."""
    began = time.perf_counter()
    client, training = site.engine.client, trial.training
    chunks = rechunk_to_cores(site, site.array, method)
    # "p2p" has a task for each block of an array of one axis where chunks cut through blocks.
    labels = rechunk_to_cores(site, site.labels, "tasks")
    parts = make_parts(client, chunks, labels, cut_rows(training.rows, len(chunks)))
    # The first level is told at once, so that each part is trained as soon as it is there.
    first = start_training(client, parts, training, FEW_PARTS)
    phases = {"rechunk": seconds_until(began, [*chunks, *labels])}
    model = run_cascade(client, parts, first, training, FEW_PARTS)
    return Answer(Classifier(model, trial), phases)


@dataclass(frozen=True)
class Pending:
    """A result of a part or of several, and how many rows it is about."""

    future: Future[Any]
    rows: int


def make_parts(
    client: Client,
    blocks: Sequence[Future[Any]],
    labels: Sequence[Future[Any]],
    sizes: Sequence[int],
) -> list[Pending]:
    """Tell each block the numbers of its rows, once, which copies nothing."""
    made = client.map(numbered, list(blocks), list(labels), row_starts(sizes), pure=False)
    return [Pending(future, size) for future, size in zip(made, sizes, strict=True)]


def start_training(
    client: Client, parts: Sequence[Pending], training: Training, scheme: Scheme
) -> list[Pending]:
    """Start to train on every part; the first level of a cascade."""
    rows = [part.future for part in parts]
    mapped = client.map(train_part, rows, training=training, scheme=scheme, pure=False)
    return [Pending(future, part.rows) for future, part in zip(mapped, parts, strict=True)]


def run_cascade(
    client: Client,
    parts: Sequence[Pending],
    first: list[Pending],
    training: Training,
    scheme: Scheme,
) -> SVC:
    """Run a cascade whose first level has been started.

    Parameters
    ----------
    client : Client
        Of the cluster.
    parts : sequence of Pending
        Rows of each part.
    first : list of Pending
        What :func:`start_training` returned for them.
    training, scheme
        What to train, and how.

    Returns
    -------
    SVC
        Trained.
    """
    rows = [part.future for part in parts]
    sets = _merged(client, first, training, scheme.doubt, scheme)
    solution: Future[SupportSet] = client.submit(conclude, sets, training.svc, pure=False)
    for iteration in range(1, training.iterations):
        if scheme.retrains:
            found = client.map(retrain_part, rows, training=training, solution=solution, pure=False)
            again = [Pending(future, part.rows) for future, part in zip(found, parts, strict=True)]
            # What is fed back leaves nothing to doubt.
            sets = _merged(client, again, training, lambda _: 0.0, scheme)
            solution = client.submit(conclude_again, sets, training, solution, pure=False)
        else:
            lacking = client.map(missing, rows, solution=solution, pure=False)
            solution = client.submit(
                improve, lacking, training.svc, training.tol, solution, pure=False
            )
        # As the estimator does: two iterations are started without a wait between them.
        last = iteration == training.iterations - 1
        if not last and result_of(client.submit(has_converged, solution, pure=False)):
            break
    end: SupportSet = result_of(solution)
    return end.model


def _merged(
    client: Client,
    sets: list[Pending],
    training: Training,
    doubt: Callable[[int], float],
    scheme: Scheme,
) -> list[Future[SupportSet | None]]:
    """Merge level by level, until one task can merge the rest."""
    while len(sets) > scheme.arity:
        groups = [sets[at : at + scheme.arity] for at in range(0, len(sets), scheme.arity)]
        rows = [sum(pending.rows for pending in group) for group in groups]
        futures = [[pending.future for pending in group] for group in groups]
        doubts = list(map(doubt, rows))
        merged = client.map(merge_sets, futures, doubts, svc=training.svc, pure=False)
        sets = [Pending(future, count) for future, count in zip(merged, rows, strict=True)]
    return [pending.future for pending in sets]


def has_converged(solution: SupportSet) -> bool:
    """Tell what the client has to know of a solution."""
    return solution.converged


WAYS = Ways(
    {
        **ESTIMATOR,
        "per-block": lambda site, trial: per_block(site, trial, MANY_PARTS),
        "per-block-paper": lambda site, trial: per_block(site, trial, PAPER),
        "rechunk-p2p": lambda site, trial: by_rechunk(site, trial, "p2p"),
        "rechunk-tasks": lambda site, trial: by_rechunk(site, trial, "tasks"),
    }
)
