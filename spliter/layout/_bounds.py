"""Size and bounds of a layout, in exact Python integers.

Bounds are relative to the address that the layout is used at. The true bounds enclose the bytes of
data; `lb` and `ub` enclose what one repetition takes, which ``resized`` may set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spliter.layout._integers import EXACT, Int64s, within


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the bytes of a layout are; all 0 if it has no data."""

    size: int = 0
    lb: int = 0
    ub: int = 0
    true_lb: int = 0
    true_ub: int = 0
    alignment: int = 1
    """The largest of the basic types, as in C; ``struct`` rounds its extent up to it."""

    @property
    def extent(self) -> int:
        """Bytes from one repetition to the next."""
        return self.ub - self.lb

    def spread(self, copies: int, low: int, high: int) -> Bounds:
        """Return the bounds of copies that lie between two displacements in bytes."""
        if not copies * self.size:
            return Bounds()
        return Bounds(
            copies * self.size,
            self.lb + low,
            self.ub + high,
            self.true_lb + low,
            self.true_ub + high,
            self.alignment,
        ).checked()

    def repeated(self, count: int, stride: int) -> Bounds:
        """Return the bounds of copies at equal steps in bytes."""
        last = (count - 1) * stride
        return self.spread(count, min(0, last), max(0, last))

    def placed(self, displacements: Int64s, blocklengths: Int64s) -> Bounds:
        """Return the bounds of blocks of copies, some not empty; displacements are in bytes."""
        filled = blocklengths > 0
        displacements, blocklengths = displacements[filled], blocklengths[filled]
        begins, counts = _exactly(displacements, blocklengths, self.extent)
        lasts = begins + (counts - 1) * self.extent
        return self.spread(
            int(counts.sum(dtype=object if counts.max() > EXACT // len(counts) else None)),
            int(min(begins.min(), lasts.min())),
            int(max(begins.max(), lasts.max())),
        )

    def resized(self, lb: int, extent: int) -> Bounds:
        """Return the same data with other bounds of a repetition."""
        return replace(self, lb=lb, ub=lb + extent).checked()

    def padded(self) -> Bounds:
        """Return the extent rounded up to the alignment, as C and MPI pad structs."""
        return replace(self, ub=self.ub + -self.extent % self.alignment).checked()

    def checked(self) -> Bounds:
        """Return these bounds; refuse those that do not fit 64 bits."""
        within("the size of the layout", self.size)
        for bound in (self.lb, self.ub, self.true_lb, self.true_ub, self.extent):
            within("a bound of the layout", bound)
        return self


def _exactly(displacements: Int64s, blocklengths: Int64s, extent: int) -> tuple[Int64s, Int64s]:
    """Return both as arrays whose sums and products are exact: of Python ints, if they are huge."""
    most = max(-int(displacements.min()), int(displacements.max()))
    if most + int(blocklengths.max()) * abs(extent) < EXACT:
        return displacements, blocklengths
    return displacements.astype(object), blocklengths.astype(object)


def union(parts: Iterable[Bounds]) -> Bounds:
    """Return the bounds of all parts together; empty ones do not count."""
    filled = [part for part in parts if part.size]
    if not filled:
        return Bounds()
    return Bounds(
        sum(part.size for part in filled),
        min(part.lb for part in filled),
        max(part.ub for part in filled),
        min(part.true_lb for part in filled),
        max(part.true_ub for part in filled),
        max(part.alignment for part in filled),
    ).checked()
