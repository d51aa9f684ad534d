"""Convert layouts to MPI's datatypes and back, through mpi4py."""

from __future__ import annotations

from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError, PackageMissingError
from spliter.layout._boxes import CONSTRUCTORS
from spliter.layout._constructors import of_dtype, resized, struct
from spliter.layout._layout import Layout


def to_mpi(layout: Layout) -> Any:
    """Return a committed MPI datatype of the same bytes, order and bounds; free it with ``Free()``.

    MPI libraries differ in how they pad and in what a struct of resized types extends to; where
    theirs is not ours, ``Create_resized`` is applied. Basic types that MPI has not got (other byte
    orders, strings) become as many ``MPI.BYTE``.

    Raises
    ------
    PackageMissingError
        If mpi4py is not installed.
    """
    return _created(layout, _mpi()).Commit()


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise PackageMissingError(
            f"MPI datatypes need mpi4py ({error}); pip install mpi4py, and an MPI library"
        ) from error
    return MPI


def _created(layout: Layout, mpi: Any) -> Any:
    """Return a new datatype, which is not committed."""
    made = _named(layout, mpi) if layout.combiner == "named" else _derived(layout, mpi)
    if made.Get_extent() == (layout.lb, layout.extent):
        return made
    resized_type = made.Create_resized(layout.lb, layout.extent)
    made.Free()
    return resized_type


def _named(layout: Layout, mpi: Any) -> Any:
    dtype = layout.contents["dtype"]
    if dtype.isnative and dtype.kind in "biufc":
        code = mpi.Datatype.fromcode(dtype.char)
        if code.Get_size() == dtype.itemsize:
            return code.Dup()
    return mpi.BYTE.Create_contiguous(dtype.itemsize)


def _derived(layout: Layout, mpi: Any) -> Any:
    of = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in layout.contents.items()
    }
    parts = of.pop("types") if layout.combiner == "struct" else [of.pop("base")]
    bases = [_created(one, mpi) for one in parts]
    if layout.combiner == "struct":
        made = mpi.Datatype.Create_struct(datatypes=bases, **of)
    else:
        if layout.combiner == "subarray":
            of["order"] = mpi.ORDER_C if of["order"] == "C" else mpi.ORDER_F
        made = getattr(bases[0], f"Create_{layout.combiner}")(**of)
    for base in bases:
        base.Free()
    return made


def from_mpi(datatype: Any) -> Layout:
    """Return the layout of the same bytes, order and bounds as an MPI datatype.

    Parameters
    ----------
    datatype : mpi4py.MPI.Datatype
        Basic or derived; ``darray`` and Fortran's parameterised types are not supported.

    Raises
    ------
    PackageMissingError
        If mpi4py is not installed.
    InvalidArgumentError
        If it is no datatype, or of a kind that is not supported.
    """
    mpi = _mpi()
    if not isinstance(datatype, mpi.Datatype):
        raise InvalidArgumentError(
            f"{datatype!r} is no MPI datatype; pass one of mpi4py, such as MPI.DOUBLE"
        )
    found = _decoded(datatype, mpi)
    lb, extent = datatype.Get_extent()
    return found if (found.lb, found.extent) == (lb, extent) else resized(found, lb, extent)


def _decoded(datatype: Any, mpi: Any) -> Layout:
    base, combiner, of = datatype.decode()
    if combiner == "NAMED":
        return of_dtype(_dtype_of(datatype))
    if combiner == "DUP":
        return _taken(base)
    if combiner == "STRUCT":
        types = [_taken(one) for one in of.pop("datatypes")]
        return struct(types=types, **of)
    if combiner.lower() not in CONSTRUCTORS:
        raise InvalidArgumentError(
            f"MPI datatypes made by {combiner} are not supported; build it from vectors, blocks, "
            "structs or subarrays"
        )
    if combiner == "SUBARRAY":
        of["order"] = "C" if of["order"] == mpi.ORDER_C else "F"
    return CONSTRUCTORS[combiner.lower()](base=_taken(base), **of)


def _taken(datatype: Any) -> Layout:
    """Return the layout of a part of a datatype; MPI made a handle of it for us."""
    found = from_mpi(datatype)
    if not datatype.is_predefined:
        datatype.Free()
    return found


def _dtype_of(datatype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a basic type."""
    found: np.dtype[Any] = np.dtype(datatype.typestr or "V")
    if found.kind == "V" or found.itemsize != datatype.Get_size():
        raise InvalidArgumentError(
            f"the basic type {datatype.Get_name()} has no NumPy dtype; build it as a struct"
        )
    return found
