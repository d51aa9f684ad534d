"""Functions of libraries that know nothing of SplIter: only what is cut is written here."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter.pipeline import Rows, broadcast, splittable
from spliter_experiments.pipelines.arrays import uniform
from spliter_experiments.pipelines.variants import OURS, PLAIN, Program, Variant, in_batches

ROWS: Final = Rows()


@dataclass(frozen=True)
class Function:
    """A function of a library; its arguments `rows` are cut, and `returns` merges its results."""

    module: str
    name: str
    rows: tuple[str, ...]
    returns: Any = ROWS

    def load(self) -> Program:
        """Import the function; deprecations of its library do not matter here."""
        with warnings.catch_warnings(action="ignore"):
            found: Program = getattr(importlib.import_module(self.module), self.name)
        return found

    def ways(self) -> dict[str, Variant]:
        def plain(*arguments: Any) -> Callable[[], Any]:
            return functools.partial(self.load(), *arguments)

        def ours(*arguments: Any) -> Callable[[], Any]:
            cut = {name: Rows() for name in self.rows}
            return in_batches(splittable(self.load(), **cut, returns=self.returns))(*arguments)

        return {PLAIN: plain, OURS: ours}


UTM: Final = Function(
    "utm", "from_latlon", ("latitude", "longitude"), (Rows(), Rows(), broadcast, broadcast)
)
SEAWATER: Final = Function("seawater", "dens", ("s", "t", "p"))
HAVERSINE: Final = Function("haversine", "haversine_vector", ("array1", "array2"))
SPA: Final = Function("pvlib.spa", "solar_position_numpy", ("unixtime",), (Rows(),) * 6)

ZONE_32: Final = uniform((42.0, 54.0), (6.1, 11.9))
"""Latitudes and longitudes of one zone: `utm` takes the first point's for all."""

SEA: Final = uniform((30.0, 40.0), (0.0, 30.0), (0.0, 5000.0))
"""Salinities, temperatures and pressures."""


def make_pairs(rows: int, seed: int) -> list[Any]:
    lats, lons, more_lats, more_lons = uniform(*[(-80.0, 80.0)] * 4)(rows, seed)
    return [np.column_stack([lats, lons]), np.column_stack([more_lats, more_lons])]


def make_times(rows: int, seed: int) -> list[Any]:
    """Return times of 50 years, shape (rows,), and what SPA wants to know about Munich."""
    place = {"lat": 48.1, "lon": 11.6, "elev": 520.0, "pressure": 960.0, "temp": 10.0}
    return [*uniform((0.0, 1.6e9))(rows, seed), *place.values(), 67.0, 0.5667, 1]
