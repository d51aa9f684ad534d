"""The programs of NumPy as loops that numba compiles; importing this module needs numba."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

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
from spliter_experiments.pipelines.variants import Array


def black_scholes(
    price: Array, strike: Array, t: Array, rate: Array, vol: Array
) -> tuple[Array, Array]:
    call, put = np.empty_like(price), np.empty_like(price)
    for at in prange(len(price)):
        spread = vol[at] * math.sqrt(t[at])
        d1 = (
            math.log(price[at] / strike[at]) + (rate[at] + vol[at] * vol[at] * 0.5) * t[at]
        ) / spread
        below1 = 0.5 + 0.5 * math.erf(d1 * math.sqrt(0.5))
        below2 = 0.5 + 0.5 * math.erf((d1 - spread) * math.sqrt(0.5))
        discounted = math.exp(-rate[at] * t[at]) * strike[at]
        call[at] = price[at] * below1 - discounted * below2
        put[at] = discounted * (1.0 - below2) - price[at] * (1.0 - below1)
    return call, put


def haversine(latitude: Array, longitude: Array) -> Array:
    miles = np.empty_like(latitude)
    for at in prange(len(latitude)):
        across = math.sin((longitude[at] - HERE[1]) / 2.0)
        along = math.sin((latitude[at] - HERE[0]) / 2.0)
        both = math.cos(HERE[0]) * math.cos(latitude[at])
        miles[at] = EARTH_MILES * 2.0 * math.asin(math.sqrt(along * along + both * across * across))
    return miles


def nbody(
    mass: Array, x: Array, y: Array, z: Array, vx: Array, vy: Array, vz: Array
) -> tuple[Array, Array, Array]:
    """Sum the forces on one body after the other, without matrices."""
    x, y, z, vx, vy, vz = x.copy(), y.copy(), z.copy(), vx.copy(), vy.copy(), vz.copy()
    for _ in range(STEPS):
        for at in prange(len(x)):
            fx = fy = fz = 0.0
            for other in range(len(x)):
                dx, dy, dz = x[other] - x[at], y[other] - y[at], z[other] - z[at]
                squared = dx * dx + dy * dy + dz * dz + SOFTENING
                pull = GRAVITY * mass[other] / (squared * math.sqrt(squared))
                fx, fy, fz = fx + pull * dx, fy + pull * dy, fz + pull * dz
            vx[at] += STEP * fx
            vy[at] += STEP * fy
            vz[at] += STEP * fz
        x, y, z = x + STEP * vx, y + STEP * vy, z + STEP * vz
    return x, y, z


def shallow_water(height: Array, u: Array, v: Array) -> tuple[Array, Array, Array]:
    lines, columns = height.shape
    half = 1.0 / (2.0 * CELL)
    for _ in range(STEPS):
        new_height, new_u, new_v = np.empty_like(height), np.empty_like(u), np.empty_like(v)
        for i in prange(lines):
            up, down = (i - 1) % lines, (i + 1) % lines
            for j in range(columns):
                left, right = (j - 1) % columns, (j + 1) % columns
                hx, hy = height[i, right] - height[i, left], height[down, j] - height[up, j]
                ux, uy = u[i, right] - u[i, left], u[down, j] - u[up, j]
                vx, vy = v[i, right] - v[i, left], v[down, j] - v[up, j]
                flux = u[i, right] * height[i, right] - u[i, left] * height[i, left]
                flux += v[down, j] * height[down, j] - v[up, j] * height[up, j]
                du = -WATER_GRAVITY * hx - u[i, j] * ux - v[i, j] * uy
                dv = -WATER_GRAVITY * hy - u[i, j] * vx - v[i, j] * vy
                new_height[i, j] = height[i, j] - WATER_STEP * half * flux
                new_u[i, j] = u[i, j] + WATER_STEP * half * du
                new_v[i, j] = v[i, j] + WATER_STEP * half * dv
        height, u, v = new_height, new_u, new_v
    return height, u, v


def ten_adds(x: Array, y: Array) -> Array:
    total = np.empty_like(x)
    for at in prange(len(x)):
        value = x[at]
        for _ in range(10):
            value += y[at]
        total[at] = value
    return total
