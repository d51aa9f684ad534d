"""The order in memory of results, which is NumPy's: it decides whether ``ravel`` makes a view."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from spliter.pipeline._annotations.numpy import Along
from spliter.pipeline._elementwise import Elementwise, Like, assigned
from spliter.pipeline._graph import ArrayMeta, Call, Node


class Layout(NamedTuple):
    """An array of at most two items along each axis, in the order in memory of a larger one."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


MEMORY: Final = np.zeros(64 * 64, np.uint8)
"""Of the small arrays: NumPy's have at most 64 axes, and 64 different strides."""

C_ORDERED: Final = frozenset(
    {np.argsort, np.isin, np.iscomplex, np.searchsorted, np.digitize, np.interp}
)
"""Functions whose results are in C order; others keep the order of their arguments."""


def layout_of(array: Any) -> Layout:
    """Return the layout of an array."""
    strides = [abs(stride) for stride in array.strides]
    levels = sorted({0, *strides})
    shape = tuple([min(extent, 2) for extent in array.shape])
    return Layout(shape, tuple([levels.index(stride) for stride in strides]))


def layout_of_results(call: Call, known: Mapping[Node, Layout]) -> Layout | None:
    """Return the layout of a call's results; ``None`` if they are in C order, or it is not known.

    Parameters
    ----------
    call : Call
    known : mapping of Node to Layout
        Of pending values.
    """
    inputs = [known.get(each) or _layout_of_value(each) for each in _models(call)]
    return _layout_of_result(tuple(inputs)) if inputs and None not in inputs else None


def _models(call: Call) -> Sequence[Node]:
    """Return the inputs that decide on the layout of the results."""
    if call.into is not None:
        return [call.into]
    if call.fn in C_ORDERED or call.kwargs.get("order") == "C":
        return []
    if call.fn is assigned or isinstance(call.annotation, Along | Like):
        return call.inputs[:1]
    return call.inputs if isinstance(call.annotation, Elementwise) else []


def _layout_of_value(node: Node) -> Layout | None:
    if isinstance(node.data, np.ndarray):
        return layout_of(node.data)
    shape = node.meta.shape if isinstance(node.meta, ArrayMeta) else (0, 0)
    return (
        Layout(tuple(min(extent or 2, 2) for extent in shape), (1,)[: len(shape)])
        if len(shape) < 2
        else None
    )


@functools.lru_cache
def _layout_of_result(inputs: tuple[Layout, ...]) -> Layout:
    """Return the layout that NumPy gives a result."""
    small = [np.ndarray(each.shape, np.uint8, MEMORY, 0, each.strides) for each in inputs]
    flags: Any = [*(["readonly"] for _ in small), ["writeonly", "allocate"]]
    with np.nditer([*small, None], ["zerosize_ok"], flags) as found:
        return layout_of(found.operands[-1])


def empty(shape: Sequence[int], dtype: np.dtype[Any], layout: Layout | None) -> Any:
    """Return an array of a layout; in C order if there is none."""
    if layout is None:
        return np.empty(shape, dtype)
    axes = sorted(range(len(shape)), key=lambda axis: -layout.strides[axis])
    if axes == sorted(axes, reverse=True):  # in a view, `transpose` would not own its memory
        return np.empty(shape, dtype, order="F")
    memory = np.empty([shape[axis] for axis in axes], dtype)
    return memory if axes == sorted(axes) else memory.transpose(np.argsort(axes))
