"""Names and descriptions of the workloads, apart from them: the command's help imports none."""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = {
    "black-scholes": "values of calls and puts (NumPy, SciPy)",
    "haversine": "distances on a sphere (NumPy)",
    "nbody": "bodies under gravity, by square matrices (NumPy)",
    "shallow-water": "waves in a square basin (NumPy)",
    "ten-adds": "the same addition ten times (NumPy)",
    "data-cleaning": "postal codes of requests to a city (pandas)",
    "crime-index": "crimes in large cities (pandas)",
    "births": "names that sound like Leslie (pandas)",
    "movielens": "ratings of films per gender (pandas)",
    "utm": "coordinates of maps, utm.from_latlon as it is",
    "seawater": "densities of water, seawater.dens as it is",
    "haversine-vector": "distances, haversine.haversine_vector as it is",
    "spa": "positions of the sun, pvlib.spa.solar_position_numpy as it is",
}
"""Workloads in the order of the tables."""
