"""List the backends, choose one for a collection, and explain why one is not usable.

Built-in backends are declared in a table, so ``import spliter`` imports no engine. A backend's
module is imported only for a collection (or a future) from one of the packages it serves, or
when it is requested by name. Other distributions add backends through the entry-point group
``spliter.backends``: the entry point's name is the backend's name, and it resolves to a
:class:`spliter.backend.Backend`. Entry points in the group ``spliter.collections`` declare which
packages such a backend serves: the name is the package, the value the backend's name.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from spliter._errors import (
    BackendNotUsableError,
    InvalidArgumentError,
    UnsupportedCollectionError,
)
from spliter._format import describe_type
from spliter._hints import explain_not_a_collection
from spliter.backend.engine import Backend, Declaration, GraphScheduler, Locator
from spliter.backend.executor import Executor

ENTRY_POINT_GROUP = "spliter.backends"
COLLECTIONS_GROUP = "spliter.collections"

BUILT_IN = "spliter_backends"
"""The package whose ``DECLARED`` lists the built-in backends."""


@dataclass(frozen=True)
class BackendInfo:
    """Information about one backend, returned by :func:`backends`.

    Parameters
    ----------
    name : str
        Name for ``split(..., backend=name)``.
    usable : bool
        Whether it can be imported here.
    reason : str
        Why it cannot be imported; empty if it can.
    extra : str or None
        Extra to install: ``pip install "pyspliter[extra]"``.
    version : str or None
        Version of the engine, if it is installed.
    """

    name: str
    usable: bool
    reason: str
    extra: str | None
    version: str | None


@functools.cache
def declared() -> Mapping[str, Declaration]:
    """Return the built-in backends by name, in the order of their table."""
    return {each.name: each for each in importlib.import_module(BUILT_IN).DECLARED}


@functools.cache
def decorators_keywords() -> frozenset[str]:
    """Return the keywords that an engine's decorators may add to a call of a task."""
    return frozenset().union(*(each.keywords for each in declared().values()))


@functools.cache
def options_of_tasks() -> Mapping[str, str]:
    """Return the engines' own options of tasks, which are refused, with what takes their place."""
    return {
        name: instead for each in declared().values() for name, instead in each.task_options.items()
    }


@functools.cache
def options_of_blocks() -> tuple[Mapping[str, str], Collection[str]]:
    """Return such options of functions of a block, and the parameters that an engine fills in."""
    every = declared().values()
    options = {name: instead for each in every for name, instead in each.block_options.items()}
    return options, [name for each in every for name in each.block_parameters]


@functools.cache
def _entry_points() -> Mapping[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


@functools.cache
def _served_by_others() -> Mapping[str, frozenset[str]]:
    """Return the packages served by each backend of another distribution, as it declares them."""
    served: dict[str, frozenset[str]] = {}
    for point in metadata.entry_points(group=COLLECTIONS_GROUP):
        served[point.value] = served.get(point.value, frozenset()) | {point.name}
    return served


def _names() -> list[str]:
    return [*declared(), *sorted(_entry_points())]


def load(name: str) -> Backend:
    """Import a backend by its name, that of a built-in one or of an entry point.

    Raises
    ------
    BackendNotUsableError
        If there is none of that name, or its requirements are not installed.
    """
    if name in declared():
        return _load_built_in(name)
    if name not in _entry_points():
        raise BackendNotUsableError(
            f"there is no backend {name!r}; there are {', '.join(map(repr, _names()))}"
        )
    found = _load_entry_point(name)
    if isinstance(found, Backend):
        return found
    reason, cause = found
    raise BackendNotUsableError(reason) from cause


@functools.cache
def _load_entry_point(name: str) -> Backend | tuple[str, Exception | None]:
    """Import a third-party backend once; return the reason if that fails.

    A backend that does not declare its packages is tried for every collection and every future,
    so a broken one must not be imported each time.
    """
    point = _entry_points()[name]
    cause = None
    try:
        backend = point.load()
        if isinstance(backend, Backend):
            return backend
        wrong = f"is not a spliter.backend.Backend but {type(backend)}"
    except Exception as error:  # noqa: BLE001 -- importing third-party code may raise anything
        wrong, cause = f"cannot be imported: {error}", error.with_traceback(None)
    return f"backend {name!r} ({point.value}) {wrong}; repair or uninstall its distribution", cause


@functools.cache
def _load_built_in(name: str) -> Backend:
    line = declared()[name]
    try:
        backend = importlib.import_module(f"{BUILT_IN}.{name}").BACKEND
    except ImportError as error:
        hint = f'; pip install "pyspliter[{line.extra}]"' if line.extra else ""
        raise BackendNotUsableError(
            f"backend {line.name!r} is not usable here: {error}{hint}"
        ) from error
    assert isinstance(backend, Backend)
    return backend


def backends() -> list[BackendInfo]:
    """List the backends and whether each can be used here.

    Built-in backends come first, then those of other distributions by name.

    Examples
    --------
    >>> from spliter import backends
    >>> [info.name for info in backends()][:2]
    ['local', 'dask']
    """
    return [_describe(name) for name in _names()]


def _describe(name: str) -> BackendInfo:
    line = declared().get(name)
    reason = ""
    try:
        load(name)
    except BackendNotUsableError as error:
        reason = str(error)
    engine = line.engine if line else None
    try:
        version = metadata.version(engine) if engine else None
    except metadata.PackageNotFoundError:
        version = None
    return BackendInfo(name, not reason, reason, line.extra if line else None, version)


def _packages(value: Any) -> set[str]:
    """Return the packages of a value's type and its bases; for a list, of its first element."""
    if isinstance(value, list | tuple) and value:
        return _packages(value[0])
    modules = (base.__module__.split(".") for base in type(value).__mro__)
    nested = {".".join(names[:end]) for names in modules for end in range(1, len(names) + 1)}
    return nested - {"typing", "abc"}


def _candidates(value: Any) -> Iterator[tuple[str, Backend | BackendNotUsableError]]:
    """Yield the backends that may know `value`, or the error of one that cannot be imported."""
    packages = _packages(value)
    serves = {name: each.serves for name, each in declared().items()}
    serves.update(_served_by_others())
    may_know = [name for name in _names() if serves.get(name, packages) & packages]
    # "local" last: it accepts all standard-library futures, also those created by other engines.
    names = sorted(may_know, key=lambda name: name == "local")
    for name in names:
        try:
            yield name, load(name)
        except BackendNotUsableError as error:
            yield name, error


def locator_for(collection: Any, backend: str | None) -> Locator:
    """Find the locator of the backend that recognises a collection, or of the one that is named.

    Raises
    ------
    InvalidArgumentError
        If `backend` is not a name.
    BackendNotUsableError
        If the backend (requested, or the only candidate) cannot be imported, or more
        than one backend recognises the collection.
    UnsupportedCollectionError
        If no backend recognises it.
    """
    if backend is not None:
        if not isinstance(backend, str):
            raise InvalidArgumentError(
                f"backend must be a name such as 'dask' or 'local', got {backend!r}"
            )
        chosen = load(backend)
        if chosen.locator is not None and (
            chosen.executor is None or chosen.locator.recognises(collection)
        ):
            return chosen.locator  # open() explains why a collection is not suitable
        if chosen.locator is None and chosen.executor is None:
            raise BackendNotUsableError(
                f"backend {backend!r} supports no collections and no blocks of other backends; "
                "pass the name of another backend"
            )
    found: list[tuple[str, Locator]] = []
    unusable: dict[str, BackendNotUsableError] = {}
    for name, candidate in _candidates(collection):
        if isinstance(candidate, BackendNotUsableError):
            unusable[name] = candidate
        elif candidate.locator is not None and candidate.locator.recognises(collection):
            found.append((name, candidate.locator))
    if len(found) > 1:
        names = ", ".join(repr(name) for name, _ in found)
        raise BackendNotUsableError(
            f"several backends ({names}) can split {describe_type(collection)}; "
            "choose one with split(..., backend=NAME)"
        )
    if found:
        return found[0][1]
    if declared().keys() & unusable.keys():  # a built-in backend serves this collection's package
        raise next(iter(unusable.values()))
    refusal = UnsupportedCollectionError(explain_not_a_collection(collection, _names()))
    for error in unusable.values():  # third-party backends, which may be unrelated
        refusal.add_note(str(error))
    raise refusal


def is_collection(value: Any) -> bool:
    """Return whether :func:`spliter.split` accepts a value's type; its data is not touched.

    A lazy collection counts, and one of a built-in backend that cannot be imported here: ``split``
    then raises the reason.

    Examples
    --------
    >>> import numpy as np
    >>> is_collection([np.zeros(3), np.ones(2)]), is_collection(np.zeros(3))
    (True, False)
    """
    return any(
        isinstance(candidate, BackendNotUsableError)
        or (candidate.locator is not None and candidate.locator.recognises(value))
        for name, candidate in _candidates(value)
        if isinstance(candidate, Backend) or name in declared()
    )


def graph_scheduler(
    client: Any, partitions_per_location: int | None, backend: str | None
) -> GraphScheduler:
    """Make the scheduler of ``partitioned``; with no client, for the current one."""
    if backend is None and client is None:
        names = [name for name, each in declared().items() if each.graphs]
        found: list[Backend | BackendNotUsableError] = [load(names[0])]
    elif backend is None:
        found = [candidate for _, candidate in _candidates(client)]
    else:
        found = [load(backend)]
    for candidate in found:
        if isinstance(candidate, Backend) and candidate.partitioned is not None:
            return candidate.partitioned(client, partitions_per_location)
    if backend is not None:
        raise BackendNotUsableError(
            f"backend {backend!r} does not run graphs; call split and loop over the partitions"
        )
    for candidate in found:
        if isinstance(candidate, BackendNotUsableError):
            raise candidate
    raise InvalidArgumentError(
        "partitioned() takes a client of an engine that runs graphs, such as distributed.Client; "
        f"got {describe_type(client)}"
    )


def executor_of_future(future: Any) -> Executor:
    """Return the executor of the engine that a future belongs to.

    Raises
    ------
    InvalidArgumentError
        If no backend knows this kind of future.
    """
    for _, candidate in _candidates(future):
        if isinstance(candidate, Backend):
            executor = candidate.executor_of_future(future)
            if executor is not None:
                return executor
    raise InvalidArgumentError(
        f"{describe_type(future)} is not a future of a known engine; pass results of task, "
        "Partition.submit or Split.map"
    )
