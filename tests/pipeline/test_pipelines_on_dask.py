"""Pipelines over a Split of Dask collections: one task per partition, and nothing moves."""

from __future__ import annotations

import functools
import operator
import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import split
from spliter.pipeline import Rows, pipeline, splittable
from spliter_experiments.pipelines import frames as workloads

pytestmark = pytest.mark.backend("dask")

DRAW = np.random.default_rng(2)
TABLE = DRAW.normal(size=(76, 3))
WEIGHTS = DRAW.uniform(1, 2, 76)

close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


def received(client: Any) -> int:
    counts = client.run(lambda dask_worker: dask_worker.state.transfer_incoming_count_total)
    return int(sum(counts.values()))


def passes(dask_scheduler: Any) -> int:
    """Return the number of tasks that have run a pass, and whose results are held."""
    return sum(task.prefix.name == "run_pass" for task in dask_scheduler.tasks.values())


def test_there_is_one_task_per_partition_and_nothing_moves(client: Any) -> None:
    import dask.array as da

    x = da.from_array(TABLE, chunks=(4, 3)).persist()
    y = da.from_array(WEIGHTS, chunks=4).persist()
    parts = split(x, y)

    before = received(client)
    found = pipeline(lambda x, y: np.exp(x) * y[:, None] + 1)(parts)
    assert found.chunks == x.chunks
    assert received(client) == before
    close(found.compute(), np.exp(TABLE) * WEIGHTS[:, None] + 1)
    assert client.run_on_scheduler(passes) == len(parts) < len(x.chunks[0])
    kept = pipeline(lambda x, y: (x[y > 1.5], (x - x.mean(axis=0)).std()))(parts)
    close(kept[0].compute(), TABLE[WEIGHTS > 1.5])
    close(kept[1], (TABLE - TABLE.mean(axis=0)).std())


def test_tasks_call_pipelines_that_are_sent_by_value(client: Any) -> None:
    import dask.array as da

    doubled = pipeline(lambda x: x * 2)  # as functions of `__main__`
    close(client.submit(doubled, TABLE, pure=False).result(), TABLE * 2)
    called = splittable(lambda x: doubled(x) + 1, x=Rows(), returns=Rows())
    x = da.from_array(TABLE, chunks=(4, 3)).persist()
    close(pipeline(lambda x: called(x).sum())(split(x)), (TABLE * 2 + 1).sum())


@pytest.mark.feature("pickling")
def test_lazy_numbers_are_not_computed_while_dask_pickles_them(client: Any) -> None:
    import dask
    import dask.array as da

    calls: dict[str, Any] = {
        "submit": lambda n: client.submit(operator.neg, n, pure=False).result(timeout=20),
        "map": lambda n: client.gather(client.map(operator.neg, [n], pure=False))[0],
        "delayed": lambda n: dask.delayed(operator.neg)(n).compute(),
        "scatter": lambda n: -client.scatter(n).result(timeout=20),
    }

    def body(x: Any, call: Any) -> Any:
        total = x.sum(axis=0)
        with pytest.raises(Exception) as caught:  # noqa: PT011 -- Dask's own, with the cause
            call(total)
        texts = "".join(traceback.format_exception(caught.value))
        return x * call(np.asarray(total)), "pass numpy.asarray(value) to the engine" in texts

    x = da.from_array(TABLE, chunks=(4, 3)).persist()
    for name, call in calls.items():
        found, is_told = pipeline(body)(split(x), call)
        close(found.compute(), TABLE * -TABLE.sum(axis=0))
        assert is_told or name == "map"  # which says what it could not make a token of


def test_frames_stay_where_they_are(client: Any) -> None:
    import dask.dataframe as dd

    frame = workloads.make_cities(2_000, 1)[0]
    collection = dd.from_pandas(frame, npartitions=9).persist()
    parts = split(collection)

    def body(cities: Any) -> Any:
        large = cities[cities["population"] > 500_000]
        return large, cities["adults"] / cities["population"], workloads.crime_index(cities)

    before = received(client)
    large, shares, index = pipeline(body)(parts)
    assert received(client) - before <= len(parts) - 1  # sums, which are combined at a worker
    expected = body(frame)
    assert (large.npartitions, shares.npartitions) == (9, 9)
    pd.testing.assert_frame_equal(large.compute(), expected[0])
    pd.testing.assert_series_equal(shares.compute(), expected[1])
    assert index == pytest.approx(expected[2], rel=1e-12)
