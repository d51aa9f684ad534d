"""Layouts of boxes cut out of arrays, and of NumPy's views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter.layout._constructors import (
    REGULAR,
    Base,
    Ints,
    as_layout,
    hindexed_block,
    hvector,
    of_dtype,
    resized,
    struct,
)
from spliter.layout._integers import whole_array, within
from spliter.layout._layout import Layout
from spliter.layout._nodes import Placed, vector_of


def subarray(
    sizes: Ints, subsizes: Ints, starts: Ints, base: Base, order: Literal["C", "F"] = "C"
) -> Layout:
    """Return a box cut out of an array; its extent is that of the whole array.

    Parameters
    ----------
    sizes, subsizes : sequence of int
        Shape of the array and of the box, each number from 1 on.
    starts : sequence of int
        First index of the box in each dimension.
    base : Layout or dtype
        Elements of the array.
    order : {"C", "F"}
        Whether the last or the first index is that of neighbours in memory.

    Examples
    --------
    >>> inner = subarray([6, 6], [4, 4], [1, 1], "f8")
    >>> inner.size, inner.extent, inner.true_lb
    (128, 288, 56)
    """
    base = as_layout(base)
    shape = whole_array("sizes", sizes, 1)
    box, begin = whole_array("subsizes", subsizes, 1), whole_array("starts", starts, 0)
    _check_box(shape.tolist(), box.tolist(), begin.tolist())
    if order not in {"C", "F"}:
        raise InvalidArgumentError(f'order must be "C" or "F", got {order!r}; pass one of them')
    contents = {"sizes": shape, "subsizes": box, "starts": begin, "order": order, "base": base}
    dimensions = [*zip(shape.tolist(), box.tolist(), begin.tolist(), strict=True)]
    nested = dimensions[::-1] if order == "C" else dimensions
    bounds, step = base.bounds, base.extent
    for size, subsize, start in nested:
        bounds = bounds.repeated(subsize, step).spread(1, start * step, start * step)
        step *= size
    bounds = bounds.resized(base.lb, within("the extent of the array", step))
    return Layout(subarray, contents, bounds, lambda: _box(nested, base))


def _box(dimensions: list[tuple[int, int, int]], base: Layout) -> Placed:
    """Return the normal form of a box: sizes, subsizes and starts from the innermost dimension."""
    placed, step = base.placed, base.extent
    for size, subsize, start in dimensions:
        placed = vector_of(subsize, step, placed).moved(start * step)
        step *= size
    return placed


def _check_box(sizes: list[int], subsizes: list[int], starts: list[int]) -> None:
    if not sizes or not len(sizes) == len(subsizes) == len(starts):
        raise InvalidArgumentError(
            f"sizes={sizes}, subsizes={subsizes} and starts={starts} differ in their dimensions; "
            "pass as many of each, at least one"
        )
    for size, subsize, start in zip(sizes, subsizes, starts, strict=True):
        if start + subsize > size:
            raise InvalidArgumentError(
                f"a box of {subsizes} from {starts} on is not inside an array of {sizes}; "
                f"start + subsize must be <= size, here {start} + {subsize} > {size}"
            )


def of_array(view: npt.NDArray[Any], base: npt.NDArray[Any] | None = None) -> Layout:
    """Return the layout of an array's elements in memory, in C order.

    Parameters
    ----------
    view : ndarray
        Any strides: slices, steps, transposed and reversed arrays.
    base : ndarray, optional
        Array whose first element the displacements count from; by default, `view`.

    Raises
    ------
    InvalidArgumentError
        If it is no array, lies outside of the base, or has a dtype that :func:`of_dtype` refuses.

    Examples
    --------
    >>> x = np.arange(12).reshape(3, 4)
    >>> inner = of_array(x[1:, 1:3], x)
    >>> inner.commit().pack(x).view(x.dtype)
    array([ 5,  6,  9, 10])
    """
    for array in (view,) if base is None else (view, base):
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise InvalidArgumentError(
                f"of_array() takes NumPy arrays, got {type(array).__name__}; of masked arrays "
                "pass .data and .mask one after the other"
            )
    found = of_dtype(view.dtype)
    for count, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        found = hvector(count, 1, stride, found)
    if base is None:
        return found
    if view.size and not np.may_share_memory(view, base):
        raise InvalidArgumentError(
            "of_array() got a view whose memory lies outside of that of the base; pass the array "
            "that it is a view of"
        )
    return hindexed_block(1, [view.ctypes.data - base.ctypes.data], found)


CONSTRUCTORS: Final[dict[str, Callable[..., Layout]]] = {
    make.__name__: make for make in (*REGULAR, struct, subarray, resized)
}
"""The functions that make layouts of layouts, by name."""
