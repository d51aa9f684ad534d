"""An engine as the core knows it: a locator, executors, and what is declared of it.

A backend has two halves that combine freely: a *locator* finds where the blocks of a
collection are, an *executor* runs a function at a location. ``split`` has the locator
open the collections, plans, and passes each partition to the executor::

    locator.open(x, y) ──> Blocks ── .locate() ──> Placement ──> plan() ──> partitions
                              └── .sources(plan) ──> one BlockSource per partition
    executor.capacities(locations)                   executor.submit(fn, (partition,), ...)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from spliter.backend.blocks import Blocks
from spliter.backend.executor import Executor


class Locator(ABC):
    """The half of a backend that finds blocks."""

    @abstractmethod
    def recognises(self, collection: Any) -> bool:
        """Return whether `collection` is of a kind whose blocks this locator can find.

        Must not do any work on the data. A collection of the right type in a wrong
        state (lazy, say) is recognised; `open` then raises the error that explains it.
        """

    @abstractmethod
    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open one collection, or several aligned ones; the first is being split.

        Raises
        ------
        LazyCollectionError
            If the blocks do not exist.
        UnsupportedCollectionError
            If one of the collections is not of this engine.
        """

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Start to compute the blocks of lazy collections, in one go, without waiting.

        Returns
        -------
        sequence of collection
            In the same order, those that are not lazy (by default all) unchanged. The engine keeps
            the computed blocks in memory as long as these collections, or their :meth:`open`
            results, are referenced.
        """
        return collections


class GraphScheduler(Protocol):
    """Runs task graphs of an engine at the granularity of partitions: see ``partitioned``."""

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        """Return the values of `keys`, nested as they are; called by the engine's collections."""
        ...

    def persist(self, collections: Any, **options: Any) -> Any:
        """Compute collections and keep their blocks in the engine's memory."""
        ...

    def explain(self, *collections: Any) -> Any:
        """Return a description, with a readable ``repr``, of what would run; runs nothing."""
        ...

    def __enter__(self) -> Self:
        """Run all collections of the engine so until the exit; may be nested."""
        ...

    def __exit__(self, *error: object) -> None:
        """Restore what was in force before."""
        ...


@dataclass(frozen=True)
class Declaration:
    """A backend's metadata, available without importing it.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``, and of the module ``spliter_backends.<name>``,
        whose ``BACKEND`` is the :class:`Backend`.
    serves : frozenset of str
        Packages that define the collections and futures it may recognise.
    engine : str or None
        Distribution whose version ``backends()`` reports.
    extra : str or None
        Extras of SplIter, separated by commas, that install its requirements.
    keywords : frozenset of str
        Keywords that the engine's decorators pass to a task decorated below them.
    graphs : bool
        Whether ``partitioned()`` without arguments uses this backend.
    task_options, block_options : mapping of str to str
        Options of the engine's own functions that start a task, and that apply a function to each
        block, with what takes their place. A task whose function does not accept them is refused.
    block_parameters : tuple of str
        Parameters of a function of a block that the engine itself would fill in.
    """

    name: str
    serves: frozenset[str]
    engine: str | None = None
    extra: str | None = None
    keywords: frozenset[str] = frozenset()
    graphs: bool = False
    task_options: Mapping[str, str] = field(default_factory=dict)
    block_options: Mapping[str, str] = field(default_factory=dict)
    block_parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """A loaded backend: its locator and its executors.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``.
    locator : Locator or None
        Finds blocks of this engine's collections; ``None`` if it has none of its own.
    executor_of_future : callable
        Takes a future and returns this engine's executor for it, ``None`` if the
        future is not of this engine. Used by ``reduce`` and ``gather``.
    executor : callable or None
        Makes an executor for blocks found by *another* backend's locator, for engines
        that run tasks over other engines' data.
    partitioned : callable or None
        Takes a client of the engine (or ``None``: the current one) and the partitions per location
        (or ``None``), and returns the scheduler of :func:`spliter.partitioned`. Raises
        ``InvalidArgumentError`` for anything that is not a client.
    """

    name: str
    locator: Locator | None
    executor_of_future: Callable[[Any], Executor | None]
    executor: Callable[[Blocks], Executor] | None = None
    partitioned: Callable[[Any, int | None], GraphScheduler] | None = None
