"""Sum up runs as the paper does: winsorized, then the median with quartiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.harness.records import Record

FEWEST = 5
"""Runs from which on outliers are told from the others, as in the authors' analysis."""


def winsorized(values: Sequence[float], limits: tuple[float, float]) -> npt.NDArray[np.float64]:
    """Replace the lowest and the highest values by the next ones.

    Parameters
    ----------
    values : sequence of float
        In any order. Fewer than five stay as they are.
    limits : tuple of float
        Shares of them to replace, at the lower and at the upper end.

    Returns
    -------
    ndarray of float64, shape (len(values),)
        Sorted.

    Examples
    --------
    >>> winsorized([1, 2, 3, 4, 5, 6, 7, 8, 9, 99], (0, 0.3)).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 7.0, 7.0]
    """
    found = np.sort(np.asarray(values, dtype=np.float64))
    if len(found) < FEWEST:
        return found
    low, high = (int(share * len(found)) for share in limits)
    return np.clip(found, found[low], found[len(found) - 1 - high])


@dataclass(frozen=True)
class Bar:
    """All runs of one configuration at one place of a figure.

    Parameters
    ----------
    engine, configuration : str
        Of what.
    x : float
        Where.
    runs : int
        How many.
    median, lower, upper : float
        Seconds: median and quartiles of the winsorized runs.
    init, split, rechunk, iterate : float or None
        Medians of the parts, in seconds.
    tasks, nbytes, peak : float or None
        Medians of what was counted.
    blocks : int
        Of all nodes.
    """

    engine: str
    configuration: str
    x: float
    runs: int
    median: float
    lower: float
    upper: float
    init: float | None
    split: float | None
    rechunk: float | None
    iterate: float | None
    tasks: float | None
    nbytes: float | None
    peak: float | None
    blocks: int


def summarise(scenario: Scenario, records: Sequence[Record]) -> list[Bar]:
    """Sum up the runs of a scenario, along the axis, configurations in the scenario's order."""
    groups: dict[tuple[float, str, int], list[Record]] = {}
    order = {name: number for number, name in enumerate(scenario.configurations)}
    for record in records:
        key = (record.x, record.engine, order[record.configuration])  # type: ignore[index]
        groups.setdefault(key, []).append(record)
    return [_bar(groups[key], scenario) for key in sorted(groups)]


def _bar(runs: Sequence[Record], scenario: Scenario) -> Bar:
    lower, median, upper = np.quantile(
        winsorized([run.seconds for run in runs], scenario.winsorize), [0.25, 0.5, 0.75]
    )
    first = runs[0]
    return Bar(
        engine=first.engine,
        configuration=first.configuration,
        x=first.x,
        runs=len(runs),
        median=float(median),
        lower=float(lower),
        upper=float(upper),
        init=_median([run.init_seconds for run in runs]),
        split=_median([run.split_seconds for run in runs]),
        rechunk=_median([run.rechunk_seconds for run in runs]),
        iterate=_median([run.iterate_seconds for run in runs]),
        tasks=_median([run.tasks for run in runs]),
        nbytes=_median([run.bytes_moved for run in runs]),
        peak=_median([run.peak_memory_bytes for run in runs]),
        blocks=first.blocks,
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
