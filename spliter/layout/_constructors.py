"""The functions that make layouts, named and parameterised like MPI's datatype constructors.

All return a :class:`Layout`, and raise `InvalidArgumentError` as :func:`contiguous` does, or if two
sequences differ in length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter.layout._bounds import Bounds, union
from spliter.layout._integers import Int64s, scaled, whole, whole_array, within
from spliter.layout._layout import Layout
from spliter.layout._nodes import (
    NOTHING,
    Contiguous,
    Placed,
    indexed_block_of,
    indexed_of,
    struct_of,
    vector_of,
)

Base: TypeAlias = "Layout | npt.DTypeLike"
Ints: TypeAlias = "Sequence[int] | npt.NDArray[np.integer[Any]]"

MOST_PLACES: Final = 2**20
"""Blocks of several lengths of a base with gaps become one displacement for each copy of the base,
up to this many (8 MiB of displacements); beyond, one node for each block."""


def contiguous(count: int, base: Base) -> Layout:
    """Return copies of a base one after the other.

    Parameters
    ----------
    count : int
        From 0 on.
    base : Layout or dtype
        What is repeated, at steps of its extent.

    Raises
    ------
    InvalidArgumentError
        If an argument is no integer or negative, the base is no layout and no dtype, or the layout
        would exceed 64 bits.

    Examples
    --------
    >>> contiguous(3, "f8").size
    24
    """
    count = whole("count", count, 0)
    return _at_steps(contiguous, {"count": count, "base": as_layout(base)}, 1, count, 0)


def vector(count: int, blocklength: int, stride: int, base: Base) -> Layout:
    """Return equal blocks at equal steps, counted in extents of the base.

    Parameters
    ----------
    count, blocklength : int
        Number of blocks, and copies of the base in each.
    stride : int
        Extents of the base from one block to the next; may be negative.
    base : Layout or dtype

    Examples
    --------
    >>> column = vector(count=4, blocklength=1, stride=10, base="f8")
    >>> column.size, column.extent
    (32, 248)
    """
    return _vector(vector, count, blocklength, stride, base)


def hvector(count: int, blocklength: int, stride: int, base: Base) -> Layout:
    """Return a :func:`vector` whose stride is in bytes."""
    return _vector(hvector, count, blocklength, stride, base)


def _vector(
    make: Callable[..., Layout], count: int, blocklength: int, stride: int, base: Base
) -> Layout:
    base = as_layout(base)
    count, blocklength = whole("count", count, 0), whole("blocklength", blocklength, 0)
    stride = step = whole("stride", stride)
    if make is vector:
        step = within("stride", stride * base.extent) if count * blocklength * base.size else 0
    contents = {"count": count, "blocklength": blocklength, "stride": stride, "base": base}
    return _at_steps(make, contents, count, blocklength, step)


def _at_steps(
    make: Callable[..., Layout], contents: dict[str, Any], count: int, blocklength: int, step: int
) -> Layout:
    """Return blocks of copies of a base, `step` bytes from one to the next."""
    base = contents["base"]
    bounds = base.bounds.repeated(blocklength, base.extent).repeated(count, step)
    return Layout(make, contents, bounds, lambda: vector_of(count, step, _block(blocklength, base)))


def _block(length: int, base: Layout) -> Placed:
    return vector_of(length, base.extent, base.placed)


def indexed(blocklengths: Ints, displacements: Ints, base: Base) -> Layout:
    """Return blocks of any lengths at any places, counted in extents of the base.

    Parameters
    ----------
    blocklengths : sequence of int
        Copies of the base in each block.
    displacements : sequence of int
        Place of each block in extents of the base, in the order of the packed bytes.
    base : Layout or dtype

    Examples
    --------
    >>> triangle = indexed([3, 2, 1], [0, 4, 8], "f8")
    >>> triangle.size, triangle.extent
    (48, 72)
    """
    return _indexed(indexed, blocklengths, displacements, base)


def hindexed(blocklengths: Ints, displacements: Ints, base: Base) -> Layout:
    """Return :func:`indexed` blocks whose displacements are in bytes."""
    return _indexed(hindexed, blocklengths, displacements, base)


def _indexed(
    make: Callable[..., Layout], blocklengths: Ints, displacements: Ints, base: Base
) -> Layout:
    base = as_layout(base)
    lengths, places = _blocks(blocklengths, displacements)
    contents = {"blocklengths": lengths, "displacements": places, "base": base}
    if not (lengths.any() and base.size):
        return _empty(make, contents)
    if make is indexed:
        places = scaled("displacements", places * (lengths > 0), base.extent)
    bounds = base.bounds.placed(places, lengths)
    return Layout(make, contents, bounds, lambda: _blocks_at(lengths, places, base))


def _empty(make: Callable[..., Layout], contents: dict[str, Any]) -> Layout:
    return Layout(make, contents, Bounds(), lambda: NOTHING)


def _blocks(blocklengths: Ints, displacements: Ints) -> tuple[Int64s, Int64s]:
    lengths = whole_array("blocklengths", blocklengths, 0)
    places = whole_array("displacements", displacements)
    _check_numbers(len(lengths), "displacements", len(places))
    return lengths, places


def _check_numbers(lengths: int, name: str, others: int) -> None:
    if lengths != others:
        raise InvalidArgumentError(
            f"there are {lengths} blocklengths and {others} {name}; pass as many of each"
        )


def _blocks_at(lengths: Int64s, places: Int64s, base: Layout) -> Placed:
    """Return the normal form of blocks at displacements in bytes."""
    filled = lengths > 0
    one, lengths, places = base.placed, lengths[filled], places[filled]
    if (lengths == lengths[0]).all():
        return indexed_block_of(places, _block(int(lengths[0]), base))
    if isinstance(one.node, Contiguous) and one.node.size == base.extent:
        return indexed_of(places + one.displacement, lengths * base.extent)
    copies = int(lengths.sum())
    if copies > MOST_PLACES:
        each = zip(places.tolist(), lengths.tolist(), strict=True)
        return struct_of(_block(many, base).moved(at) for at, many in each)
    number = np.arange(copies) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return indexed_block_of(np.repeat(places, lengths) + number * base.extent, one)


def indexed_block(blocklength: int, displacements: Ints, base: Base) -> Layout:
    """Return blocks of one length at any places, counted in extents of the base.

    Examples
    --------
    >>> chosen = np.array([7, 2, 5])
    >>> atoms = indexed_block(blocklength=3, displacements=3 * chosen, base="f8")
    >>> atoms.size, atoms.lb
    (72, 48)
    """
    return _indexed_block(indexed_block, blocklength, displacements, base)


def hindexed_block(blocklength: int, displacements: Ints, base: Base) -> Layout:
    """Return an :func:`indexed_block` whose displacements are in bytes."""
    return _indexed_block(hindexed_block, blocklength, displacements, base)


def _indexed_block(
    make: Callable[..., Layout], blocklength: int, displacements: Ints, base: Base
) -> Layout:
    base, blocklength = as_layout(base), whole("blocklength", blocklength, 0)
    places = whole_array("displacements", displacements)
    contents = {"blocklength": blocklength, "displacements": places, "base": base}
    block = base.bounds.repeated(blocklength, base.extent)
    if not (places.size and block.size):
        return _empty(make, contents)
    if make is indexed_block:
        places = scaled("displacements", places, base.extent)
    bounds = block.spread(len(places), int(places.min()), int(places.max()))
    return Layout(
        make, contents, bounds, lambda: indexed_block_of(places, _block(blocklength, base))
    )


def struct(blocklengths: Ints, displacements: Ints, types: Sequence[Base]) -> Layout:
    """Return blocks of several layouts at places in bytes.

    The extent is rounded up to the largest alignment of the basic types, as C compilers and MPI
    pad structs; :func:`resized` sets another one.

    Parameters
    ----------
    blocklengths, displacements : sequence of int
        Copies of its type in each block, and its place in bytes.
    types : sequence of Layout or dtype
        What each block consists of.

    Examples
    --------
    >>> particle = struct([3, 1], [0, 24], ["f8", "i4"])
    >>> particle.size, particle.extent
    (28, 32)
    """
    lengths, places = _blocks(blocklengths, displacements)
    if isinstance(types, str | bytes) or not isinstance(types, Sequence):
        raise InvalidArgumentError(
            f"types must be a sequence of layouts, got {types!r}; use a list"
        )
    _check_numbers(len(lengths), "types", len(types))
    bases = tuple(map(as_layout, types))
    bounds = union(
        base.bounds.repeated(length, base.extent).spread(1, place, place)
        for length, place, base in zip(lengths.tolist(), places.tolist(), bases, strict=True)
    ).padded()
    contents = {"blocklengths": lengths, "displacements": places, "types": bases}
    if not bounds.size:
        return _empty(struct, contents)
    return Layout(struct, contents, bounds, lambda: _parts_at(lengths, places, bases))


def _parts_at(lengths: Int64s, places: Int64s, bases: tuple[Layout, ...]) -> Placed:
    if all(base == bases[0] for base in bases):
        return _blocks_at(lengths, places, bases[0])
    each = zip(lengths.tolist(), places.tolist(), bases, strict=True)
    return struct_of(_block(length, base).moved(place) for length, place, base in each)


def resized(base: Base, lb: int, extent: int) -> Layout:
    """Return a layout with other bounds of a repetition; its data stays where it is.

    Parameters
    ----------
    base : Layout or dtype
    lb : int
        New lower bound in bytes.
    extent : int
        Bytes from one repetition to the next; may be less than the data takes, 0 or negative.

    Examples
    --------
    >>> column = vector(4, 1, 4, "f8")
    >>> columns = contiguous(4, resized(column, 0, 8))  # the transpose of a 4 x 4 matrix
    >>> columns.commit().pack(np.arange(16.0)).view("f8")[:5]
    array([ 0.,  4.,  8., 12.,  1.])
    """
    base, lb, extent = as_layout(base), whole("lb", lb), whole("extent", extent)
    contents = {"base": base, "lb": lb, "extent": extent}
    return Layout(resized, contents, base.bounds.resized(lb, extent), lambda: base.placed)


def as_layout(base: Base) -> Layout:
    """Return a layout as it is, and a dtype as a layout; refuse others."""
    return base if isinstance(base, Layout) else of_dtype(base)


def of_dtype(dtype: npt.DTypeLike) -> Layout:
    """Return the layout of an element of an array, without the padding of structured dtypes.

    Parameters
    ----------
    dtype : dtype
        Basic, structured, or a subarray; the byte order stays, and the itemsize is the extent.

    Raises
    ------
    InvalidArgumentError
        If it is no dtype, has no bytes, or holds references to Python objects.

    Examples
    --------
    >>> row = of_dtype(np.dtype([("id", "i4"), ("x", "f8")], align=True))
    >>> row.size, row.extent
    (12, 16)
    """
    made = checked_dtype(dtype)
    if made.subdtype is not None:
        element, shape = made.subdtype
        return contiguous(math.prod(shape), of_dtype(element))
    if made.names is None:
        return named(made)
    fields = [made.fields[name][:2] for name in made.names] if made.fields else []
    filled = [(field, place) for field, place in fields if field.itemsize]
    types = [of_dtype(field) for field, _ in filled]
    row = struct([1] * len(filled), [place for _, place in filled], types)
    return resized(row, 0, made.itemsize)


def named(dtype: np.dtype[Any]) -> Layout:
    """Return the layout of a basic type."""
    nbytes = dtype.itemsize
    bounds = Bounds(nbytes, 0, nbytes, 0, nbytes, dtype.alignment)
    return Layout(named, {"dtype": dtype}, bounds, lambda: Placed(0, Contiguous(nbytes)))


def checked_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a dtype whose elements are bytes; refuse others as :func:`of_dtype` does."""
    try:
        made = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{dtype!r} is neither a layout nor a dtype ({error}); pass one made by "
            "spliter.layout, or a NumPy dtype"
        ) from None
    if dtype is None:
        raise InvalidArgumentError("the base is None; pass a layout or a NumPy dtype")
    if made.hasobject:
        raise InvalidArgumentError(
            f"dtype {made} holds references to Python objects, which are not bytes; convert the "
            "data to numbers or strings of fixed length"
        )
    if not made.itemsize:
        raise InvalidArgumentError(
            f"dtype {made} has elements of size 0; pass one with at least one byte"
        )
    return made


REGULAR: Final = contiguous, vector, hvector, indexed, hindexed, indexed_block, hindexed_block
"""The functions of this module that make layouts of one base."""
