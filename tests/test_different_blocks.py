"""The table of docs/guarantees.md: what each feature does if the blocks of a collection differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("xarray")
pytest.importorskip("xgboost")

from spliter import InvalidArgumentError, gather
from tests.different_blocks import (
    NBLOCKS,
    Argument,
    Blocks,
    Case,
    Feature,
    in_process,
    outcome,
)
from tests.features_of_blocks import FEATURES, first_column, outcomes_of, outcomes_on_page


def test_page_has_all_features() -> None:
    assert outcomes_on_page().keys() == FEATURES.keys()


@pytest.mark.parametrize("feature", FEATURES)
def test_in_this_process(feature: str) -> None:
    assert outcomes_of(feature, in_process) == outcomes_on_page()[feature]


@pytest.mark.thorough
@pytest.mark.backend("dask")
@pytest.mark.parametrize("feature", FEATURES)
def test_on_two_workers(client: Any, feature: str) -> None:
    workers = sorted(client.nthreads())

    def deliver(blocks: Blocks, argument: Argument) -> Any:
        return [
            client.submit(
                blocks.make, argument, number, workers=[workers[2 * number // NBLOCKS]], pure=False
            )
            for number in range(NBLOCKS)
        ]

    assert outcomes_of(feature, deliver) == outcomes_on_page()[feature]


def by_position(part: Any) -> float:
    return sum(float(np.asarray(block)[:, 0].sum()) for block in part)


def without_the_mask(part: Any) -> float:
    return sum(float(np.asarray(first_column(block)).sum()) for block in part)


def refused(case: Case) -> Any:
    raise InvalidArgumentError("something is wrong")


@pytest.mark.parametrize(
    ("run", "difference", "found"),
    [
        (lambda case: sum(gather(case.parts().map(by_position))), "order of columns", "wrong"),
        (lambda case: sum(gather(case.parts().map(without_the_mask))), "masked", "wrong"),
        (lambda case: sum(case.points[1]), "iterator", "wrong"),
        (refused, "sparse", "refused without"),
        (lambda case: 1 / 0, "strings", "ZeroDivisionError"),
    ],
)
def test_faults_are_found(run: Any, difference: str, found: str) -> None:
    def plain(whole: Any) -> Any:
        return np.ma.sum(first_column(whole.x))

    assert found in outcome(Feature(run, plain), difference, in_process)
