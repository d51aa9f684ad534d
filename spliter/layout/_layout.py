"""A layout: which bytes, relative to an address, belong to the data, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter.layout._bounds import Bounds
from spliter.layout._integers import shown
from spliter.layout._nodes import Placed
from spliter.layout._packer import Engine, Packer

MOST_DEPTH: Final = 100
"""Layouts are followed by recursion, which Python ends at 1000 calls: several for each level."""


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """Bytes of data relative to an address, in the words of MPI's derived datatypes.

    Made by the functions of :mod:`spliter.layout`; an immutable value that can be compared, hashed
    and pickled.

    Parameters
    ----------
    make, contents : callable, and mapping of str to object
        Function that made it, and its arguments: ints, read-only int64 arrays and layouts.
    bounds : Bounds
        Size and bounds in bytes.
    lower : callable
        Returns the normal form.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> column = lo.vector(count=3, blocklength=1, stride=4, base="f8")
    >>> column
    vector(count=3, blocklength=1, stride=4, base='f8')
    >>> column.size, column.lb, column.extent
    (24, 0, 72)
    >>> column.combiner, column.contents["stride"]
    ('vector', 4)
    """

    make: Callable[..., Layout]
    contents: Mapping[str, Any]
    bounds: Bounds
    lower: Callable[[], Placed]

    def __post_init__(self) -> None:
        object.__setattr__(self, "contents", MappingProxyType(self.contents))
        if self._depth > MOST_DEPTH:
            raise InvalidArgumentError(
                f"layouts are nested {self._depth} deep, more than the {MOST_DEPTH} levels that "
                "are supported; describe the data with fewer"
            )

    @cached_property
    def _depth(self) -> int:
        """Number of layouts, one in the other."""
        bases = self.contents.get("types", (self.contents.get("base"),))
        return 1 + max((base._depth for base in bases if base is not None), default=0)

    @cached_property
    def placed(self) -> Placed:
        """The normal form; made when it is needed, as it may take more memory than the layout."""
        return self.lower()

    @property
    def combiner(self) -> str:
        """Name of the function: ``"vector"``, ``"struct"``, ...; ``"named"`` for basic types."""
        return self.make.__name__

    @property
    def size(self) -> int:
        """Bytes of data, which is the length of the packed bytes."""
        return self.bounds.size

    @property
    def lb(self) -> int:
        """Lower bound of a repetition in bytes."""
        return self.bounds.lb

    @property
    def extent(self) -> int:
        """Bytes from one repetition to the next."""
        return self.bounds.extent

    @property
    def true_lb(self) -> int:
        """Bytes from the address to the first byte of data."""
        return self.bounds.true_lb

    @property
    def true_extent(self) -> int:
        """Bytes from the first byte of data to the end of the last."""
        return self.bounds.true_ub - self.bounds.true_lb

    def commit(self, engine: Engine | None = None) -> Packer:
        """Check the layout's normal form, and return what packs it.

        Parameters
        ----------
        engine : {"numpy", "llvm"} or None
            ``"numpy"`` copies with NumPy alone; ``"llvm"`` with machine code compiled for this
            shape of layout, which needs ``pip install 'pyspliter[jit]'``. ``None`` starts with
            NumPy and compiles as soon as that pays, if llvmlite is installed.

        Raises
        ------
        InvalidArgumentError
            If there is no such engine.
        PackageMissingError
            If ``"llvm"`` was passed and llvmlite is not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import layout as lo
        >>> lo.vector(3, 1, 4, "i4").commit().pack(np.arange(12, dtype="i4")).view("i4")
        array([0, 4, 8], dtype=int32)
        """
        return Packer(self, engine)

    @cached_property
    def _value(self) -> tuple[Any, ...]:
        return self.combiner, *((name, _hashable(one)) for name, one in self.contents.items())

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Layout) else NotImplemented

    @cached_property
    def _hash(self) -> int:
        return hash(self._value)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.combiner == "named":
            return f"named({_repr_of(self)})"
        each = ", ".join(f"{name}={_repr_of(one)}" for name, one in self.contents.items())
        return f"{self.combiner}({each})"

    def __reduce__(self) -> tuple[Callable[[], Layout], tuple[()]]:
        return partial(self.make, **self.contents), ()


def _hashable(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _repr_of(value: Any) -> str:
    """Return a short representation of an argument."""
    if isinstance(value, np.ndarray):
        return shown(value)
    if isinstance(value, Layout) and value.combiner == "named":
        dtype = value.contents["dtype"]
        return repr(dtype.str[1:] if dtype.isnative and dtype.kind != "M" else dtype.str)
    if isinstance(value, tuple):
        few = [*map(_repr_of, value if len(value) <= 8 else value[:4])]
        few += [f"... {len(value)} in all"] if len(value) > 8 else []
        return f"({', '.join(few)}{',' * (len(few) == 1)})"
    return repr(value)
