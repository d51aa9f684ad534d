"""One function for arrays and for a Split: passes, results blocked alike, nothing moved."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import Reduction, Rows, options, pipeline, splittable

LENGTHS = [5, 0, 40, 1, 30]
DRAW = np.random.default_rng(2)
TABLE = DRAW.normal(size=(sum(LENGTHS), 3))
WEIGHTS = DRAW.uniform(1, 2, sum(LENGTHS))


def blocks(whole: Any) -> list[Any]:
    return np.split(whole, np.cumsum(LENGTHS)[:-1])


def standardized(x: Any) -> Any:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def summary(x: Any, weights: Any) -> Any:
    total = float(weights.sum())
    heavy = x[weights > 1.5]
    return {
        "rows": x[:, 0] * weights / total,
        "sorted": np.sort(x, axis=1),
        "heavy": heavy + 1,
        "max": x.max(axis=0, keepdims=True),
        "of heavy": heavy.sum(axis=0),
        "centred": x - x.min(axis=0, keepdims=True),
    }


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch", ["auto", 7])
def test_results_with_rows_are_blocked_alike(batch: Any) -> None:
    with options(batch=batch), split(blocks(TABLE)) as parts:
        found = pipeline(standardized)(parts)
    assert [len(block) for block in found] == LENGTHS
    close(np.concatenate(found), standardized(TABLE))


def test_aligned_collections_are_as_many_arguments() -> None:
    expected = summary(TABLE, WEIGHTS)
    found = pipeline(summary)(split(blocks(TABLE), blocks(WEIGHTS)))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        close(np.concatenate(value) if isinstance(value, list) else value, expected[name])


def test_annotated_functions_and_broadcast_arguments() -> None:
    shifted = splittable(lambda x, by: np.hypot(x, by) * 1, x=Rows(), returns=Rows())
    by = np.arange(3.0)
    found = pipeline(lambda x, by: shifted(x, by) + by)(split(blocks(TABLE)), by)
    close(np.concatenate(found), np.hypot(TABLE, by) + by)


def test_reductions_of_annotated_functions_reach_later_calls() -> None:
    longest = splittable(lambda x: float(np.abs(x).max()), x=Rows(), returns=Reduction(merge=max))
    scaled = splittable(lambda x, by: x / by, x=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        most = longest(x)
        return scaled(x, most), most * 1, scaled(x + 1, x.max())

    found, expected = pipeline(body)(split(blocks(TABLE))), body(TABLE)
    close(np.concatenate(found[0]), expected[0])
    assert found[1] == expected[1]
    close(np.concatenate(found[2]), expected[2])


@pytest.mark.parametrize(
    "body",
    [
        lambda x: np.sort(x, axis=0),
        lambda x: np.asarray(x),  # noqa: PLW0108 -- a lazy value
        lambda x: x[3],
        lambda x: x.shape,
        lambda x: x.argmin(),
        lambda x: x + np.ones((sum(LENGTHS), 3)),
    ],
)
def test_what_needs_the_whole_array_is_refused_with_its_bytes(body: Any) -> None:
    with pytest.raises(WholeArrayError, match=f"{TABLE.nbytes} bytes.*arrays instead"):
        pipeline(body)(split(blocks(TABLE)))


def test_wrong_splits() -> None:
    parts = split(blocks(TABLE))
    with pytest.raises(InvalidArgumentError, match="split the collections together"):
        pipeline(operator.add)(parts, split(blocks(TABLE)))
    with pytest.raises(InvalidArgumentError, match="takes NumPy arrays"):
        pipeline(standardized)(split([["a"], ["b"]]))
    with pytest.raises(InvalidArgumentError, match="no rows"):
        pipeline(lambda x: x.max())(split([np.empty(0), np.empty(0)]))


@pytest.mark.backend("dask")
def test_on_dask_there_is_one_task_per_partition_and_nothing_moves(client: Any) -> None:
    import dask.array as da

    x = da.from_array(TABLE, chunks=(4, 3)).persist()
    y = da.from_array(WEIGHTS, chunks=4).persist()
    parts = split(x, y)

    def received() -> int:
        counts = client.run(lambda dask_worker: dask_worker.state.transfer_incoming_count_total)
        return int(sum(counts.values()))

    before = received()
    found = pipeline(lambda x, y: np.exp(x) * y[:, None] + 1)(parts)
    assert found.chunks == x.chunks
    assert received() == before
    close(found.compute(), np.exp(TABLE) * WEIGHTS[:, None] + 1)
    kept = pipeline(lambda x, y: (x[y > 1.5], (x - x.mean(axis=0)).std()))(parts)
    close(kept[0].compute(), TABLE[WEIGHTS > 1.5])
    close(kept[1], (TABLE - TABLE.mean(axis=0)).std())
