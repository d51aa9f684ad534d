"""Table of the workloads; importing it imports pandas and SciPy, and no other library of theirs."""

from __future__ import annotations

from typing import Final

from spliter_experiments.pipelines import (
    arrays,
    frames,
    libraries,
    mkl,
    pictures,
    polars_frames,
    tagging,
)
from spliter_experiments.pipelines.array_peers import (
    by_blosc2,
    by_dask,
    compiled,
    haversine_expression,
    ten_adds_expression,
)
from spliter_experiments.pipelines.polars_frames import by_polars
from spliter_experiments.pipelines.workload import (
    BLOSC2,
    DASK,
    NUMBA,
    NUMEXPR,
    OURS,
    PLAIN,
    POLARS,
    Program,
    Way,
    Workload,
    as_is,
    in_batches,
    plain_and_pipeline,
)

NO_ERF: Final = dict.fromkeys((NUMEXPR, BLOSC2), "it has no erf")
NO_ROLL: Final = {
    DASK: "each roll cuts its chunks smaller: a run takes 30 times as long as NumPy's"
}

IMAGE_LINES: Final = 4_000
"""Lines of 640 pixels: 2.6 million pixels, as of a photograph."""


def _array_ways(program: Program) -> dict[str, Way]:
    return {**plain_and_pipeline(program), NUMBA: compiled(program.__name__)}


def _fused_ways(program: Program, expression: Way) -> dict[str, Way]:
    fused = {NUMEXPR: expression, BLOSC2: by_blosc2(program), DASK: by_dask(program)}
    return {**_array_ways(program), **fused}


def _frame_ways(program: Program, by_pieces: Program) -> dict[str, Way]:
    return {
        PLAIN: as_is(program),
        OURS: in_batches(by_pieces),
        POLARS: by_polars(getattr(polars_frames, program.__name__)),
    }


CATALOG: Final = {
    "black-scholes": Workload(
        arrays.OPTIONS,
        8_000_000,
        {**_array_ways(arrays.black_scholes), DASK: by_dask(arrays.black_scholes)},
        absent=NO_ERF,
    ),
    "haversine": Workload(
        arrays.PLACES, 8_000_000, _fused_ways(arrays.haversine, haversine_expression)
    ),
    "nbody": Workload(
        arrays.BODIES,
        4_000,
        {**_array_ways(arrays.nbody), DASK: by_dask(arrays.nbody)},
    ),
    "shallow-water": Workload(
        arrays.make_water, 1_500, _array_ways(arrays.shallow_water), absent=NO_ROLL
    ),
    "ten-adds": Workload(
        arrays.TERMS, 8_000_000, _fused_ways(arrays.ten_adds, ten_adds_expression)
    ),
    "mkl-black-scholes": Workload(arrays.OPTIONS, 8_000_000, mkl.ways(mkl.black_scholes)),
    "mkl-haversine": Workload(arrays.PLACES, 8_000_000, mkl.ways(mkl.haversine)),
    "mkl-nbody": Workload(arrays.BODIES, 4_000, mkl.ways(mkl.nbody)),
    "mkl-shallow-water": Workload(arrays.make_water, 1_500, mkl.ways(mkl.shallow_water)),
    "data-cleaning": Workload(
        frames.make_zips, 3_000_000, _frame_ways(frames.clean_zips, frames.distinct_zips)
    ),
    "crime-index": Workload(
        frames.make_cities,
        8_000_000,
        _frame_ways(frames.crime_index, frames.total_index),
        exact=False,
    ),
    "births": Workload(
        frames.read_names,
        1_924_665,
        _frame_ways(frames.birth_analysis, frames.birth_analysis_by_pieces),
    ),
    "movielens": Workload(
        frames.make_ratings,
        1_000_209,
        _frame_ways(frames.rate_films, frames.rate_films_by_pieces),
    ),
    "nashville": Workload(pictures.make_image, IMAGE_LINES, pictures.filtered(pictures.nashville)),
    "gotham": Workload(pictures.make_image, IMAGE_LINES, pictures.filtered(pictures.gotham)),
    "tagging": Workload(tagging.make_texts, 400, tagging.WAYS),
    "utm": Workload(libraries.ZONE_32, 2_000_000, libraries.UTM.ways()),
    "seawater": Workload(libraries.SEA, 4_000_000, libraries.SEAWATER.ways()),
    "haversine-vector": Workload(libraries.make_pairs, 2_000_000, libraries.HAVERSINE.ways()),
    "rgb2lab": Workload(pictures.make_image, IMAGE_LINES, libraries.RGB2LAB.ways()),
    "rgb2hsv": Workload(pictures.make_image, IMAGE_LINES, libraries.RGB2HSV.ways()),
    "spa": Workload(libraries.make_times, 100_000, libraries.SPA.ways()),
}
"""Workloads by name."""
