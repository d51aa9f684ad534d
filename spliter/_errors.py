"""The errors SplIter raises: one small tree, rooted in :class:`SplIterError`.

Each message says what was wrong and what to do about it. An error raised by the user's own
task is not wrapped: it reaches the caller as it was raised.
"""

from __future__ import annotations


class SplIterError(Exception):
    """Base class of all errors that SplIter raises itself.

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
    """No usable backend can find the blocks of this object."""


class LazyCollectionError(UnsupportedCollectionError):
    """The collection is lazy: its blocks have not been computed."""


class BackendNotUsableError(SplIterError, RuntimeError):
    """The backend is unknown, not installed, or cannot be used from here."""


class ClientClosedError(BackendNotUsableError):
    """The engine's client that a Split or a future belongs to has been closed."""


class AlignmentError(SplIterError, ValueError):
    """Collections that are split together are not blocked alike along axis 0."""


class BlockLostError(SplIterError, RuntimeError):
    """Blocks are lost and the engine cannot recompute them.

    Parameters
    ----------
    message : str
        The full text, naming the lost blocks.
    blocks : tuple of tuple of int, optional
        Indexes of the lost blocks, as far as they are known.
    """

    def __init__(self, message: str, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(message, blocks)
        self.message = message
        self.blocks = blocks

    def __str__(self) -> str:
        """Return the message alone, which names the blocks."""
        return self.message


class BlockTimeoutError(SplIterError, TimeoutError):
    """Blocks did not become available within the configured time."""


class NotEnoughMemoryError(SplIterError, RuntimeError):
    """A partition cannot be materialized because its location has too little memory."""


class PartitionNotLocalError(SplIterError, RuntimeError):
    """A partition was iterated outside the location of its blocks."""


class UnknownItemIndexError(SplIterError, RuntimeError):
    """Item indexes were requested, but the sizes of the blocks are not known."""


class ItemIndexError(SplIterError, IndexError):
    """An item index is out of range: the collection has fewer rows."""


class LayoutBoundsError(SplIterError, IndexError):
    """A layout reaches outside the buffer, or a position is past the packed bytes."""


class LayoutMessageError(SplIterError, ValueError):
    """A message of packed bytes is damaged, truncated, or of another version."""


class LayoutOverlapError(SplIterError, ValueError):
    """Packed bytes cannot be unpacked: the layout has overlapping displacements."""


class SplitClosedError(SplIterError, RuntimeError):
    """A partition or Split was used after the Split was closed."""


class RecordSourceError(SplIterError, RuntimeError):
    """A source of records cannot be reached, refuses a request, or sends too much or too slowly."""


class TaskNotSerializableError(SplIterError, TypeError):
    """A task function or its arguments cannot be sent to a location."""


class TaskTimeoutError(SplIterError, TimeoutError):
    """Tasks did not finish within the caller's timeout."""


class PackageMissingError(SplIterError, ImportError):
    """A feature needs a package that is not installed."""


class TaskFailedError(SplIterError, RuntimeError):
    """A task failed with an error that cannot be sent to the client; the text is its traceback."""


class ForkedError(SplIterError, RuntimeError):
    """The process was forked from the one that runs a pipeline or is connected to an engine."""


class AnnotationError(SplIterError, TypeError):
    """A split annotation names unknown arguments, or its pieces or results do not match it."""


class PipelineFailedError(SplIterError, RuntimeError):
    """A value of a pipeline was used after a call of the pipeline had failed."""


class WholeArrayError(SplIterError, RuntimeError):
    """A pipeline over a Split needs the whole array in the client's memory."""
