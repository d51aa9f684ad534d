"""Describe data that is not contiguous, and move it as one contiguous message.

A layout says which bytes belong to the data, in the words of MPI's derived datatypes. Committed, it
packs these bytes, or any part of them, and unpacks them again; compiled for its shape where that
pays, as DAME does (Prabhu and Gropp, 2018).

>>> import numpy as np
>>> from spliter import layout as lo
>>> x = np.arange(16.0).reshape(4, 4)
>>> column = lo.vector(count=4, blocklength=1, stride=4, base="f8").commit()
>>> column.pack(x[:, 2:]).view("f8")
array([ 2.,  6., 10., 14.])
"""

from __future__ import annotations

from spliter.layout._bound_packer import BoundPacker
from spliter.layout._boxes import of_array, subarray
from spliter.layout._constructors import (
    contiguous,
    hindexed,
    hindexed_block,
    hvector,
    indexed,
    indexed_block,
    of_dtype,
    resized,
    struct,
    vector,
)
from spliter.layout._explain import Explanation
from spliter.layout._layout import Layout
from spliter.layout._message import Message, message_nbytes, read_message, write_message
from spliter.layout._mpi import from_mpi, to_mpi
from spliter.layout._packer import Packer

__all__ = [
    "BoundPacker",
    "Explanation",
    "Layout",
    "Message",
    "Packer",
    "contiguous",
    "from_mpi",
    "hindexed",
    "hindexed_block",
    "hvector",
    "indexed",
    "indexed_block",
    "message_nbytes",
    "of_array",
    "of_dtype",
    "read_message",
    "resized",
    "struct",
    "subarray",
    "to_mpi",
    "vector",
    "write_message",
]
