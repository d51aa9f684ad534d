"""Data for the tests of boosting: points of few values, and blocks at given workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from distributed import Client, wait

from spliter_apps import boosting
from tests.dask_workers import workers_of

train_xgboost = partial(boosting.train_xgboost, timeout=60)  # less than a test may take

N_ROWS = 600
SETTINGS = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "base_score": 0.5}


def few_values() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Points of few different values, so that histograms have the same bins wherever rows are."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 12, (N_ROWS, 4)).astype(float)
    return x, (x[:, 0] + x[:, 1] * (x[:, 2] > 5) + rng.normal(size=N_ROWS) > 8).astype(np.int64)


def placed(client: Client, blocks: Sequence[Any], at: Sequence[int]) -> list[Any]:
    """Return futures of blocks, each at a worker by number."""
    workers = workers_of(client)
    futures = [
        client.scatter(block, workers=[workers[where]], hash=False, broadcast=False)
        for block, where in zip(blocks, at, strict=True)
    ]
    wait(futures)
    return futures


def in_four(client: Client, *arrays: Any, at: Sequence[int] = (0, 1, 0, 1)) -> list[list[Any]]:
    return [placed(client, np.split(array, 4), at) for array in arrays]


def same_predictions(trained: Any, theirs: Any, matrix: Any) -> None:
    np.testing.assert_allclose(trained.booster.predict(matrix), theirs.predict(matrix), atol=1e-4)


FRAME = pd.DataFrame(few_values()[0], columns=list("abcd"))
LABELS = few_values()[1]
METHODS = pytest.mark.parametrize("tree_method", ["hist", "approx"])
PLACES = pytest.mark.parametrize("at", [(0, 0), (0, 1)], ids=["at one", "at two"])


def halves(whole: Any) -> list[Any]:
    return [whole[: N_ROWS // 2], whole[N_ROWS // 2 :]]


def in_two(client: Client, *several: Any, at: Sequence[int] = (0, 1)) -> list[list[Any]]:
    return [placed(client, halves(whole), at) for whole in several]


def free(client: Client) -> None:
    """Check that every worker's thread can be had again."""
    workers = workers_of(client)
    for worker in workers:
        assert client.submit(int, 1, workers=[worker], pure=False).result(timeout=60) == 1
