"""Access patterns to pack and unpack: those of DDTBench, and structured arrays.

DDTBench (T. Schneider, R. Gerstenberger, T. Hoefler, "Micro-Applications for Communication Data
Access Patterns and MPI Datatypes", EuroMPI 2012) describes which data WRF, MILC, the NAS parallel
benchmarks, SPECFEM3D, LAMMPS and an FFT send to other processes. Shapes, nesting of the datatypes
and sizes are the published ones. Its arrays are in Fortran's order: the last axis of a shape here
is its first. Data that lie in several arrays there are one buffer here, one array after another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spliter import layout as lo

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class Pair(NamedTuple):
    """The same items in memory and in the packed bytes.

    With `rows`, the items in memory are the rows of these numbers.
    """

    memory: Array
    packed: Array
    rows: npt.NDArray[np.intp] | None = None


@dataclass(frozen=True, eq=False)
class Pattern:
    """Data to move, described as a layout and as NumPy views.

    The layout is what an MPI program would describe: a part of `nbytes` of memory, from its
    displacement 0 on. `pairs` returns the pairs of views of memory and packed bytes, `actions` are
    timed, and `rows` is the dtype of the rows if they are a structured array.
    """

    layout: lo.Layout
    nbytes: int
    pairs: Callable[[Bytes, Bytes], Iterable[Pair]]
    actions: tuple[str, ...] = ("pack", "unpack")
    rows: np.dtype[Any] | None = None

    def memory(self) -> Bytes:
        """Return memory in which every four bytes differ."""
        return np.arange(-(-self.nbytes // 4), dtype=np.uint32).view(np.uint8)[: self.nbytes]


def in_order(memory: Iterable[Array], packed: Bytes) -> Iterator[Pair]:
    """Yield views of memory with the packed bytes, which follow one another.

    >>> grid = np.arange(6, dtype=np.uint8).reshape(2, 3)
    >>> [pair] = in_order([grid[:, 1]], np.empty(2, np.uint8))
    >>> pair.packed.shape
    (2,)
    """
    at = 0
    for view in memory:
        yield Pair(view, packed[at : at + view.nbytes].view(view.dtype).reshape(view.shape))
        at += view.nbytes


def regular(
    layout: lo.Layout,
    dtype: str,
    shape: tuple[int, ...],
    first: tuple[int, ...],
    choose: Callable[[Array], Array],
) -> Pattern:
    """Return the pattern of one array and a view of it.

    The layout counts from the item at the index `first`, where the memory of the pattern begins.
    `choose` returns a view of the items to move, in the order of the packed bytes.
    """
    items = np.dtype(dtype)
    before = int(np.ravel_multi_index(first, shape)) * items.itemsize
    whole = int(np.prod(shape)) * items.itemsize

    def pairs(memory: Bytes, packed: Bytes) -> Iterable[Pair]:
        # The view never reaches into the bytes before the first item.
        chosen = choose(np.empty(shape, items))
        view = np.ndarray(chosen.shape, items, memory, strides=chosen.strides)
        return in_order([view], packed)

    return Pattern(layout, whole - before, pairs)


def nas_lu_x(n: int) -> Pattern:
    """Face of a grid of `n` x `n` points with five values each, contiguous."""
    layout = lo.contiguous(5 * n, "f8")
    return regular(layout, "f8", (n + 2, n + 2, 5), (n, 1, 0), lambda a: a[n, 1 : n + 1])


def nas_lu_y(n: int) -> Pattern:
    """Face of the same grid across its rows: 40 bytes in each row."""
    layout = lo.vector(n, 1, n + 2, lo.contiguous(5, "f8"))
    return regular(layout, "f8", (n + 2, n + 2, 5), (1, n, 0), lambda a: a[1 : n + 1, n])


def nas_mg_x(z: int, y: int, x: int) -> Pattern:
    """Face of a 3-D grid: single values."""
    layout = lo.hvector(z - 2, 1, 8 * x * y, lo.vector(y - 2, 1, x, "f8"))
    return regular(layout, "f8", (z, y, x), (1, 1, x - 2), lambda a: a[1:-1, 1:-1, x - 2])


def nas_mg_y(z: int, y: int, x: int) -> Pattern:
    """Face of a 3-D grid: a row of each plane."""
    layout = lo.vector(z - 2, x - 2, x * y, "f8")
    return regular(layout, "f8", (z, y, x), (1, y - 2, 1), lambda a: a[1:-1, y - 2, 1:-1])


def nas_mg_z(z: int, y: int, x: int) -> Pattern:
    """Face of a 3-D grid: all inner rows of a plane."""
    layout = lo.vector(y - 2, x - 2, x, "f8")
    return regular(layout, "f8", (z, y, x), (1, 1, 1), lambda a: a[1, 1:-1, 1:-1])


def milc_su3_zd(t: int, z: int, y: int, x: int) -> Pattern:
    """Face of a 4-D lattice of vectors of six floats, the even sites before the odd ones."""
    sites = x * y // 2
    inner = lo.vector(t, sites, sites * z, lo.contiguous(6, "f4"))
    layout = lo.hvector(2, 1, 24 * sites * z * t, inner)
    return regular(layout, "f4", (2, t, z, sites, 6), (0,) * 5, lambda a: a[:, :, 0])


def fft2(n: int, ranks: int = 2) -> Pattern:
    """Part of an `n` x `n` complex matrix that the transpose of a 2-D FFT receives.

    Each of the `ranks` holds ``n / ranks`` rows, and sends blocks that go to memory transposed.
    """
    rows = n // ranks
    column = lo.vector(rows, 1, n, lo.contiguous(2, "f8"))
    layout = lo.contiguous(n, lo.resized(column, 0, 16))
    return regular(layout, "c16", (rows, n), (0, 0), lambda a: a.T)


def specfem3d_oc(points: int, shared: int) -> Pattern:
    """Single floats of an array, at random."""
    chosen = _chosen(points, shared)

    def pairs(memory: Bytes, packed: Bytes) -> list[Pair]:
        return [Pair(memory.view("f4"), packed.view("f4"), chosen)]

    return Pattern(lo.indexed_block(1, chosen, "f4"), 4 * points, pairs)


def lammps_full(atoms: int, sent: int) -> Pattern:
    """Atoms at random, whose positions and five other properties are in arrays of their own."""
    chosen, total = _chosen(atoms, sent), atoms + sent
    widths = (3, 1, 1, 1, 1, 1)
    starts = list(accumulate((total * width for width in widths), initial=0))[:-1]
    one = lo.indexed_block(1, chosen, "f8")
    three = lo.indexed_block(3, 3 * chosen, "f8")
    layout = lo.struct([1] * 6, [8 * start for start in starts], [three, *[one] * 5])

    def pairs(memory: Bytes, packed: Bytes) -> Iterator[Pair]:
        before, after, at = memory.view("f8"), packed.view("f8"), 0
        for start, width in zip(starts, widths, strict=True):
            there = before[start : start + total * width].reshape(total, width)
            yield Pair(there, after[at : at + sent * width].reshape(sent, width), chosen)
            at += sent * width

    return Pattern(layout, 8 * total * sum(widths), pairs)


def _chosen(count: int, chosen: int) -> npt.NDArray[np.intp]:
    return np.random.default_rng(count).permutation(count)[:chosen]


@dataclass(frozen=True)
class Halo:
    """Part of the WRF model's arrays to send: ranges in the axes j, k and i of `shape`.

    There are four 2-D arrays (j, i), three 3-D (j, k, i) and two 4-D ones, of whose two fields the
    second is sent.
    """

    shape: tuple[int, int, int]
    first: tuple[int, int, int]
    count: tuple[int, int, int]

    def shapes(self) -> list[tuple[int, ...]]:
        j, _, i = self.shape
        return [(j, i)] * 4 + [self.shape] * 3 + [(2, *self.shape)] * 2

    def starts(self) -> list[int]:
        """Return the byte at which each array begins, and the end of the last."""
        return [*accumulate((4 * int(np.prod(s)) for s in self.shapes()), initial=0)]

    def region(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Return first index and count in each axis of one of the arrays."""
        j, k, i = zip(self.first, self.count, strict=True)
        return {2: (j, i), 3: (j, k, i), 4: ((1, 1), j, k, i)}[len(shape)]

    def pairs(self, memory: Bytes, packed: Bytes) -> Iterator[Pair]:
        """Return pairs of views, an array after the other."""
        starts = self.starts()
        chosen = []
        for shape, start, end in zip(self.shapes(), starts, starts[1:], strict=False):
            index = tuple(slice(at, at + count) for at, count in self.region(shape))
            chosen.append(memory[start:end].view("f4").reshape(shape)[index])
        return in_order(chosen, packed)

    def pattern(self, types: Callable[[tuple[int, ...]], tuple[int, lo.Layout]]) -> Pattern:
        """Return the pattern of a struct; `types` gives offset and layout in an array."""
        starts, inner = self.starts(), [types(shape) for shape in self.shapes()]
        displacements = [start + at for start, (at, _) in zip(starts, inner, strict=False)]
        layout = lo.struct([1] * len(inner), displacements, [part for _, part in inner])
        return Pattern(layout, starts[-1], self.pairs)


def wrf_vec(halo: Halo) -> Pattern:
    """Halo of the WRF model, as nested vectors."""

    def nested(shape: tuple[int, ...]) -> tuple[int, lo.Layout]:
        region = halo.region(shape)
        steps = [4 * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
        part = lo.vector(region[-2][1], region[-1][1], shape[-1], "f4")
        for step, (_, count) in reversed([*zip(steps, region, strict=True)][:-2]):
            part = lo.hvector(count, 1, step, part)
        return sum(step * at for step, (at, _) in zip(steps, region, strict=True)), part

    return halo.pattern(nested)


def wrf_sa(halo: Halo) -> Pattern:
    """Halo of the WRF model, as subarrays."""

    def subarray(shape: tuple[int, ...]) -> tuple[int, lo.Layout]:
        first, count = zip(*halo.region(shape), strict=True)
        return 0, lo.subarray(list(shape), list(count), list(first), "f4")

    return halo.pattern(subarray)


ROW: Final = np.dtype(
    {
        "names": ["position", "kind", "charge", "force", "label"],
        "formats": ["2f8", "i4", "f8", "3f4", "u2"],
        "offsets": [0, 24, 32, 48, 64],
        "itemsize": 72,
    }
)
"""Five fields with a gap after each but one."""


def structs(count: int, actions: tuple[str, ...] = ("pack", "unpack")) -> Pattern:
    """Rows of five fields with gaps between them."""
    names = ROW.names or ()
    dense = np.dtype([(name, ROW[name]) for name in names])
    row = lo.struct([2, 1, 1, 3, 1], [0, 24, 32, 48, 64], ["f8", "i4", "f8", "f4", "u2"])
    layout = lo.contiguous(count, lo.resized(row, 0, ROW.itemsize))

    def pairs(memory: Bytes, packed: Bytes) -> list[Pair]:
        return [Pair(memory.view(ROW)[name], packed.view(dense)[name]) for name in names]

    return Pattern(layout, count * ROW.itemsize, pairs, actions, ROW)


def structured_copy(count: int) -> Pattern:
    """Copy the same rows: packed and unpacked, or by NumPy's ``copy``."""
    return structs(count, ("copy",))


def aos_to_soa(count: int, fields: int = 12) -> Pattern:
    """Rows of doubles, packed, that go to memory as columns (unpacked), in one pass."""
    row = lo.resized(lo.hvector(fields, 1, 8 * count, "f8"), 0, 8)

    def pairs(memory: Bytes, packed: Bytes) -> list[Pair]:
        columns = memory.view("f8").reshape(fields, count)
        rows = packed.view("f8").reshape(count, fields)
        return [Pair(columns[field], rows[:, field]) for field in range(fields)]

    return Pattern(lo.contiguous(count, row), 8 * fields * count, pairs, ("unpack",))


HALOS_X: Final = (
    Halo((24, 65, 19), (4, 0, 9), (16, 65, 3)),
    Halo((34, 65, 24), (4, 0, 14), (26, 65, 3)),
    Halo((52, 65, 32), (4, 0, 22), (44, 65, 3)),
)
HALOS_Y: Final = (
    Halo((24, 65, 19), (7, 0, 4), (3, 65, 11)),
    Halo((34, 65, 24), (7, 0, 4), (3, 65, 16)),
    Halo((52, 65, 32), (7, 0, 5), (3, 65, 23)),
)
"""Parts of the em_b_wave case on 8 x 8, 4 x 4 and 2 x 2 processes."""

CASES: Final[Mapping[str, tuple[Callable[..., Pattern], tuple[tuple[Any, ...], ...]]]] = {
    "WRF_x_vec": (wrf_vec, tuple((halo,) for halo in HALOS_X)),
    "WRF_x_sa": (wrf_sa, tuple((halo,) for halo in HALOS_X)),
    "WRF_y_vec": (wrf_vec, tuple((halo,) for halo in HALOS_Y)),
    "WRF_y_sa": (wrf_sa, tuple((halo,) for halo in HALOS_Y)),
    "MILC_su3_zd": (milc_su3_zd, ((8, 8, 8, 8), (16, 8, 8, 8), (16, 16, 16, 16))),
    "NAS_LU_x": (nas_lu_x, ((33,), (162,), (408,))),
    "NAS_LU_y": (nas_lu_y, ((33,), (162,), (408,))),
    "NAS_MG_x": (nas_mg_x, ((18, 18, 34), (66, 66, 130), (130, 130, 258))),
    "NAS_MG_y": (nas_mg_y, ((18, 18, 34), (66, 66, 130), (130, 130, 258))),
    "NAS_MG_z": (nas_mg_z, ((18, 18, 34), (66, 66, 130), (130, 130, 258))),
    "FFT2": (fft2, ((256,), (768,), (1536,))),
    "SPECFEM3D_oc": (specfem3d_oc, ((12857, 877), (38585, 1897), (88881, 3225))),
    "LAMMPS_full": (lammps_full, ((1907, 1662), (2597, 2243), (3534, 3062))),
    "structs": (structs, ((1_000,), (10_000,), (100_000,))),
    "structured_copy": (structured_copy, ((1_000,), (10_000,), (100_000,))),
    "AoS_to_SoA": (aos_to_soa, ((65_536,), (262_144,), (1_048_576,))),
}
"""Each case's function and arguments for three sizes, those of DDTBench as published."""

OWN_CASES: Final = ("structs", "structured_copy", "AoS_to_SoA")
"""Cases that are not DDTBench's."""

SIZES: Final = 3


@functools.lru_cache(maxsize=1)
def pattern_of(case: str, size: int) -> Pattern:
    """Return the pattern of a case in one of the `SIZES`, from 0.

    >>> pattern_of("NAS_LU_x", 0).layout.size
    1320
    """
    function, sizes = CASES[case]
    return function(*sizes[size])
