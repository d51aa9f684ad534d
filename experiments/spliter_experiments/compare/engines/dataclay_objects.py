"""The persistent class of the comparisons on dataClay; backends import it from here.

A user's own class: its methods are what a program without SplIter calls on every block, and by
``spliter_block`` partitions yield the array in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spliter_backends.dataclay.quiet import quiet

with quiet():
    from dataclay import DataClayObject, activemethod


class ArrayBlock(DataClayObject):  # type: ignore[misc]
    """One block of rows.

    Parameters
    ----------
    content : ndarray
        The rows.
    """

    content: Any

    def __init__(self, content: Any) -> None:
        self.content = content

    def spliter_block(self) -> Any:
        """Return what partitions yield for this object, at its backend: the rows, not a copy."""
        return vars(self)["_dc_property_content"]

    @activemethod  # type: ignore[untyped-decorator]
    def apply(
        self, kernel: Callable[..., Any], aligned: tuple[ArrayBlock, ...], args: tuple[Any, ...]
    ) -> Any:
        """Run a kernel on this block.

        Parameters
        ----------
        kernel : callable
            Called as ``kernel(rows, *rows of aligned blocks, *args)``.
        aligned : tuple of ArrayBlock
            Of the same backend.
        args : tuple
            Further arguments.
        """
        return kernel(self.spliter_block(), *(block.spliter_block() for block in aligned), *args)
