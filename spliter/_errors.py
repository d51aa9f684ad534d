"""The errors SplIter raises: one small tree, rooted in :class:`SplIterError`.

Each message says what was wrong and what to do about it. An error raised by the
user's own task never gets wrapped: it reaches the caller as it was raised.
"""

from __future__ import annotations


class SplIterError(Exception):
    """Root of every error that SplIter raises on its own account.

    Examples
    --------
    >>> from spliter import SplIterError, split
    >>> try:
    ...     split(42)
    ... except SplIterError as error:
    ...     print(type(error).__name__)
    UnsupportedCollectionError
    """


class InvalidArgumentError(SplIterError, ValueError):
    """An argument has a value that cannot be used."""


class UnsupportedCollectionError(SplIterError, TypeError):
    """No usable backend knows how to find the blocks of this object."""


class LazyCollectionError(UnsupportedCollectionError):
    """The collection is a recipe whose blocks do not exist anywhere yet."""


class BackendNotUsableError(SplIterError, RuntimeError):
    """The backend is unknown, not installed, or cannot be used from here."""


class ClientClosedError(BackendNotUsableError):
    """The engine's client that a Split or a future belongs to was closed."""


class AlignmentError(SplIterError, ValueError):
    """Collections that are split together are not blocked alike along axis 0."""


class BlockLostError(SplIterError, RuntimeError):
    """Blocks are gone and the engine has no way to make them again.

    Parameters
    ----------
    message : str
        What happened and what to do.
    blocks : tuple of tuple of int, optional
        Block indexes of the lost blocks, as far as they are known.
    """

    def __init__(self, message: str, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(message, blocks)
        self.message = message
        self.blocks = blocks

    def __str__(self) -> str:
        """Return the message alone; the blocks are named in it."""
        return self.message


class BlockTimeoutError(SplIterError, TimeoutError):
    """Blocks did not become available within the configured time."""


class NotEnoughMemoryError(SplIterError, RuntimeError):
    """A partition was to be materialized where it could never fit."""


class PartitionNotLocalError(SplIterError, RuntimeError):
    """A partition was iterated away from the location of its blocks."""


class UnknownItemIndexError(SplIterError, RuntimeError):
    """Item indexes were asked for where the sizes of the blocks are not known."""


class SplitClosedError(SplIterError, RuntimeError):
    """A partition or Split was used after the Split was closed."""


class TaskNotSerializableError(SplIterError, TypeError):
    """A task function or its arguments cannot be sent to a location."""


class TaskTimeoutError(SplIterError, TimeoutError):
    """Tasks have not finished within the time that the caller gave them."""


class PackageMissingError(SplIterError, ImportError):
    """Something was asked for that needs a package which is not installed."""


class TaskFailedError(SplIterError, RuntimeError):
    """A task ended in a way that cannot be brought here as it was; its traceback is the text."""
