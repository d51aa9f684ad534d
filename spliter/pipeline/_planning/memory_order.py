"""The order in memory of results, which is NumPy's: it decides whether ``ravel`` makes a view."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from spliter.pipeline._annotations.elementwise import Elementwise, Like, axes_of
from spliter.pipeline._annotations.numpy import Along
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.metas import ArrayMeta


class Layout(NamedTuple):
    """An array of at most two items along each axis, in the order in memory of a larger one."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes from the one with the largest stride to that with the smallest."""
        return axes_of(self.strides)


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


def layout_of_results(call: Call, ndim: int, known: Mapping[Node, Layout]) -> Layout | None:
    """Return the layout of a call's results; ``None`` if it is not known.

    Parameters
    ----------
    call : Call
    ndim : int
        Axes of the results.
    known : mapping of Node to Layout
        Of pending values.
    """
    if not isinstance(call.annotation, Along | Elementwise):
        return None
    if call.fn in C_ORDERED or call.kwargs.get("order") == "C":
        return Layout((2,) * ndim, tuple(range(ndim, 0, -1)))
    copied = _copied(call)
    if copied is not None:
        layout = known.get(copied) or _layout_of_value(copied)
        # Axes that a broadcast array repeats are the innermost ones of its copy.
        found = layout and Layout(layout.shape, tuple([level + 1 for level in layout.strides]))
    else:
        inputs = (known.get(node) or _layout_of_value(node) for node in call.inputs)
        found = _layout_of_result(tuple([each for each in inputs if each is not None]))
    return found if found and len(found.shape) == ndim else None


def _copied(call: Call) -> Node | None:
    """Return the array whose copy, in its order in memory, a result is."""
    is_copy = call.fn is np.ndarray.astype or isinstance(call.annotation, Along | Like)
    return call.args[0] if is_copy and isinstance(call.args[0], Node) else None


def _layout_of_value(node: Node) -> Layout | None:
    if isinstance(node.data, np.ndarray):
        return layout_of(node.data)
    shape = node.meta.shape if isinstance(node.meta, ArrayMeta) else (0, 0)
    if len(shape) > 1:
        return None
    return Layout(tuple([min(extent or 2, 2) for extent in shape]), (1,)[: len(shape)])


@functools.lru_cache
def _layout_of_result(inputs: tuple[Layout, ...]) -> Layout:
    """Return the layout that NumPy gives a result."""
    if not inputs:
        return Layout((), ())
    small = [np.ndarray(each.shape, np.uint8, MEMORY, 0, each.strides) for each in inputs]
    flags: Any = [*(["readonly"] for _ in small), ["writeonly", "allocate"]]
    with np.nditer([*small, None], ["zerosize_ok"], flags) as found:
        return layout_of(found.operands[-1])


def empty(shape: Sequence[int], dtype: np.dtype[Any], axes: tuple[int, ...]) -> Any:
    """Return an array whose axes, from the largest stride to the smallest, are `axes`."""
    long = [axis for axis in axes if shape[axis] != 1]
    if long == sorted(long):
        return np.empty(shape, dtype)
    if long == sorted(long, reverse=True):
        return np.empty(shape, dtype, order="F")
    return np.empty([shape[axis] for axis in axes], dtype).transpose(np.argsort(axes))
