"""Compile kernels with LLVM, once for each shape of a process, and forget those not used lately."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from spliter._machine.llvm import compile_function
from spliter.layout._code import module
from spliter.layout._shapes import Shape

MOST_KERNELS: Final = 256
"""Compiled shapes that a process keeps; about 10 KiB each."""

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
"""Calls through ctypes release the interpreter's lock."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """Machine code for a shape; its memory is freed with it."""

    run: Callable[[Any, Any, Any], None]
    """Takes the addresses of displacement 0, of the packed bytes, and of the arguments."""
    code: Any


def compile_shape(shape: Shape, unpacks: bool) -> Kernel:
    """Return the machine code that packs or unpacks a shape."""
    address, code = compile_function(module(shape, unpacks), "kernel")
    return Kernel(_KERNEL(address), code)


class Kernels:
    """The kernels of a process, by shape, and what those not compiled yet would have saved.

    Thread-safe. A kernel that is dropped for others lives on until the calls that use it return.
    """

    def __init__(self, limit: int = MOST_KERNELS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kernels: OrderedDict[tuple[Shape, bool], Kernel] = OrderedDict()
        self._saved: OrderedDict[tuple[Shape, bool], float] = OrderedDict()

    def find(self, shape: Shape, unpacks: bool, saves: float) -> Kernel | None:
        """Return a kernel if it is compiled, or if compiling it pays by now.

        `saves` are the seconds that it saves in this use, divided by those of compiling.
        """
        key = shape, unpacks
        with self._lock:
            found = self._kernels.get(key)
            if found is None:
                saved = self._saved.pop(key, 0.0) + saves
                if saved < 1:
                    self._saved[key] = saved
                    self._drop(self._saved)
                    return None
                found = self._kernels[key] = compile_shape(shape, unpacks)
                self._drop(self._kernels)
            self._kernels.move_to_end(key)
            return found

    def _drop(self, kept: OrderedDict[tuple[Shape, bool], Any]) -> None:
        while len(kept) > self._limit:
            kept.popitem(last=False)

    def __len__(self) -> int:
        with self._lock:
            return len(self._kernels)


KERNELS: Final = Kernels()
