"""Make blocks by PyCOMPSs tasks that report where they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from spliter import BlockGrid, InvalidArgumentError
from spliter_backends.compss.api import runtime_is_up
from spliter_backends.compss.blocks import register_metadata
from spliter_backends.compss.collection import CompssCollection
from spliter_backends.compss.executor import EXECUTOR
from spliter_backends.compss.settings import settings

IN_TURN: Final = "in turn"
"""Value of `nodes` that makes each block at the next node."""


def make_blocks(
    fn: Callable[..., Any],
    arguments: Iterable[Sequence[Any]],
    *,
    chunks: Sequence[Sequence[int]] | None = None,
    nodes: Sequence[str] | Literal["in turn"] | None = None,
) -> CompssCollection:
    """Make blocks by tasks that report where they run, so that `split` needs no further tasks.

    Parameters
    ----------
    fn : callable
        Returns a block; reads a file, for instance.
    arguments : iterable of sequence
        The arguments of `fn` for each block; futures arrive as results.
    chunks : sequence of sequence of int, optional
        Sizes of the blocks along each axis, if known; else the collection has one axis.
    nodes : sequence of str, or "in turn", optional
        Where to make each block: at the nodes in turn, or at named nodes, which must be keys of
        the setting ``pins``. By default, COMPSs decides.

    Returns
    -------
    CompssCollection
        For ``split``; a sequence of PyCOMPSs futures.

    Raises
    ------
    InvalidArgumentError
        If `nodes` has a name that is not in ``pins``, or not one name per block.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> blocks = make_blocks(np.arange, [(0, 3), (3, 5)])
    >>> [int(future.result()) for future in split(blocks).map(lambda part: sum(map(np.sum, part)))]
    [10]
    """
    calls = [tuple(given) for given in arguments]
    base = "make_in_turn" if nodes == IN_TURN else "make"
    blocks = []
    for given, constraints in zip(calls, _constraints(nodes, len(calls)), strict=True):
        block, metadata = EXECUTOR.start(base, fn, given, {}, constraints)
        if runtime_is_up():
            register_metadata(block, metadata)
        else:
            metadata.result()  # raises the error of `fn`
        blocks.append(block)
    unknown = BlockGrid.of_unknown_sizes(len(blocks))
    grid = unknown if chunks is None else BlockGrid.from_chunks(chunks)
    return CompssCollection(blocks, grid)


def _constraints(nodes: Sequence[str] | None, count: int) -> Sequence[Mapping[str, str]]:
    """Return the constraints of each block's task."""
    if nodes is None or nodes == IN_TURN:
        return [{}] * count
    pins = settings().pins
    if isinstance(nodes, str) or len(nodes) != count or not set(nodes) <= pins.keys():
        raise InvalidArgumentError(
            f"nodes must name one of {sorted(pins)} (the setting pins) for each of the {count} "
            f"blocks, or be {IN_TURN!r}; got {nodes!r}"
        )
    return [{"app_software": pins[node]} for node in nodes]
