"""Names and descriptions of the workloads, apart from them: the command's help imports none."""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = {
    "black-scholes": "values of calls and puts (NumPy, SciPy)",
    "haversine": "distances on a sphere (NumPy)",
    "nbody": "bodies under gravity, by square matrices (NumPy)",
    "shallow-water": "waves in a square basin (NumPy)",
    "ten-adds": "the same addition ten times (NumPy)",
    "mkl-black-scholes": "the first four with Intel's MKL, by ctypes",
    "mkl-haversine": "see mkl-black-scholes",
    "mkl-nbody": "see mkl-black-scholes",
    "mkl-shallow-water": "see mkl-black-scholes",
    "data-cleaning": "postal codes of requests to a city (pandas)",
    "crime-index": "crimes in large cities (pandas)",
    "births": "names that sound like Leslie (pandas)",
    "movielens": "ratings of films per gender (pandas)",
    "nashville": "a filter of pictures (scikit-image)",
    "gotham": "another filter of pictures (scikit-image)",
    "tagging": "parts of speech (spaCy)",
    "utm": "coordinates of maps, utm.from_latlon as it is",
    "seawater": "densities of water, seawater.dens as it is",
    "haversine-vector": "distances, haversine.haversine_vector as it is",
    "rgb2lab": "colours, skimage.color.rgb2lab as it is",
    "rgb2hsv": "colours, skimage.color.rgb2hsv as it is",
    "spa": "positions of the sun, pvlib.spa.solar_position_numpy as it is",
}
"""Workloads in the order of the tables."""
