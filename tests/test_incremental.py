"""Learning block by block where the blocks are, and batches of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier, SGDRegressor

from spliter import InvalidArgumentError, Partition, gather, split
from spliter_apps.incremental import MiniBatches, partial_fit
from tests.dask_workers import workers_of


@pytest.fixture(scope="module")
def blocks() -> tuple[list[Any], list[Any], list[Any]]:
    rng = np.random.default_rng(5)
    x = [rng.normal(size=(rows, 3)) for rows in (40, 0, 25, 60, 10, 35)]
    y = [(block[:, 0] > block[:, 1]).astype(int) for block in x]
    return x, y, [rng.uniform(0.5, 2, size=len(block)) for block in x]


def looped(model: Any, order: list[int], blocks: Any, passes: int = 1) -> Any:
    for _ in range(passes):
        for at in order:
            x, y, weight = (column[at] for column in blocks)
            if len(x):
                model.partial_fit(x, y, classes=[0, 1], sample_weight=weight)
    return model


class Recorder:
    """Remembers the first value of each block it has seen."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def partial_fit(self, x: Any) -> Recorder:
        self.seen.append(float(x[0, 0]))
        return self


def test_same_as_a_loop_in_one_process(blocks: tuple[list[Any], list[Any], list[Any]]) -> None:
    x, y, weight = blocks
    model = SGDClassifier(random_state=0)
    fitted = partial_fit(model, x, y, sample_weight=weight, passes=2, classes=[0, 1])
    expected = looped(SGDClassifier(random_state=0), list(range(6)), blocks, passes=2)
    np.testing.assert_array_equal(fitted.coef_, expected.coef_)
    assert fitted.t_ == expected.t_
    assert not hasattr(model, "coef_")  # the caller's is as it was


class TestOnDask:
    pytestmark = pytest.mark.backend("dask")

    @staticmethod
    def futures(client: Any, column: list[Any]) -> list[Any]:
        """Put blocks at the two workers in turn."""
        workers = workers_of(client)
        return [
            client.submit(np.copy, block, workers=[workers[at % 2]], pure=False)
            for at, block in enumerate(column)
        ]

    @pytest.mark.parametrize("in_order", [False, True])
    def test_order_of_blocks(
        self, client: Any, blocks: tuple[list[Any], list[Any], list[Any]], in_order: bool
    ) -> None:
        x, y, weight = (self.futures(client, column) for column in blocks)
        fitted = partial_fit(
            SGDClassifier(random_state=0),
            x,
            y,
            sample_weight=weight,
            in_order=in_order,
            classes=[0, 1],
        )
        order = list(range(6)) if in_order else [0, 2, 4, 1, 3, 5]
        expected = looped(SGDClassifier(random_state=0), order, blocks)
        np.testing.assert_array_equal(fitted.coef_, expected.coef_)

    def test_only_the_model_moves(self, client: Any) -> None:
        x = self.futures(client, [np.full((50_000, 2), float(at)) for at in range(6)])
        from spliter_experiments.compare.engines.dask_meter import ClusterMeter

        with ClusterMeter(client) as meter:
            client.gather([client.submit(len, future, pure=False) for future in x])
            before = meter.reading()
            fitted = partial_fit(Recorder(), x, passes=2)
            cost = meter.reading().since(before)
        assert fitted.seen == [0, 2, 4, 1, 3, 5] * 2
        assert cost.tasks <= 2 * 2 + 2  # a task per worker and pass; the lists of blocks
        assert cost.nbytes is not None
        assert cost.nbytes < 100_000  # a block has 800 kB


def test_wrong_arguments_are_refused() -> None:
    x = [np.zeros((2, 2))]
    with pytest.raises(InvalidArgumentError, match="no partial_fit"):
        partial_fit(object(), x)
    with pytest.raises(InvalidArgumentError, match="passes"):
        partial_fit(SGDRegressor(), x, passes=0)
    (partition,) = split(x)
    with pytest.raises(InvalidArgumentError, match="size must be an int >= 1"):
        MiniBatches(partition, 0)


def lengths(partition: Partition, size: int, **options: Any) -> list[int]:
    return [len(x) for x, _ in MiniBatches(partition, size, **options)]


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_batches_have_one_size_and_all_rows(
    blocks: tuple[list[Any], list[Any], list[Any]], size: int
) -> None:
    x, y, _ = blocks
    (partition,) = split(x, y, partitions_per_location=1)
    (sizes,) = gather([partition.submit(lengths, size)])
    assert sizes == [size] * (170 // size) + ([170 % size] if 170 % size else [])
    (full,) = gather([partition.submit(lengths, size, drop_last=True)])
    assert full == [size] * (170 // size)

    def rows(partition: Partition) -> Any:
        return [
            np.concatenate(column) for column in zip(*MiniBatches(partition, size), strict=True)
        ]

    found = partition.submit(rows).result()
    np.testing.assert_array_equal(found[0], np.concatenate(x))
    np.testing.assert_array_equal(found[1], np.concatenate(y))


def test_shuffling_keeps_rows_together_and_differs_by_epoch() -> None:
    x = [np.arange(100), np.arange(100, 150)]
    (partition,) = split(x, [block * 2 for block in x], partitions_per_location=1)

    def epochs(partition: Partition) -> list[Any]:
        batches = MiniBatches(partition, 64, seed=1)
        return [[np.concatenate(c) for c in zip(*batches, strict=True)] for _ in range(2)]

    first, second = partition.submit(epochs).result()
    assert (first[0] * 2 == first[1]).all()
    assert sorted(first[0].tolist()) == list(range(150))
    assert first[0].tolist() != second[0].tolist()

    def again(partition: Partition) -> Any:
        batches = MiniBatches(partition, 64, seed=1)
        batches.set_epoch(1)
        return np.concatenate([x for x, _ in batches])

    np.testing.assert_array_equal(partition.submit(again).result(), second[0])


def test_frames_are_cut_by_rows() -> None:
    x = [pd.DataFrame({"a": range(3)}), pd.DataFrame({"a": range(3, 8)}, index=range(5))]
    (partition,) = split(x, partitions_per_location=1)
    sums = partition.submit(lambda part: [int(b["a"].sum()) for b in MiniBatches(part, 4)])
    assert sums.result() == [6, 22]
