"""XGBoost trained where the rows are: one trainer per location, which talk among themselves.

The trainers have to run at the same time, as each waits for the others::

    client          tracker <──────────── join ─────────────┐
      │ one message                                          │
      ├──> location A: trainer 0 (its blocks, in place) <────┤  histograms are summed
      └──> location B: trainer 1 (its blocks, in place) <────┘  by XGBoost's own collective

A trainer takes a thread of its location, and there is one per location, so that none waits for the
thread of another. Two trainings that each had a thread which the other needs would wait for ever:
those of one program take turns, and all trainers of one are sent in one message, which on Dask puts
those of a later training behind them at every worker. Whatever keeps a trainer from starting (a
worker that went, another task that does not end), the others wait for it no longer than `timeout`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from spliter import BackendNotUsableError, InvalidArgumentError, Movement, SplIterError, gather
from spliter_apps.boosting.colocated import DATA, QUERY, Colocated, LocalRows, colocate

Params: TypeAlias = Mapping[str, Any]


_turn = threading.Lock()


class TrainersMissingError(SplIterError, TimeoutError):
    """Not all trainers, which have to run at the same time, could start in time."""


@dataclass(frozen=True)
class TrainedBooster:
    """What a training gives.

    Parameters
    ----------
    booster : xgboost.Booster
        The model.
    history : dict
        Metrics by round, as ``evals_result`` of :func:`xgboost.train`, if they were asked for.
    trainers : int
        Locations that took part.
    empty : tuple of str
        Those of the locations asked for that had no rows, and took no part.
    moved : Movement
        Labels, weights ... that had to be brought to where their rows are.
    """

    booster: Any
    history: dict[str, Any]
    trainers: int
    empty: tuple[str, ...]
    moved: Movement


@dataclass(frozen=True)
class _Job:
    """What every trainer is told."""

    params: dict[str, Any]
    num_boost_round: int
    evaluate: bool
    options: dict[str, Any]


def train_xgboost(
    params: Params,
    data: Any,
    label: Any = None,
    *,
    weight: Any = None,
    base_margin: Any = None,
    qid: Any = None,
    label_lower_bound: Any = None,
    label_upper_bound: Any = None,
    num_boost_round: int = 10,
    evaluate: bool = False,
    split_queries: bool = False,
    locations: Iterable[str] = (),
    host: str | None = None,
    timeout: int = 300,
    **options: Any,
) -> TrainedBooster:
    """Train an XGBoost model on blocks that stay where they are.

    Parameters
    ----------
    params : mapping of str to object
        As for :func:`xgboost.train`. ``nthread`` is by default what the location has.
    data : collection, shape (n, n_features)
        Features, as for :func:`colocate`.
    label, weight, base_margin, qid, label_lower_bound, label_upper_bound : collection, optional
        What XGBoost is to know of each row beside its features; of length n, blocked like `data`.
    num_boost_round : int
        Trees (per class).
    evaluate : bool
        Whether to evaluate the metrics on the training rows after each round.
    split_queries : bool
        Whether queries may have rows at several locations (ranking is then the worse for it).
    locations : iterable of str, optional
        Locations that the program knows, to be told which of them had no rows.
    host : str, optional
        Address of this machine by which the locations reach it. By default the one that the way
        to the first location starts from, if locations have addresses.
    timeout : int
        Seconds within which all trainers have to have started, at least 1. What they wait for
        each other later is limited by XGBoost.
    **options
        Further arguments of :func:`xgboost.train`, the same at each location: ``obj``,
        ``callbacks``, ``xgb_model``, ...

    Returns
    -------
    TrainedBooster
        The model of the first location; all have the same.

    Raises
    ------
    BackendNotUsableError
        If XGBoost is not installed.
    InvalidArgumentError
        If `timeout` is less than 1, or the data is cut along its features.
    AlignmentError
        If a query has rows at several locations; and as :func:`spliter.split`.
    TrainersMissingError
        If not all trainers could start within `timeout`.
    xgboost.core.XGBoostError
        What XGBoost has raised in a trainer. An error of a function among `options` comes as it is.

    Notes
    -----
    With histograms (``tree_method="hist"``, the default) trainers read block after block into a
    ``QuantileDMatrix``; otherwise the blocks are concatenated first. The location of a query is
    that of its rows; within it, rows are sorted by query where they are not.

    Examples
    --------
    >>> import numpy as np
    >>> x = [np.arange(8.0).reshape(4, 2), np.arange(8.0, 12.0).reshape(2, 2)]
    >>> y = [np.array([0, 0, 1, 1]), np.array([1, 1])]
    >>> settings = {"objective": "binary:logistic", "min_child_weight": 0}
    >>> trained = train_xgboost(settings, x, y, num_boost_round=2)
    >>> trained.booster.num_boosted_rounds(), trained.trainers
    (2, 1)
    """
    _xgboost()
    if timeout < 1:
        raise InvalidArgumentError(f"timeout must be at least 1 second, got {timeout!r}")
    job = _Job(dict(params), num_boost_round, evaluate, options)
    with colocate(
        data,
        locations=locations,
        label=label,
        weight=weight,
        base_margin=base_margin,
        qid=qid,
        label_lower_bound=label_lower_bound,
        label_upper_bound=label_upper_bound,
    ) as rows:
        if qid is not None and not split_queries:
            rows.check_whole_queries()
        results = _train(rows, job, host, timeout)
        booster, history = next(result for result in results if result is not None)
        return TrainedBooster(booster, history, len(results), rows.empty, rows.moved)


def _train(rows: Colocated, job: _Job, host: str | None, timeout: int) -> list[Any]:
    """Start a trainer at each location, and wait for all."""
    if len(rows) == 1:
        return gather(rows.map(_train_here, job, None))
    host = host or _own_address(next(iter(rows.blocks_at)))
    with _turn, _tracker(len(rows), host, timeout) as joining:
        futures = rows.map(_train_here, job, joining)
        try:
            return gather(futures)
        except BaseException as error:
            # Those that have not started would have nobody to talk to.
            for future in futures:
                future.cancel()
            if "bootstrap the communication group" in str(error):
                raise TrainersMissingError(
                    f"the {len(rows)} trainers could not all start within {timeout} s at "
                    f"{', '.join(rows.blocks_at)}: other tasks have the threads there, one of "
                    "them is gone, or they do not reach this machine (host=...)"
                ) from error
            raise


@contextlib.contextmanager
def _tracker(trainers: int, host: str | None, timeout: int) -> Iterator[dict[str, Any]]:
    """Run what trainers find each other by; yield what they need for it."""
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=trainers, host_ip=host, sortby="task", timeout=timeout)
    tracker.start()
    try:
        yield dict(tracker.worker_args())
    finally:
        # It repeats what the trainers that waited for others have raised.
        with contextlib.suppress(XGBoostError):
            tracker.free()


def _own_address(location: str) -> str | None:
    """Return the address of this machine that the way to a location starts from.

    Nothing is sent: connecting a datagram socket only looks up the way.
    """
    try:
        there = urlsplit(location).hostname
        if there is None:
            return None
        family, kind, protocol, _, address = socket.getaddrinfo(there, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return None


def _train_here(rows: LocalRows, job: _Job, joining: Mapping[str, Any] | None) -> Any:
    """Run at a location: train on its rows, together with the other locations."""
    xgboost = _xgboost()
    params = {"nthread": rows.threads, **job.params}
    history: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if joining is not None:
            task = {"dmlc_task_id": f"spliter-{rows.number:06d}"}
            stack.enter_context(xgboost.collective.CommunicatorContext(**joining, **task))
        matrix = _matrix(rows, params)
        booster = xgboost.train(
            params,
            matrix,
            num_boost_round=job.num_boost_round,
            evals=[(matrix, "train")] if job.evaluate else (),
            evals_result=history,
            **{"verbose_eval": False, **job.options},
        )
    return (booster, history) if rows.number == 0 else None


def _matrix(rows: LocalRows, params: Params) -> Any:
    """Make XGBoost's own form of the rows."""
    xgboost = _xgboost()
    full = rows.without_empty_blocks()
    if QUERY in full.parts:
        full = full.sorted_by_query()
    threads = params["nthread"]
    if not _by_histograms(params):
        return xgboost.DMatrix(**full.concatenated(), nthread=threads)
    bins = params.get("max_bin")
    if not len(full):
        nothing = np.empty((0, full.parts[DATA][0].shape[1]))
        return xgboost.QuantileDMatrix(nothing, max_bin=bins, nthread=threads)
    return xgboost.QuantileDMatrix(_block_after_block(full), max_bin=bins, nthread=threads)


def _by_histograms(params: Params) -> bool:
    trees = params.get("booster", "gbtree") in {"gbtree", "dart"}
    return trees and params.get("tree_method", "hist") in {"hist", "auto"}


def _block_after_block(rows: LocalRows) -> Any:
    """Return an iterator of XGBoost's kind over the blocks; they are not put together."""
    xgboost = _xgboost()

    class Blocks(xgboost.DataIter):  # type: ignore[misc, name-defined]  # known when it runs
        def __init__(self) -> None:
            self._at = 0
            super().__init__(release_data=True)

        def next(self, input_data: Any) -> bool:
            if self._at == len(rows.parts[DATA]):
                return False
            input_data(**{name: blocks[self._at] for name, blocks in rows.parts.items()})
            self._at += 1
            return True

        def reset(self) -> None:
            self._at = 0

    return Blocks()


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise BackendNotUsableError(
            f"XGBoost is not usable here: {error}; pip install xgboost (or xgboost-cpu)"
        ) from error
    return xgboost
