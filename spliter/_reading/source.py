"""Where a partition's blocks are read at their location: what a backend implements."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from spliter._errors import PartitionNotLocalError
from spliter._reading.concatenate import concatenate
from spliter._reading.pace import Following, Pace
from spliter._reading.read_ahead import Fetches, ReadAhead

ValueT = TypeVar("ValueT")


class BlockSource(ABC):
    """References to the blocks of one partition; cheap to pickle."""

    @abstractmethod
    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; tuples of blocks if collections are aligned.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location: see :func:`not_local_error`.
        """

    def materialized(self) -> Any:
        """Return the blocks concatenated (:func:`spliter.backend.concatenate`).

        The first call creates the copy, by default for this object, which keeps it. Override it to
        keep the copy where the engine can account for its memory, until the Split is closed or
        garbage-collected.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location.
        InvalidArgumentError
            If blocks of this kind cannot be concatenated.
        """
        # setdefault is atomic, so two threads get the same object.
        copy: CachedValue[Any] = self.__dict__.setdefault("_materialized", CachedValue())
        return copy.get(lambda: concatenate(blocks_of(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the references, without the copy."""
        return {name: value for name, value in vars(self).items() if name != "_materialized"}

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks, to be made before their turn; by default None."""
        return None


def not_local_error(where: str) -> PartitionNotLocalError:
    """Return the error for reading blocks in a process that does not have them.

    Parameters
    ----------
    where : str
        Where they are: ``"at a node"``.
    """
    return PartitionNotLocalError(
        f"this partition's blocks are {where}, not in this process; pass it to a function "
        "decorated with spliter.task, or call partition.submit(fn)"
    )


class RemoteSource(BlockSource):
    """Source of a partition away from its blocks, which cannot be read.

    Engines derive what the program holds of a partition, to send it to their tasks. It pickles as a
    plain `RemoteSource`, or as what tasks read.

    Parameters
    ----------
    where : str
        Where the blocks are, for the error: ``"at a node"``.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self) -> Any:
        """Raise `PartitionNotLocalError`."""
        raise not_local_error(self.where)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSource, (self.where,)


def read_ahead(
    source: BlockSource,
    split: str = "",
    pace: Pace | None = None,
    following: Following | None = None,
) -> ReadAhead | None:
    """Return a :class:`ReadAhead` of a source; ``None`` if it does not offer fetches."""
    fetches = source.fetches()
    return None if fetches is None else ReadAhead(fetches, split, pace, following)


def blocks_of(source: BlockSource) -> Iterator[Any]:
    """Return an iterator over the blocks of a source, which reads ahead if the source offers it."""
    return read_ahead(source) or source.read()


def some_blocks(source: BlockSource, numbers: Sequence[int]) -> Iterator[Any]:
    """Return an iterator over some blocks of a source, by their ascending numbers in it.

    Other blocks are not read, if the source offers fetches.
    """
    fetches = source.fetches()
    if fetches is not None:
        return ReadAhead(fetches.only(numbers), "", None, None)
    chosen = set(numbers)
    return (block for number, block in enumerate(source.read()) if number in chosen)


class CachedValue(Generic[ValueT]):
    """A value computed by the first thread that needs it, while the others wait.

    For :meth:`BlockSource.materialized`. If the computation raises, the next thread tries again.

    Examples
    --------
    >>> one = CachedValue()
    >>> one.get(lambda: [1, 2]) is one.get(lambda: [3])
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[ValueT] | None = None

    def get(self, make: Callable[[], ValueT]) -> ValueT:
        """Return the value; call `make` if there is none yet."""
        with self._lock:
            if self._made is None:
                self._made = (make(),)
            return self._made[0]
