"""NumPy's and SciPy's own inner loops, called one after the other without the interpreter lock.

A ufunc has, for each combination of dtypes, an inner loop: a C function that runs along one axis.
NumPy gives its address to Numba and others by two methods, which are private: their results are
checked at first use. One function, compiled by LLVM once per process, runs a table of such calls on
a batch. A record of the table is one call::

    for row in range(1 or items):
        pointers = addresses + start * advances + row * outer strides
        loop(context, pointers, extent or items * extent, inner strides, auxdata)

A loop may change the pointers that it gets, as SciPy's do: they are set for each row.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from spliter._events import LOGGER
from spliter._machine.llvm import compile_function, is_installed

MOST_OPERANDS: Final = 8
"""Inputs and results of a call; ufuncs of NumPy have at most 4, SciPy's of one argument 5."""

CAPSULE: Final = b"numpy_1.24_ufunc_call_info"
"""Name of the layout that NumPy gives to what it returns; another one is refused."""

_FLAGS: Final = {
    "x86_64": {"invalid": 1, "divide": 4, "over": 8, "under": 16},
    "aarch64": {"invalid": 1, "divide": 2, "over": 4, "under": 8},
    "arm64": {"invalid": 1, "divide": 2, "over": 4, "under": 8},
}
"""Values of ``fenv.h`` on Linux and macOS; on other machines the Python driver runs."""

_FIELDS: Final = {
    **dict.fromkeys(("loop", "context", "auxdata"), "ptr"),
    **dict.fromkeys(("flags64", "operands", "has.rows64", "extent"), "i64"),
    **dict.fromkeys(("registers", "advances", "outer", "inner"), f"[{MOST_OPERANDS} x i64]"),
}
"""Names and types of what a record consists of, as :meth:`InnerCall.record` returns it."""

_FIELD_ADDRESSES: Final = "".join(
    f"  %{name}.at = getelementptr %record, ptr %at, i64 0, i32 {number}\n"
    for number, name in enumerate(_FIELDS)
)
_FIELD_VALUES: Final = "".join(
    f"  %{name} = load {kind}, ptr %{name}.at\n"
    for name, kind in _FIELDS.items()
    if kind in ("ptr", "i64")
)

_MODULE: Final = f"""
%record = type {{ {", ".join(_FIELDS.values())} }}
declare i32 @feclearexcept(i32)
declare i32 @fetestexcept(i32)
define i64 @run(ptr %records, i64 %calls, ptr %addresses, i64 %start, i64 %items) {{
begin:
  %data = alloca [{MOST_OPERANDS} x ptr]
  %count = alloca i64
  br label %call
call:
  %number = phi i64 [ 0, %begin ], [ %next, %done ]
  %next = add i64 %number, 1
  %at = getelementptr %record, ptr %records, i64 %number
{_FIELD_ADDRESSES}{_FIELD_VALUES}  %flags = trunc i64 %flags64 to i32
  %has.rows = trunc i64 %has.rows64 to i1
  %all = mul i64 %extent, %items
  %length = select i1 %has.rows, i64 %extent, i64 %all
  %rows = select i1 %has.rows, i64 %items, i64 1
  %watched = icmp ne i32 %flags, 0
  br i1 %watched, label %forget, label %row
forget:
  call i32 @feclearexcept(i32 %flags)
  br label %row
row:
  %row.number = phi i64 [ 0, %call ], [ 0, %forget ], [ %row.next, %advanced ]
  store i64 %length, ptr %count
  br label %load
load:
  %operand = phi i64 [ 0, %row ], [ %operand.next, %load ]
  %register.at = getelementptr i64, ptr %registers.at, i64 %operand
  %register = load i64, ptr %register.at
  %address.at = getelementptr ptr, ptr %addresses, i64 %register
  %address = load ptr, ptr %address.at
  %advance.at = getelementptr i64, ptr %advances.at, i64 %operand
  %advance = load i64, ptr %advance.at
  %bytes = mul i64 %advance, %start
  %outer.stride.at = getelementptr i64, ptr %outer.at, i64 %operand
  %outer.stride = load i64, ptr %outer.stride.at
  %row.bytes = mul i64 %outer.stride, %row.number
  %offset = add i64 %bytes, %row.bytes
  %pointer = getelementptr i8, ptr %address, i64 %offset
  %data.at = getelementptr ptr, ptr %data, i64 %operand
  store ptr %pointer, ptr %data.at
  %operand.next = add i64 %operand, 1
  %loaded = icmp eq i64 %operand.next, %operands
  br i1 %loaded, label %loop.begins, label %load
loop.begins:
  %result = call i32 %loop(ptr %context, ptr %data, ptr %count, ptr %inner.at, ptr %auxdata)
  %failed = icmp ne i32 %result, 0
  %row.next = add i64 %row.number, 1
  br i1 %failed, label %stop, label %advanced
advanced:
  %last = icmp eq i64 %row.next, %rows
  br i1 %last, label %test, label %row
test:
  br i1 %watched, label %look, label %done
look:
  %raised = call i32 @fetestexcept(i32 %flags)
  %erred = icmp ne i32 %raised, 0
  br i1 %erred, label %stop, label %done
done:
  %finished = icmp eq i64 %next, %calls
  br i1 %finished, label %stop, label %call
stop:
  %ran = phi i64 [ %number, %loop.begins ], [ %number, %look ], [ %calls, %done ]
  ret i64 %ran
}}
"""

Runner: TypeAlias = Callable[[Any, int, Any, int, int], int]
"""Takes records and their number, addresses of registers, first item, and items; returns how many
calls ran without an error."""


@dataclass(frozen=True, eq=False)
class Loop:
    """Inner loop of a ufunc for some dtypes."""

    dtypes: tuple[np.dtype[Any], ...]
    address: int
    context: int
    auxdata: int
    watches: bool
    owner: Any


class _CallInfo(ctypes.Structure):
    """What the capsule refers to, as the docstring of ``ufunc._get_strided_loop`` says."""

    _fields_ = (
        ("loop", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("auxdata", ctypes.c_void_p),
        ("requires_pyapi", ctypes.c_uint8),
        ("no_floatingpoint_errors", ctypes.c_uint8),
    )


def flags_of(errstate: Mapping[str, Any]) -> int:
    """Return the floating-point errors that are not ignored, as bits of the processor."""
    bits = _FLAGS[platform.machine()]
    return sum(bits[kind] for kind, mode in errstate.items() if mode != "ignore")


@functools.cache
def runner() -> Runner | None:
    """Return the function that runs a table of calls; ``None`` without llvmlite."""
    if not is_installed() or platform.machine() not in _FLAGS:
        return None
    try:
        address, code = compile_function(_MODULE, "run")
    except Exception:  # noqa: BLE001 -- it is logged
        LOGGER.warning("pipelines use the Python driver, as LLVM failed", exc_info=True)
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    run = ctypes.CFUNCTYPE(number, pointer, number, pointer, number, number)(address)
    run.code = code  # type: ignore[attr-defined]
    return run


@functools.lru_cache(1024)
def loop_of(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Loop | None:
    """Return the inner loop of a ufunc; ``None`` if it has none that runs without the lock."""
    try:
        loop = _find(ufunc, operands)
        if loop is None or _gives_equal_bits(ufunc, loop):
            return loop
        LOGGER.warning("the inner loop of %s differs from it; the Python driver runs it", ufunc)
    except Exception:  # noqa: BLE001 -- it is logged
        # Private methods of NumPy may change in any way.
        LOGGER.debug("no inner loop of %s for %s", ufunc, operands, exc_info=True)
    return None


def _find(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Loop | None:
    private: Any = ufunc
    dtypes, capsule = private._resolve_dtypes_and_context((*operands, *(None,) * ufunc.nout))
    private._get_strided_loop(capsule)
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer_of = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    info = _CallInfo.from_address(pointer_of(capsule, CAPSULE))
    if info.requires_pyapi or len(dtypes) > MOST_OPERANDS or not _can_be_tried(ufunc, dtypes):
        return None
    watches = not info.no_floatingpoint_errors
    return Loop(dtypes, info.loop, info.context, info.auxdata or 0, watches, capsule)


def _can_be_tried(ufunc: np.ufunc, dtypes: tuple[np.dtype[Any], ...]) -> bool:
    """Return whether a call with any small numbers ends soon, and without an error.

    Some of SciPy's functions of several arguments loop for minutes where they do not converge.
    Powers of integers take the lock to raise an error, and an error should name its call.
    """
    if getattr(np, ufunc.__name__, None) is not ufunc:
        return ufunc.nin == 1
    return ufunc is not np.power or dtypes[0].kind not in "iu"


def _gives_equal_bits(ufunc: np.ufunc, loop: Loop) -> bool:
    """Try the loop on a few numbers: more than the processor takes at a time, and a remainder."""
    numbers = np.arange(67) % 11 + 1
    inputs = [
        (numbers / 8 if dtype.kind in "fc" else numbers).astype(dtype)
        for dtype in loop.dtypes[: ufunc.nin]
    ]
    with np.errstate(all="ignore"):
        results = ufunc(*inputs)
    expected = results if ufunc.nout > 1 else (results,)
    arrays = [*inputs, *map(np.empty_like, expected)]
    strides = tuple(each.itemsize for each in arrays)
    call = InnerCall(
        loop, Walk.of(False, 1, (0,) * len(arrays), strides, strides), range(len(arrays))
    )
    places = addresses_of(arrays)
    ran = Table([call], 0).run(places.ctypes.data, 0, len(numbers))
    return ran == 1 and all(
        one.dtype == dtype and one.tobytes() == other.tobytes()
        for dtype, one, other in zip(
            loop.dtypes[ufunc.nin :], expected, arrays[ufunc.nin :], strict=True
        )
    )


class Walk(NamedTuple):
    """How two nested loops pass over the operands of a call."""

    has_rows: bool
    extent: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, has_rows: bool, extent: int, *strides: Sequence[int]) -> Walk:
        """Return a walk, given the three strides of the operands that there are."""
        padded = [(*each, *(0,) * (MOST_OPERANDS - len(each))) for each in strides]
        return cls(has_rows, extent, tuple(itertools.chain(*padded)))


class InnerCall(NamedTuple):
    """A call of an inner loop."""

    loop: Loop
    walk: Walk
    registers: Sequence[int]

    def record(self, flags: int) -> list[int]:
        """Return what the compiled function reads; it stops after errors of some flags."""
        loop, walk, registers = self
        return [
            *(loop.address, loop.context, loop.auxdata, flags if loop.watches else 0),
            *(len(registers), walk.has_rows, walk.extent),
            *(*registers, *(0,) * (MOST_OPERANDS - len(registers)), *walk.strides),
        ]


class Table:
    """Calls that run one after the other on a batch."""

    def __init__(self, calls: Sequence[InnerCall], flags: int) -> None:
        self.calls = calls  # keeps what the records point to
        self._records = np.array([call.record(flags) for call in calls], np.int64)
        self._arguments = self._records.ctypes.data, len(calls)

    def run(self, addresses: int, start: int, items: int) -> int:
        """Run the calls; return how many ran without a floating-point error."""
        run = runner()
        assert run is not None
        try:
            return run(*self._arguments, addresses, start, items)
        except SystemError as error:
            # A loop took the lock to raise, as SciPy's do if its errstate says so.
            raise error.__cause__ or error from None


def addresses_of(arrays: Sequence[Any]) -> Any:
    """Return the addresses of arrays; 0 for anything else."""
    found = [each.ctypes.data if isinstance(each, np.ndarray) else 0 for each in arrays]
    return np.array(found, np.uintp)
