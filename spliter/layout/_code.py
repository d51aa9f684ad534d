"""Write the code of a kernel for a shape, in LLVM's intermediate language.

A kernel is ``void kernel(memory, packed, arguments)``: two addresses, and an array of 64-bit
integers that it reads once, in the order of the shape. It consists of nested loops with two
pointers, one through memory and one through the packed bytes::

    loop:   memory pointer, packed pointer, counter
              copy, or an inner loop
            advance both by their strides; again while the counter is below the count

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from spliter.layout._shapes import Copy, FusedLoop, IndexLoop, Loop, Parts, Row, Shape

DECLARATION: Final = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def module(shape: Shape, unpacks: bool) -> str:
    """Return a module with the function ``kernel``."""
    return "\n".join([DECLARATION, *_Function(shape, unpacks).lines()])


class _Function:
    """The code of one function, written from the outermost loop in."""

    def __init__(self, shape: Shape, unpacks: bool) -> None:
        self._unpacks = unpacks
        self._entry: list[str] = []
        self._lines: list[str] = ["br label %begin", "begin:"]
        self._block = "begin"
        self._count_names = 0
        self._count_arguments = 0
        self._emit(shape, "%memory", "%packed")

    def lines(self) -> list[str]:
        """Return the function."""
        head = "define void @kernel(ptr %memory, ptr %packed, ptr %arguments) {"
        return [head, *self._entry, *self._lines, "ret void", "}"]

    def _emit(self, shape: Shape, memory: str, packed: str) -> None:
        match shape:
            case Copy(nbytes):
                self._copy(memory, packed, str(nbytes) if nbytes else self._argument())
            case Row(lengths):
                position = 0
                for length in lengths:
                    there = self._at(memory, self._argument())
                    self._copy(there, self._at(packed, str(position)), str(length))
                    position += length
            case Loop(child):
                count, stride, packed_stride = (self._argument() for _ in range(3))
                pointers = [(memory, stride), (packed, packed_stride)]
                self._loop(count, pointers, lambda _, at: self._emit(child, at[0], at[1]))
            case IndexLoop(one):
                self._index_loop(one, memory, packed)
            case FusedLoop(children):
                self._fused_loop(children, memory, packed)
            case Parts(children):
                for child in children:
                    there, here = self._argument(), self._argument()
                    self._emit(child, self._at(memory, there), self._at(packed, here))

    def _index_loop(self, child: Shape | None, memory: str, packed: str) -> None:
        count, displacements, packed_stride = (self._argument() for _ in range(3))

        def body(number: str, at: Sequence[str]) -> str:
            there = self._at(memory, self._element(displacements, number))
            if child is not None:
                self._emit(child, there, at[0])
                return packed_stride
            length = self._element(packed_stride, number)
            self._copy(there, at[0], length)
            return length

        self._loop(count, [(packed, "")], body)

    def _fused_loop(self, children: Sequence[Shape], memory: str, packed: str) -> None:
        count, stride = self._argument(), self._argument()
        places = [[self._argument() for _ in range(3)] for _ in children]
        pointers = [(self._at(packed, position), step) for _, position, step in places]

        def body(_: str, at: Sequence[str]) -> None:
            for child, (displacement, _, _), here in zip(children, places, at[1:], strict=True):
                self._emit(child, self._at(at[0], displacement), here)

        self._loop(count, [(memory, stride), *pointers], body)

    def _loop(
        self,
        count: str,
        pointers: Sequence[tuple[str, str]],
        body: Callable[[str, Sequence[str]], str | None],
    ) -> None:
        """Write a loop; a body may return the step of pointers that have none."""
        number, more = self._new(), self._new()
        at = [self._new() for _ in pointers]
        following = [self._new() for _ in (number, *pointers)]
        loop, latch, end = (self._new()[1:] for _ in range(3))
        before = self._block
        self._write(f"br label %{loop}")
        self._begin(loop)
        self._write(f"{number} = phi i64 [0, %{before}], [{following[0]}, %{latch}]")
        for name, (begin, _), then in zip(at, pointers, following[1:], strict=True):
            self._write(f"{name} = phi ptr [{begin}, %{before}], [{then}, %{latch}]")
        found = body(number, at)
        self._write(f"br label %{latch}")
        self._begin(latch)
        self._write(f"{following[0]} = add i64 {number}, 1")
        for name, (_, step), then in zip(at, pointers, following[1:], strict=True):
            self._write(f"{then} = getelementptr i8, ptr {name}, i64 {step or found}")
        self._write(f"{more} = icmp slt i64 {following[0]}, {count}")
        self._write(f"br i1 {more}, label %{loop}, label %{end}")
        self._begin(end)

    def _begin(self, block: str) -> None:
        self._write(f"{block}:")
        self._block = block

    def _copy(self, memory: str, packed: str, nbytes: str) -> None:
        to, source = (memory, packed) if self._unpacks else (packed, memory)
        call = f"ptr {to}, ptr {source}, i64 {nbytes}, i1 false"
        self._write(f"call void @llvm.memcpy.p0.p0.i64({call})")

    def _at(self, pointer: str, offset: str) -> str:
        return self._value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _element(self, address: str, number: str) -> str:
        array = self._value(f"inttoptr i64 {address} to ptr")
        where = self._value(f"getelementptr i64, ptr {array}, i64 {number}")
        return self._value(f"load i64, ptr {where}")

    def _argument(self) -> str:
        """Return the next argument, which is read before all loops."""
        where, value = self._new(), self._new()
        self._entry += [
            f"{where} = getelementptr i64, ptr %arguments, i64 {self._count_arguments}",
            f"{value} = load i64, ptr {where}",
        ]
        self._count_arguments += 1
        return value

    def _value(self, instruction: str) -> str:
        name = self._new()
        self._write(f"{name} = {instruction}")
        return name

    def _write(self, line: str) -> None:
        self._lines.append(line)

    def _new(self) -> str:
        self._count_names += 1
        return f"%v{self._count_names}"
