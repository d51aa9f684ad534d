"""Programs of Intel's MKL: C functions on whole arrays, called by ctypes, plain and in pipelines.

They are the programs of :mod:`.arrays`, with a call of MKL's vector functions for each operation.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

import numpy as np

from spliter.pipeline import Rows, splittable
from spliter_experiments.pipelines.arrays import (
    CELL,
    EARTH_MILES,
    GRAVITY,
    HERE,
    SOFTENING,
    STEP,
    STEPS,
    WATER_GRAVITY,
    WATER_STEP,
)
from spliter_experiments.pipelines.workload import (
    OURS,
    PLAIN,
    Array,
    Program,
    Way,
    as_is,
    cores,
    in_batches,
)

ROWS: Final = Rows()
LIKE_X: Final = Rows(like="x", dtype=np.float64)


@functools.cache
def _library() -> Any:
    """Load MKL from its package; raise ``ModuleNotFoundError`` if that is not installed."""
    files = metadata.files("mkl") or []
    (path,) = [each for each in files if each.name.startswith("libmkl_rt.so")]
    # Idle threads of MKL would wait busily, on cores that the next way needs.
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    return ctypes.CDLL(str(path.locate()))


def _call(name: str, *operands: Array, numbers: tuple[float, ...] = ()) -> Array:
    """Return a new array that a vector function of MKL fills."""
    inputs = [np.ascontiguousarray(each, np.float64) for each in operands]
    result = np.empty_like(inputs[0])
    places = [ctypes.c_void_p(each.ctypes.data) for each in (*inputs, result)]
    scalars = map(ctypes.c_double, numbers)
    getattr(_library(), name)(ctypes.c_int(result.size), *places[:-1], *scalars, places[-1])
    return result


def _unary(name: str) -> Program:
    return splittable(lambda x: _call(name, x), x=ROWS, returns=LIKE_X)


def _binary(name: str) -> Program:
    return splittable(lambda x, y: _call(name, x, y), x=ROWS, y=ROWS, returns=LIKE_X)


sqrt, ln, exp, erf, sin, cos, asin = map(
    _unary, ("vdSqrt", "vdLn", "vdExp", "vdErf", "vdSin", "vdCos", "vdAsin")
)
add, sub, mul, div = map(_binary, ("vdAdd", "vdSub", "vdMul", "vdDiv"))


@splittable(x=ROWS, returns=LIKE_X)
def affine(x: Array, factor: float, term: float = 0.0) -> Array:
    """Return ``factor * x + term``."""
    return _call("vdLinearFrac", x, x, numbers=(factor, term, 0.0, 1.0))


def black_scholes(
    price: Array, strike: Array, t: Array, rate: Array, vol: Array
) -> tuple[Array, Array]:
    """Return what :func:`.arrays.black_scholes` does."""
    spread = mul(vol, sqrt(t))
    growth = mul(add(rate, affine(mul(vol, vol), 0.5)), t)
    d1 = div(add(ln(div(price, strike)), growth), spread)
    d2 = sub(d1, spread)
    below1 = affine(erf(affine(d1, 0.5**0.5)), 0.5, 0.5)
    below2 = affine(erf(affine(d2, 0.5**0.5)), 0.5, 0.5)
    discounted = mul(exp(affine(mul(rate, t), -1.0)), strike)
    call = sub(mul(price, below1), mul(discounted, below2))
    put = sub(mul(discounted, affine(below2, -1.0, 1.0)), mul(price, affine(below1, -1.0, 1.0)))
    return call, put


def haversine(latitude: Array, longitude: Array) -> Array:
    """Return what :func:`.arrays.haversine` does."""
    here_latitude, here_longitude = HERE
    across = sin(affine(longitude, 0.5, -0.5 * here_longitude))
    along = sin(affine(latitude, 0.5, -0.5 * here_latitude))
    wide = affine(mul(cos(latitude), mul(across, across)), float(np.cos(here_latitude)))
    chord = add(mul(along, along), wide)
    miles: Array = affine(asin(sqrt(chord)), EARTH_MILES * 2.0)
    return miles


def nbody(
    mass: Array, x: Array, y: Array, z: Array, vx: Array, vy: Array, vz: Array
) -> tuple[Array, Array, Array]:
    """Return what :func:`.arrays.nbody` does; differences and sums are NumPy's."""
    for _ in range(STEPS):
        dx, dy, dz = (at - at[:, np.newaxis] for at in (x, y, z))
        squared = affine(add(add(mul(dx, dx), mul(dy, dy)), mul(dz, dz)), 1.0, SOFTENING)
        pull = GRAVITY * mass / mul(squared, sqrt(squared))
        vx, vy, vz = (
            add(v, affine(np.sum(mul(pull, d), axis=1), STEP))
            for v, d in ((vx, dx), (vy, dy), (vz, dz))
        )
        x, y, z = (add(at, affine(v, STEP)) for at, v in ((x, vx), (y, vy), (z, vz)))
    return x, y, z


def shallow_water(height: Array, u: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return what :func:`.arrays.shallow_water` does; shifts are NumPy's."""
    for _ in range(STEPS):
        du, dv = (
            add(
                affine(slope(height, axis), -WATER_GRAVITY),
                affine(add(mul(u, slope(one, 1)), mul(v, slope(one, 0))), -1.0),
            )
            for one, axis in ((u, 1), (v, 0))
        )
        dh = affine(add(slope(mul(u, height), 1), slope(mul(v, height), 0)), -1.0)
        height, u, v = (
            add(one, affine(change, WATER_STEP)) for one, change in ((height, dh), (u, du), (v, dv))
        )
    return height, u, v


def slope(values: Array, axis: int) -> Array:
    """Return the derivative along an axis by differences of the neighbours."""
    difference = sub(np.roll(values, -1, axis), np.roll(values, 1, axis))
    per_length: Array = affine(difference, 0.5 / CELL)
    return per_length


def ways(program: Program) -> dict[str, Way]:
    """Return a program with MKL's own threads, and as a pipeline whose calls have one each."""

    def limited(way: Way, threads: int) -> Way:
        def prepare(*arguments: Any) -> Callable[[], Any]:
            _library()
            run = way(*arguments)

            def measured() -> Any:
                _library().MKL_Set_Num_Threads(threads)
                return run()

            return measured

        return prepare

    return {PLAIN: limited(as_is(program), cores()), OURS: limited(in_batches(program), 1)}
