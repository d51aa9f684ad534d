"""Items whose processing takes unequal time, and the functions that process blocks of them.

Every function returns an int for a block: sums of ints do not depend on the order of addition.
"""

from __future__ import annotations

import functools
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.sources import Codes, Floats, GeneratedPoints

Items: TypeAlias = npt.NDArray[Any]
Maker: TypeAlias = Callable[[Codes, int, int], Items]
"""Makes items, along axis 0, from their numbers, the number of all items and a seed."""

DEARER = 10.0
"""Cost of half of the simulated items; that of the others is 1."""

BURNT = np.linspace(0.0, 1.0, 100_000)
"""Numbers of one NumPy call, about 1 ms: as many as a block that takes so long has itself."""

_buffers = threading.local()
"""Where each thread writes what it computes: allocating so much takes a lock of the process."""

WIDTH, ESCAPE = 16_384, 64
"""Points of a row of the Mandelbrot set, and iterations at most: about 5 ms for a dear row."""

UNCHECKED = 8
"""Iterations after which points that have escaped are dropped, which takes as long as some more."""

SIDE: Final = 128
"""Pixels of the side of a picture."""

TEXT, REPEATED = 32_768, 64
"""Characters of a text, and of the part that repetitive texts repeat."""

PICTURES = ("grass", "page", "text", "gravel", "coins", "moon", "brick", "camera", "horse")
"""Pictures in scikit-image's own package, those with the most objects first."""


def make_costs(numbers: Codes, rows: int, seed: int) -> Items:
    """Return the cost of each item: the dear half first."""
    return np.where(numbers < rows / 2, DEARER, 1.0)[:, np.newaxis]


def make_equal_costs(numbers: Codes, rows: int, seed: int) -> Items:
    """Return the mean of these costs for every item."""
    return np.full((len(numbers), 1), (DEARER + 1) / 2)


def burn(block: Items, effort: float) -> int:
    """Compute for a time in proportion to the cost of the items: `effort` sines for each unit."""
    if not hasattr(_buffers, "out"):
        _buffers.out = np.empty_like(BURNT)
    left = round(block.sum() * effort)
    while left > 0:
        np.sin(BURNT[:left], out=_buffers.out[:left])
        left -= len(BURNT)
    return int(block.sum())


def sleep(block: Items, effort: float) -> int:
    """Sleep for `effort` seconds for each unit of cost."""
    time.sleep(block.sum() * effort)
    return int(block.sum())


def sines_per_second(trials: int = 5, sines: int = 500_000) -> float:
    """Measure how many sines :func:`burn` computes in one second: the best of some trials."""
    seconds = []
    for _ in range(trials):
        start = time.perf_counter()
        burn(np.ones(1), sines)
        seconds.append(time.perf_counter() - start)
    return sines / min(seconds)


def make_heights(numbers: Codes, rows: int, seed: int) -> Items:
    """Return the imaginary part of rows of the Mandelbrot set, from its axis to its upper edge."""
    heights: Floats = np.linspace(0.0, 1.25, rows)
    return heights[numbers][:, np.newaxis]


def escape_times(block: Items, effort: float) -> int:
    """Return the sum of the iterations in which points of some rows stay near the origin."""
    cx, cy = (one.ravel() for one in np.meshgrid(np.linspace(-2.0, 0.5, WIDTH), block[:, 0]))
    x, y = np.zeros_like(cx), np.zeros_like(cy)
    total = 0
    with np.errstate(over="ignore", invalid="ignore"):  # points that have escaped go on
        for start in range(0, ESCAPE, UNCHECKED):
            x2, y2, near = x * x, y * y, np.ones(x.shape, np.bool_)
            for _ in range(start, min(start + UNCHECKED, ESCAPE)):
                # In place, and with real numbers: allocating takes a lock of the process, and
                # NumPy may fuse the operations of a complex product, which numba does not.
                np.multiply(x, x, out=x2)
                np.multiply(y, y, out=y2)
                np.multiply(x, y, out=y)
                np.multiply(y, 2.0, out=y)
                np.add(y, cy, out=y)
                np.subtract(x2, y2, out=x)
                np.add(x, cx, out=x)
                np.add(x2, y2, out=x2)
                np.less_equal(x2, 4.0, out=near)
                total += int(np.count_nonzero(near))
            x, y, cx, cy = (one[near] for one in (x, y, cx, cy))
    return total


@functools.cache
def compiled_escape_times() -> Callable[[Floats], int]:
    """Return :func:`escape_times` of rows, compiled by numba to run in parallel."""
    import numba

    prange = numba.prange

    def count(heights: Floats) -> int:
        total = 0
        for row in prange(len(heights)):
            for column in range(WIDTH):
                cx, cy = -2.0 + 2.5 * column / (WIDTH - 1), heights[row]
                x = y = 0.0
                for _ in range(ESCAPE):
                    x2, y2 = x * x, y * y
                    if x2 + y2 > 4.0:
                        break
                    total += 1
                    x, y = x2 - y2 + cx, x * y * 2.0 + cy
        return total

    compiled: Callable[[Floats], int] = numba.njit(parallel=True)(count)
    return compiled


def make_pictures(numbers: Codes, rows: int, seed: int) -> Items:
    """Return random parts of scikit-image's pictures: True where they are bright."""
    parts = np.empty((len(numbers), SIDE, SIDE), dtype=np.bool_)
    for part, number in zip(parts, numbers.tolist(), strict=True):
        picture = bright_pixels(PICTURES[number * len(PICTURES) // rows])
        top, left = np.random.default_rng((seed, number)).integers(picture.shape)
        lines = np.arange(top, top + SIDE) % picture.shape[0]
        part[:] = np.take(picture[lines], np.arange(left, left + SIDE), axis=1, mode="wrap")
    return parts


@functools.cache
def bright_pixels(name: str) -> npt.NDArray[np.bool_]:
    """Return which pixels of a picture are brighter than its mean."""
    from skimage import data

    picture = np.asarray(getattr(data, name)())
    found: npt.NDArray[np.bool_] = picture > picture.mean()
    return found


def label_pictures(block: Items, effort: float) -> int:
    """Label the objects in pictures and measure each; return their number and largest areas."""
    from scipy import ndimage

    total = 0
    for picture in block:
        labels, count = ndimage.label(picture)
        places = enumerate(ndimage.find_objects(labels), start=1)
        areas = [int((labels[place] == number).sum()) for number, place in places]
        total += count + max(areas, default=0)
    return total


def make_texts(numbers: Codes, rows: int, seed: int) -> Items:
    """Return texts of random letters, then repetitive ones."""
    texts = np.empty((len(numbers), TEXT), dtype=np.uint8)
    for text, number in zip(texts, numbers.tolist(), strict=True):
        letters = TEXT if number < rows / 2 else REPEATED
        drawn = np.random.default_rng((seed, number)).integers(97, 123, letters, dtype=np.uint8)
        text[:] = np.resize(drawn, TEXT)
    return texts


def compress(block: Items, effort: float) -> int:
    """Return the number of bytes of texts after compression."""
    return sum(len(zlib.compress(text.tobytes())) for text in block)


@dataclass(frozen=True)
class Workload:
    """Items and a function on blocks of them.

    Parameters
    ----------
    make : callable
        Makes the items.
    kernel : callable
        Returns an int for a block of items and an effort.
    meaning : str
        Description in one line.
    needs : str
        Module that makes the items, if it is not among those that are always installed.
    compiled : callable or None
        Returns the kernel compiled by numba, on the items of all blocks.
    clock : callable
        Seconds that the kernel takes on a core of its own: CPU time does not count other programs.
    """

    make: Maker
    kernel: Callable[[Items, float], int]
    meaning: str
    needs: str = ""
    compiled: Callable[[], Callable[[Floats], int]] | None = None
    clock: Callable[[], float] = time.thread_time


WORKLOADS: Final = {
    "simulated": Workload(
        make_costs,
        burn,
        "half of the items cost ten times as much; NumPy computes without the lock",
    ),
    "even": Workload(make_equal_costs, burn, "as much work, the same for each item"),
    "emulated": Workload(
        make_costs,
        sleep,
        "the same, but sleeps: to emulate more cores than the machine has",
        clock=time.perf_counter,
    ),
    "mandelbrot": Workload(
        make_heights,
        escape_times,
        "escape times of rows of the Mandelbrot set",
        compiled=compiled_escape_times,
    ),
    "label": Workload(
        make_pictures,
        label_pictures,
        "label and measure objects in pictures; holds the interpreter lock",
        needs="skimage",
    ),
    "zlib": Workload(make_texts, compress, "compress texts, half of them repetitive"),
}
"""Workloads by name; dear items come first."""


@dataclass(frozen=True)
class UnevenItems(GeneratedPoints):
    """Items of a workload as a source of rows.

    Examples
    --------
    >>> items = UnevenItems(rows=4, dims=1, seed=0, workload="simulated")
    >>> items.read(1, 4)[:, 0].tolist()
    [10.0, 1.0, 1.0]
    """

    workload: str

    @property
    def origin(self) -> str:
        """Name of the workload."""
        return f"{self.workload} items"

    def read(self, start: int, stop: int) -> Items:
        """Make items `start` to `stop`."""
        return WORKLOADS[self.workload].make(np.arange(start, stop), self.rows, self.seed)
