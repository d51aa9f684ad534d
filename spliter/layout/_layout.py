"""A layout: which bytes, relative to an address, belong to the data, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter.layout._bounds import Bounds
from spliter.layout._integers import frozen, shown
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
    combiner : str
        Function that made the layout: ``"vector"``, ``"struct"``, ...; ``"named"`` for basic types.
    contents : mapping of str to object
        Its arguments: ints, read-only int64 arrays and layouts.
    bounds : Bounds
        Size and bounds in bytes.

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

    combiner: str
    contents: Mapping[str, Any]
    bounds: Bounds

    def __post_init__(self) -> None:
        kept = {name: _kept(value) for name, value in self.contents.items()}
        object.__setattr__(self, "contents", MappingProxyType(kept))
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
        """Normalise and check the layout, and return what packs it.

        Parameters
        ----------
        engine : {"numpy", "llvm"} or None
            ``"numpy"`` copies with NumPy alone; ``"llvm"`` with machine code compiled for this
            shape of layout, which needs ``pip install 'pyspliter[jit]'``. ``None`` starts with
            NumPy and compiles as soon as that pays, if llvmlite is installed.

        Returns
        -------
        Packer

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
            return f"named({_named(self)})"
        told = ", ".join(f"{name}={_told(one)}" for name, one in self.contents.items())
        return f"{self.combiner}({told})"

    def __reduce__(self) -> tuple[Callable[..., Layout], tuple[Any, ...]]:
        return Layout, (self.combiner, dict(self.contents), self.bounds)


def _kept(value: Any) -> Any:
    """Return a value of the contents that nobody can change; arrays that were unpickled too."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        return frozen(value)
    return value


def _hashable(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _named(layout: Layout) -> str:
    dtype = layout.contents["dtype"]
    return repr(dtype.str[1:] if dtype.isnative and dtype.kind != "M" else dtype.str)


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return shown(value)
    if isinstance(value, Layout) and value.combiner == "named":
        return _named(value)
    if isinstance(value, tuple) and len(value) > 8:
        return f"({', '.join(map(_told, value[:4]))}, ... {len(value)} in all)"
    if isinstance(value, tuple):
        return f"({', '.join(map(_told, value))})" if len(value) != 1 else f"({_told(value[0])},)"
    return repr(value)
