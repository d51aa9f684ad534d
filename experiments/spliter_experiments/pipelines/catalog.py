"""Table of the workloads; importing it imports pandas and SciPy, and no other library of theirs."""

from __future__ import annotations

from typing import Final

from spliter_experiments.pipelines import arrays, frames, libraries, polars_frames
from spliter_experiments.pipelines.array_peers import by_dask, compiled
from spliter_experiments.pipelines.polars_frames import by_polars
from spliter_experiments.pipelines.variants import (
    DASK,
    NUMBA,
    OURS,
    PLAIN,
    POLARS,
    Entry,
    Program,
    Variant,
    as_is,
    in_batches,
    plain_and_pipeline,
)

NO_ROLL: Final = {
    DASK: "each roll cuts its chunks smaller: a run takes 30 times as long as NumPy's"
}


def _array_ways(program: Program) -> dict[str, Variant]:
    return {**plain_and_pipeline(program), NUMBA: compiled(program.__name__)}


def _with_dask(program: Program) -> dict[str, Variant]:
    return {**_array_ways(program), DASK: by_dask(program)}


def _frame_ways(program: Program, by_pieces: Program) -> dict[str, Variant]:
    return {
        PLAIN: as_is(program),
        OURS: in_batches(by_pieces),
        POLARS: by_polars(getattr(polars_frames, program.__name__)),
    }


CATALOG: Final = {
    "black-scholes": Entry(arrays.OPTIONS, 8_000_000, _with_dask(arrays.black_scholes)),
    "haversine": Entry(arrays.PLACES, 8_000_000, _with_dask(arrays.haversine)),
    "nbody": Entry(arrays.BODIES, 4_000, _with_dask(arrays.nbody)),
    "shallow-water": Entry(
        arrays.make_water, 1_500, _array_ways(arrays.shallow_water), absent=NO_ROLL
    ),
    "ten-adds": Entry(arrays.TERMS, 8_000_000, _with_dask(arrays.ten_adds)),
    "data-cleaning": Entry(
        frames.make_zips, 3_000_000, _frame_ways(frames.clean_zips, frames.distinct_zips)
    ),
    "crime-index": Entry(
        frames.make_cities,
        8_000_000,
        _frame_ways(frames.crime_index, frames.total_index),
        exact=False,
    ),
    "births": Entry(
        frames.read_names,
        1_924_665,
        _frame_ways(frames.birth_analysis, frames.birth_analysis_by_pieces),
    ),
    "movielens": Entry(
        frames.make_ratings, 1_000_209, _frame_ways(frames.rate_films, frames.rate_films_by_pieces)
    ),
    "utm": Entry(libraries.ZONE_32, 2_000_000, libraries.UTM.ways()),
    "seawater": Entry(libraries.SEA, 4_000_000, libraries.SEAWATER.ways()),
    "haversine-vector": Entry(libraries.make_pairs, 2_000_000, libraries.HAVERSINE.ways()),
    "spa": Entry(libraries.make_times, 100_000, libraries.SPA.ways()),
}
"""Workloads by name."""
