"""The programs of pandas, written for polars."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spliter_experiments.pipelines.frames import FEWEST_RATINGS, NO_ZIPS
from spliter_experiments.pipelines.variants import Program, Variant

if TYPE_CHECKING:
    import polars as pl


def by_polars(program: Program) -> Variant:
    """Return the way that runs a function of this module on frames of polars."""

    def prepare(*arguments: Any) -> Callable[[], Any]:
        import polars as pl

        return functools.partial(program, *map(pl.from_pandas, arguments))

    return prepare


def clean_zips(zips: pl.Series) -> Any:
    import polars as pl

    text = pl.col("zip")
    short = pl.when(text.is_in(NO_ZIPS)).then(None).otherwise(text).str.slice(0, 5)
    valid = pl.when(short == "00000").then(None).otherwise(short)
    distinct = valid.unique(maintain_order=True).alias("zip")
    found = zips.alias("zip").to_frame().lazy().select(distinct).collect()
    return found["zip"].to_pandas().astype("str").array


def crime_index(cities: pl.DataFrame) -> Any:
    import polars as pl

    index = (
        pl.col("population") + 2.0 * pl.col("adults") - 2000.0 * pl.col("robberies")
    ) / 100_000.0
    cut = pl.when(index > 0.02).then(0.032).when(index < 0.01).then(0.005).otherwise(index)
    large = cities.lazy().filter(pl.col("population") > 500_000)
    return large.select(cut.sum()).collect().item()


def birth_analysis(names: pl.DataFrame) -> Any:
    import polars as pl

    share = pl.col("births") / pl.col("births").sum().over("year", "sex")
    leslie = pl.col("name").str.to_lowercase().str.contains("lesl", literal=True)
    chosen = names.lazy().filter(share > 1e-5).filter(leslie)
    births = chosen.group_by("year", "sex").agg(pl.col("births").sum()).sort("year", "sex")
    return births.collect().to_pandas().set_index(["year", "sex"])["births"]


def rate_films(ratings: pl.DataFrame, users: pl.DataFrame, films: pl.DataFrame) -> Any:
    import polars as pl

    rated = ratings.lazy().join(users.lazy(), on="user").join(films.lazy(), on="film")
    by_title = rated.filter(pl.len().over("title") >= FEWEST_RATINGS).group_by("title", "gender")
    means = by_title.agg(pl.col("rating").mean()).collect()
    wide = means.pivot("gender", index="title", values="rating").sort("title").to_pandas()
    return wide.set_index("title")[sorted(set(wide.columns) - {"title"})]
