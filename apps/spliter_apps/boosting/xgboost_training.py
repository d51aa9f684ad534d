"""Train XGBoost on rows in place: one trainer per location, joined by XGBoost's collective.

The trainers have to run at the same time, as each waits for the others::

    client          tracker <──────────── join ─────────────┐
      │ one message                                          │
      ├──> location A: trainer 0 (its blocks, in place) <────┤  histograms are summed
      └──> location B: trainer 1 (its blocks, in place) <────┘  by XGBoost's own collective

There is one trainer per location, which occupies one thread, so that no trainer waits for another's
thread. Two trainings that each hold a thread the other needs would deadlock: therefore trainings of
one program run one after the other, and all trainers of a training are sent in one message, which
on Dask queues those of a later training behind them at every worker. If a trainer cannot start (a
lost worker, another task that does not end), the others fail after `timeout`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from spliter import InvalidArgumentError, Location, Movement, SplIterError, TaskTimeoutError, gather
from spliter_apps._differences import refuse_masked
from spliter_apps.boosting.colocated import (
    ColocatedCollections,
    map_rows,
    open_rows,
    refuse_no_rows,
    share_columns,
)
from spliter_apps.boosting.local_rows import DATA, QUERY, Columns, LocalRows
from spliter_apps.boosting.xgboost_matrices import (
    Features,
    check_values,
    empty_like,
    import_xgboost,
    make_matrix,
    remember_categories,
    with_codes,
)

Params: TypeAlias = Mapping[str, Any]


_COLUMNS = {DATA, "label", "weight", "base_margin", QUERY, "label_lower_bound", "label_upper_bound"}
"""Row columns passed to XGBoost, under its own names."""

RELEASE_TIMEOUT = 1
"""Seconds to wait for the tracker, which closes its port at once, and then its connections."""

_training_lock = threading.Lock()


class TrainersMissingError(SplIterError, TimeoutError):
    """Not all trainers, which have to run at the same time, started within the timeout."""


@dataclass(frozen=True)
class TrainedBooster:
    """Result of a training.

    Parameters
    ----------
    booster : xgboost.Booster
        The model.
    history : dict
        Metrics by round, like ``evals_result`` of :func:`xgboost.train`, if requested.
    trainers : int
        Number of locations that took part.
    empty : tuple of str
        Locations known to the caller that had no rows, and took no part.
    moved : Movement
        Labels, weights and other columns transferred to the location of their rows.
    """

    booster: Any
    history: dict[str, Any]
    trainers: int
    empty: tuple[str, ...]
    moved: Movement


@dataclass(frozen=True)
class _Job:
    """Arguments of every trainer; ``names`` are those of the evaluation sets."""

    params: dict[str, Any]
    num_boost_round: int
    features: Features
    columns: Columns
    names: tuple[str, ...]
    options: dict[str, Any]
    joining: Mapping[str, Any] | None = None


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
    missing: float | None = None,
    feature_names: Sequence[str] | None = None,
    feature_types: Sequence[str] | None = None,
    feature_weights: Any = None,
    enable_categorical: bool = False,
    num_boost_round: int = 10,
    evals: Sequence[tuple[Mapping[str, Any], str]] = (),
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
        As for :func:`xgboost.train`. ``nthread`` is by default the number of threads of the
        location.
    data : collection, shape (n, n_features)
        Features, as for :func:`colocate`.
    label, weight, base_margin, qid, label_lower_bound, label_upper_bound : optional
        XGBoost's further columns: collections blocked like `data`, or arrays in memory, of
        length n.
    missing : float, optional
        Value that marks missing entries; NaN by default.
    feature_names, feature_types : sequence of str, length n_features, optional
        Names and types ("q" quantitative, "c" category codes, ...) of the columns. DataFrames
        have both.
    feature_weights : array_like, shape (n_features,), optional
        Weight of each column if `params` sample columns (``colsample_bynode``, ...).
    enable_categorical : bool
        Whether DataFrames may have categorical columns. Different categories in blocks are
        merged.
    num_boost_round : int
        Number of boosting rounds: trees per class.
    evals : sequence of (mapping of str to collection, str)
        Evaluation sets and their names. A set has its features as ``"data"``, and ``"label"``,
        ``"weight"`` and so on like the training rows; it may have other blocks and locations.
        ``early_stopping_rounds`` uses the last one.
    evaluate : bool
        Whether to evaluate the metrics on the training rows, too, as ``"train"``.
    split_queries : bool
        Whether queries may have rows at several locations (which degrades the ranking).
    locations : iterable of str, optional
        Locations known to the program; those without rows are reported in the result.
    host : str, optional
        Address of this machine that is reachable from the locations. By default that of the
        network interface with the route to the first location, if locations have addresses.
    timeout : int
        Seconds for which a trainer waits for the others, at the start and in each round; at least
        1. Allow for the time in which the location with the most rows reads these.
    **options
        Further arguments of :func:`xgboost.train`, the same for each location:
        ``early_stopping_rounds``, ``obj``, ``callbacks``, ``xgb_model``, ...

    Returns
    -------
    TrainedBooster
        The model of the first location that has rows to train on; all have the same.

    Raises
    ------
    BackendNotUsableError
        If XGBoost is not installed.
    InvalidArgumentError
        As for :func:`colocate`, also between `data` and the sets in `evals`; if `data` or a set
        has no rows, values are text or labels and other columns have missing ones, blocks are
        tables of another library than pandas, `timeout` is less than 1, a set in `evals` is
        invalid, an ``xgb_model`` is to be continued on categories, or ``booster`` is "gblinear",
        which XGBoost does not train in parallel.
    AlignmentError
        If a query has rows at several locations; and as for :func:`spliter.split`.
    TrainersMissingError
        If not all trainers started within `timeout`, or another program connected to them.
    xgboost.core.XGBoostError
        Raised by XGBoost in a trainer. An error of a function in `options` is raised unchanged.

    Notes
    -----
    With histograms (``tree_method="hist"``, the default) trainers read block by block into a
    ``QuantileDMatrix``; otherwise the blocks are concatenated first. The rows of each location
    are sorted by query if necessary.

    Examples
    --------
    >>> import numpy as np
    >>> x = [np.arange(8.0).reshape(4, 2), np.arange(8.0, 12.0).reshape(2, 2)]
    >>> y = [np.array([0, 0, 1, 1]), np.array([1, 1])]
    >>> settings = {"objective": "binary:logistic", "min_child_weight": 0}
    >>> trained = train_xgboost(settings, x, y, num_boost_round=2)
    >>> trained.booster.num_boosted_rounds(), trained.trainers
    (2, 1)
    >>> valid = {"data": [np.array([[1.0, 2.0], [7.0, 8.0]])], "label": [np.array([0, 1])]}
    >>> trained = train_xgboost(
    ...     settings, x, y, num_boost_round=2, evals=[(valid, "valid")], early_stopping_rounds=1
    ... )
    >>> list(trained.history), trained.booster.best_iteration
    (['valid'], 1)
    """
    import_xgboost()
    if timeout < 1:
        raise InvalidArgumentError(f"timeout must be at least 1 second, got {timeout!r}")
    if params.get("booster") == "gblinear":
        raise InvalidArgumentError(
            "booster='gblinear' is not supported: XGBoost trains it on the rows of one location "
            "alone; use 'gbtree' or 'dart', or a linear model with partial_fit"
        )
    names = ("train",) * evaluate + tuple(_check_eval(each) for each in evals)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"evaluation sets must have different names, got {names}")
    if feature_weights is not None:
        refuse_masked(feature_weights, "feature_weights")
        feature_weights = np.asarray(feature_weights, dtype=np.float32)
    features = Features(missing, feature_names, feature_types, feature_weights, enable_categorical)
    trained_on = {
        DATA: data,
        "label": label,
        "weight": weight,
        "base_margin": base_margin,
        QUERY: qid,
        "label_lower_bound": label_lower_bound,
        "label_upper_bound": label_upper_bound,
    }
    with contextlib.ExitStack() as stack:
        several = []
        for given in (trained_on, *(dict(given) for given, _ in evals)):
            rows = open_rows(given.pop(DATA), given, locations=locations)
            several.append(stack.enter_context(rows))
        places = _locations_of(several)
        if len(places) > 1:
            stack.enter_context(_training_lock)
        columns = _inspect(several, places, timeout)
        refuse_no_rows(several)
        for rows in several:
            if QUERY in rows.names and not split_queries:
                rows.check_whole_queries()
        if not enable_categorical:
            columns = dataclasses.replace(columns, categories={})
        if columns.categories and options.get("xgb_model") is not None:
            raise InvalidArgumentError(
                "xgb_model cannot be continued on categories, which it may number otherwise; train "
                "in one call, or pass numbers with feature_types"
            )
        job = _Job(dict(params), num_boost_round, features, columns, names, options)
        results = _train(several, places, job, host, timeout)
        booster, history = next(result for result in results if result is not None)
        counts = zip(*(dataclasses.astuple(rows.moved) for rows in several), strict=True)
        moved = Movement(*map(sum, counts))
        empty = tuple(name for name in several[0].empty if name not in places)
        return TrainedBooster(booster, history, len(results), empty, moved)


def _check_eval(given: Any) -> str:
    """Validate an evaluation set and return its name."""
    if (
        isinstance(given, tuple | list)
        and len(given) == 2
        and isinstance(given[0], Mapping)
        and not {DATA, "label"} - given[0].keys()
        and not given[0].keys() - _COLUMNS
        and isinstance(given[1], str)
    ):
        return given[1]
    raise InvalidArgumentError(
        "evals must be pairs of a mapping, with collections as 'data', 'label' and others of "
        f"{sorted(_COLUMNS)}, and a name; got {given!r}"
    )


def _locations_of(several: Sequence[ColocatedCollections]) -> list[Location]:
    return list(dict.fromkeys(location for rows in several for location in rows.blocks_at))


def _inspect(
    several: Sequence[ColocatedCollections], places: Sequence[Location], timeout: int
) -> Columns:
    """Check all blocks before trainers start, and return the columns of the features."""
    try:
        return share_columns(several, check_values, timeout if len(places) > 1 else None)
    except TaskTimeoutError as error:
        raise _missing(places, timeout) from error


def _missing(places: Sequence[Location], timeout: int) -> TrainersMissingError:
    return TrainersMissingError(
        f"the {len(places)} trainers could not all start within {timeout} s at "
        f"{', '.join(places)}; check that no other tasks occupy the threads, that all locations "
        "are alive and reach this machine (host=...), and that no other program connects to "
        "their ports"
    )


def _train(
    several: Sequence[ColocatedCollections],
    places: Sequence[Location],
    job: _Job,
    host: str | None,
    timeout: int,
) -> list[Any]:
    """Start a trainer at each location with rows, and wait for all."""
    if len(places) == 1:
        return gather(map_rows(several, _train_local, job=job))
    host = host or _route_address(places[0])
    with _tracker(len(places), host, timeout) as joining:
        futures = map_rows(several, _train_local, job=dataclasses.replace(job, joining=joining))
        try:
            return gather(futures)
        except BaseException as error:
            # Trainers that have not started would wait for the failed ones.
            for future in futures:
                future.cancel()
            if "bootstrap the communication group" in str(error):
                raise _missing(places, timeout) from error
            raise


@contextlib.contextmanager
def _tracker(trainers: int, host: str | None, timeout: int) -> Iterator[dict[str, Any]]:
    """Run XGBoost's tracker, through which trainers connect; yield its arguments for them."""
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=trainers, host_ip=host, sortby="task", timeout=timeout)
    tracker.start()

    def free() -> None:
        # free() repeats the errors of trainers that waited for others.
        with contextlib.suppress(XGBoostError):
            tracker.free()

    try:
        # Trainers have a time limit of their own: a stranger that connects to a port and sends
        # nothing would hold up the tracker, or the next trainer, for ever.
        yield {**tracker.worker_args(), "dmlc_timeout": timeout}
    finally:
        releasing = threading.Thread(target=free, daemon=True)
        releasing.start()
        releasing.join(RELEASE_TIMEOUT)


def _route_address(location: str) -> str | None:
    """Return this machine's address on the route to a location.

    Sends nothing: connecting a datagram socket only looks up the route.
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


def _train_local(*several: LocalRows | None, job: _Job) -> Any:
    """Train on the rows of this location, together with the others; the body of a task.

    Any of the training and evaluation sets may be ``None`` here, but not all of them.
    """
    xgboost = import_xgboost()
    some = next(rows for rows in several if rows is not None)
    here = [empty_like(some) if rows is None else rows for rows in several]
    coded = [with_codes(rows, job.columns.categories) for rows in here]
    features = job.features.typed(job.columns)
    params = {"nthread": some.threads, **job.params}
    history: dict[str, Any] = {}
    with _joined(job.joining, some.number):
        matrix = make_matrix(coded[0], params, features)
        evaluated = [make_matrix(rows, params, features, matrix) for rows in coded[1:]]
        if len(job.names) > len(evaluated):
            evaluated.insert(0, matrix)
        booster = xgboost.train(
            params,
            matrix,
            num_boost_round=job.num_boost_round,
            evals=list(zip(evaluated, job.names, strict=True)),
            evals_result=history,
            **{"verbose_eval": False, **job.options},
        )
        first = _first_with_rows(some, matrix.num_row())
    if some.number != first:
        return None
    if job.columns.categories:
        remember_categories(booster, here[0], job.features)
    # XGBoost averages over trainers to numbers of NumPy's class.
    plain = {
        name: {metric: [float(value) for value in values] for metric, values in found.items()}
        for name, found in history.items()
    }
    return booster, plain


@contextlib.contextmanager
def _joined(joining: Mapping[str, Any] | None, number: int) -> Iterator[None]:
    """Connect the trainer of this location with the others, if there are any."""
    if joining is None:
        yield
        return
    xgboost = import_xgboost()
    task = {"dmlc_task_id": f"spliter-{number:06d}"}
    context = xgboost.collective.CommunicatorContext(**joining, **task)
    context.__enter__()
    try:
        yield
    finally:
        # The model is complete by now, or an error of the training tells more.
        with contextlib.suppress(xgboost.core.XGBoostError):
            xgboost.collective.finalize()


def _first_with_rows(here: LocalRows, trained_on: int) -> int:
    """Return the number of the first location with training rows; called at every location.

    The booster of a location without rows may lack XGBoost's information on the columns.
    """
    collective = import_xgboost().collective
    mine = here.number + (0 if trained_on else here.locations)
    least = collective.allreduce(np.array([mine], dtype=np.int64), collective.Op.MIN)
    return int(least[0]) % here.locations
