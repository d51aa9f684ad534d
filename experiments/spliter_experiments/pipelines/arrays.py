"""Programs of NumPy, after the paper's: options, distances, bodies, water, and ten additions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import erf

from spliter_experiments.pipelines.variants import Array

HERE: Final = (0.70984286, -1.30203227)
"""Latitude and longitude of the point from which distances are computed, in radians."""

EARTH_MILES: Final = 3959.0

GRAVITY, SOFTENING, STEP = 6.67e-11, 1e-3, 0.01
"""Constants of the bodies; the softening keeps a body's force on itself finite."""

WATER_GRAVITY, CELL, WATER_STEP = 9.8, 0.1, 0.001
"""Acceleration, width of a cell of the grid and duration of a step of shallow water."""

STEPS: Final = 4
"""Steps of the bodies and of the water."""


def black_scholes(
    price: Array, strike: Array, t: Array, rate: Array, vol: Array
) -> tuple[Array, Array]:
    """Return the values of calls and puts by the formula of Black and Scholes, shapes (n,)."""
    spread = vol * np.sqrt(t)
    d1 = (np.log(price / strike) + (rate + vol * vol * 0.5) * t) / spread
    d2 = d1 - spread
    below1 = 0.5 + 0.5 * erf(d1 * np.sqrt(0.5))
    below2 = 0.5 + 0.5 * erf(d2 * np.sqrt(0.5))
    discounted = np.exp(-rate * t) * strike
    call = price * below1 - discounted * below2
    put = discounted * (1.0 - below2) - price * (1.0 - below1)
    return call, put


def haversine(latitude: Array, longitude: Array) -> Array:
    """Return the distances in miles from `HERE` to points given in radians, shape (n,)."""
    here_latitude, here_longitude = HERE
    across = np.sin((longitude - here_longitude) / 2.0)
    along = np.sin((latitude - here_latitude) / 2.0)
    chord = along * along + np.cos(here_latitude) * np.cos(latitude) * across * across
    miles: Array = EARTH_MILES * 2.0 * np.arcsin(np.sqrt(chord))
    return miles


def nbody(
    mass: Array, x: Array, y: Array, z: Array, vx: Array, vy: Array, vz: Array
) -> tuple[Array, Array, Array]:
    """Return the positions of bodies after `STEPS` steps, shapes (n,), by (n, n) forces."""
    for _ in range(STEPS):
        dx = x - x[:, np.newaxis]
        dy = y - y[:, np.newaxis]
        dz = z - z[:, np.newaxis]
        squared = dx * dx + dy * dy + dz * dz + SOFTENING
        pull = GRAVITY * mass / (squared * np.sqrt(squared))
        vx = vx + STEP * np.sum(pull * dx, axis=1)
        vy = vy + STEP * np.sum(pull * dy, axis=1)
        vz = vz + STEP * np.sum(pull * dz, axis=1)
        x, y, z = x + STEP * vx, y + STEP * vy, z + STEP * vz
    return x, y, z


def shallow_water(height: Array, u: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return height and velocities of water after `STEPS` steps on a torus, shapes (n, n)."""
    for _ in range(STEPS):
        du = -WATER_GRAVITY * slope(height, 1) - u * slope(u, 1) - v * slope(u, 0)
        dv = -WATER_GRAVITY * slope(height, 0) - u * slope(v, 1) - v * slope(v, 0)
        dh = -slope(u * height, 1) - slope(v * height, 0)
        height, u, v = height + WATER_STEP * dh, u + WATER_STEP * du, v + WATER_STEP * dv
    return height, u, v


def slope(values: Array, axis: int) -> Array:
    """Return the derivative along an axis by differences of the neighbours."""
    return (np.roll(values, -1, axis) - np.roll(values, 1, axis)) / (2.0 * CELL)


def ten_adds(x: Array, y: Array) -> Array:
    """Add `y` to `x` ten times, out of place."""
    for _ in range(10):
        x = x + y
    return x


Ranges = tuple[tuple[float, float], ...]


def uniform(*ranges: tuple[float, float]) -> Callable[[int, int], list[Array]]:
    """Return a maker of one random array for each range, shapes (rows,).

    >>> (one,) = uniform((2.0, 3.0))(4, 0)
    >>> one.shape, bool(np.all((one >= 2) & (one < 3)))
    ((4,), True)
    """

    def make(rows: int, seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [rng.uniform(low, high, rows) for low, high in ranges]

    return make


OPTIONS: Final = uniform((10.0, 200.0), (10.0, 200.0), (0.1, 3.0), (0.01, 0.08), (0.05, 0.6))
PLACES: Final = uniform((-1.5, 1.5), (-3.1, 3.1))
TERMS: Final = uniform((0.0, 1.0), (0.0, 1.0))
BODIES: Final = uniform((1e6, 1e8), *[(-1.0, 1.0)] * 6)


def make_water(rows: int, seed: int) -> list[Array]:
    """Return a still square basin of `rows` lines with random waves on it."""
    at = np.arange(rows) * (2.0 * np.pi / rows)
    phases = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, (3, 4))
    waves = [
        np.sum(
            [np.outer(np.sin(k * at + phase), np.cos(at + phase)) for k, phase in enumerate(row)], 0
        )
        for row in phases
    ]
    return [1.0 + 0.1 * waves[0], 0.01 * waves[1], 0.01 * waves[2]]
