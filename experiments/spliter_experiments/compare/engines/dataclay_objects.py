"""Persistent class of the comparisons on dataClay; backends import it from here.

It stands for a user's own class: a program without SplIter calls its methods on every block, and
``spliter_block`` gives partitions the array in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay import DataClayObject, activemethod


class ArrayBlock(DataClayObject):  # type: ignore[misc]
    """One block of rows."""

    content: Any

    def __init__(self, content: Any) -> None:
        self.content = content

    def spliter_block(self) -> Any:
        """Return the block that partitions yield, at its backend: the rows, not a copy."""
        return vars(self)["_dc_property_content"]

    def spliter_copy(self) -> Any:
        """Return the block in a process that is no backend: a copy."""
        return self.content

    @activemethod  # type: ignore[untyped-decorator]
    def derive(self, kernel: Callable[..., Any], start: int) -> ArrayBlock:
        """Return a new object at this backend that keeps ``kernel(rows, start)``."""
        made = ArrayBlock(kernel(self.spliter_block(), start))
        made.make_persistent()
        return made

    @activemethod  # type: ignore[untyped-decorator]
    def apply(
        self,
        kernel: Callable[..., Any],
        aligned: tuple[ArrayBlock, ...],
        numbers: tuple[int, ...],
        shared: dict[str, Any],
    ) -> Any:
        """Return ``kernel(rows, *rows of aligned blocks, *numbers, **shared)``."""
        others = (block.spliter_block() for block in aligned)
        return kernel(self.spliter_block(), *others, *numbers, **shared)
