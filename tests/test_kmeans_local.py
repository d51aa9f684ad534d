"""k-means on collections of this process: lists of blocks, arrays in memory, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr
from threadpoolctl import (
    threadpool_info,
    threadpool_limits,
)

from spliter import InvalidArgumentError, split
from spliter_apps._data import BLOCK_ROWS
from spliter_apps.kmeans import KMeans
from spliter_apps.kmeans.points import BlockReader
from spliter_apps.kmeans.seeding import NO_ROWS, find
from tests.engine_collections import ListsOfBlocks, cut
from tests.kmeans_data import dataset, heights, start
from tests.kmeans_suite import KMeansTests

Array = npt.NDArray[Any]


class TestListsOfBlocks(ListsOfBlocks, KMeansTests):
    """Lists of arrays."""


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_memory(order: Any) -> None:
    points = np.asarray(dataset("digits"), order=order)
    weights = np.random.default_rng(0).random(len(points))
    init = start(points)
    found = KMeans(8, init=init).fit(points, sample_weight=weights)
    expected = KMeans(8, init=init).fit(
        cut(points, [1000, 797]), sample_weight=cut(weights, [1000, 797])
    )
    assert isinstance(found.labels_, np.ndarray)
    np.testing.assert_array_equal(found.labels_, np.concatenate(expected.labels_))
    assert found.inertia_ == pytest.approx(expected.inertia_)
    assert found.score(points, sample_weight=weights) == pytest.approx(-found.inertia_)
    assert found.transform(points).shape == (len(points), 8)


def test_an_array_is_cut_into_pieces() -> None:
    points = np.random.default_rng(0).normal(size=(BLOCK_ROWS + 10, 2))
    init = start(points, 3)
    found = KMeans(3, init=init, max_iter=3).fit(points)
    expected = KMeans(3, init=init, max_iter=3).fit([points])
    np.testing.assert_array_equal(found.labels_, expected.labels_[0])


def test_empty_clusters_of_sparse_points() -> None:
    points = dataset("digits")
    init = start(points)
    init[2] += 1e3
    dense = KMeans(8, init=init, max_iter=3).fit(points)
    found = KMeans(8, init=init, max_iter=3).fit(scipy.sparse.csr_matrix(points))
    assert found.inertia_ == pytest.approx(dense.inertia_)


def test_a_memory_map_and_a_zarr_array(tmp_path: Path) -> None:
    points = dataset("iris")
    expected = KMeans(3, random_state=0).fit(points)
    np.save(tmp_path / "points.npy", points)
    mapped = KMeans(3, random_state=0).fit(np.load(tmp_path / "points.npy", mmap_mode="r"))
    np.testing.assert_array_equal(mapped.labels_, expected.labels_)
    x = zarr.create_array(tmp_path / "x.zarr", data=points, chunks=(40, 4))
    blocked = KMeans(3, random_state=0).fit(x)
    np.testing.assert_array_equal(np.concatenate(blocked.labels_), expected.labels_)


def test_the_results_are_the_same_every_time() -> None:
    blocks = cut(dataset("digits"), heights(1797, 30))
    fits = [KMeans(10, init="k-means||", random_state=1).fit(blocks) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    assert fits[0].inertia_ == fits[1].inertia_


def blas_threads() -> set[int]:
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_the_threads_of_blas_come_back() -> None:
    seen = []

    def init(X: Any, n_clusters: int, random_state: Any) -> Array:
        seen.append(blas_threads())
        if len(seen) == 1:  # a fit inside a fit
            KMeans(2, init=init, n_init=1).fit(dataset("iris"))
            seen.append(blas_threads())
        return start(dataset("iris"), n_clusters)

    with threadpool_limits(2, user_api="blas"):
        KMeans(2, init=init, n_init=1).fit(dataset("iris"))
        assert seen == [{1}] * 3
        assert blas_threads() == {2}


# --- what is refused -------------------------------------------------------------------------


def test_drawing_converts_only_the_blocks_that_points_are_drawn_from() -> None:
    converted = []
    block_of = BlockReader.block

    def counting(self: BlockReader, block: Any) -> Any:
        converted.append(block)
        return block_of(self, block)

    blocks = [np.full((3, 2), number, np.int16) for number in range(5)]
    (partition,) = split(blocks, partitions_per_location=1)
    reader = BlockReader(np.dtype(np.float64), weighted=False, origin=np.zeros(2))
    wanted = (np.array([3, 1]), np.array([1.5, 2.5]), "left", NO_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockReader, "block", counting)
        found = partition.submit(find, reader, None, np.empty((0, 2)), *wanted).result()
    assert found.points.tolist() == [[3, 3], [1, 1]]
    assert found.rows.tolist() == [10, 5]
    assert len(converted) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"n_clusters": 0},
        {"n_clusters": 2.5},
        {"n_clusters": True},
        {"max_iter": 0},
        {"tol": -1},
        {"tol": "small"},
        {"n_init": 0},
        {"n_init": "often"},
        {"init": "kmeans++"},
        {"materialize": "never"},
    ],
    ids=str,
)
def test_parameters_that_cannot_be_used(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
        KMeans(**settings).fit(cut(dataset("iris"), [70, 80]))


def test_several_starts_from_given_centres() -> None:
    points = dataset("iris")
    with pytest.warns(RuntimeWarning, match="only one init in KMeans"):
        KMeans(3, init=start(points, 3), n_init=4).fit(points)


@pytest.mark.parametrize("weights", [np.ones(149), -np.ones(150), np.ones((150, 1)), ["a"] * 150])
def test_weights_of_an_array_that_cannot_be_used(weights: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="sample_weight"):
        KMeans(3).fit(dataset("iris"), sample_weight=weights)


def test_points_cut_along_the_features() -> None:
    x = da.from_array(dataset("iris"), chunks=(50, 2)).persist(scheduler="synchronous")
    with pytest.raises(InvalidArgumentError, match="rechunk"):
        KMeans(3).fit(x)


def test_a_split_of_three_collections() -> None:
    blocks = cut(dataset("iris"), [70, 80])
    with (
        split(blocks, blocks, blocks) as parts,
        pytest.raises(InvalidArgumentError, match=r"split\(X, sample_weight\)"),
    ):
        KMeans(3).fit(parts)


def test_first_centres_are_dealt_out_in_a_bounded_number_of_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spliter_apps.kmeans import seeding

    passes: list[str] = []

    def counting(name: str) -> Any:
        started = getattr(seeding, name)

        def begin(*args: Any) -> Any:
            passes.append(name)
            return started(*args)

        return begin

    for name in ("measure", "sample"):
        monkeypatch.setattr(seeding, name, counting(name))
    points = dataset("digits")
    with split(cut(points, heights(len(points), 7))) as parts:
        n = len(parts)
        KMeans(20, init="k-means++", max_iter=1, random_state=0).fit(parts)
        assert passes == ["measure"] * n * 20
        passes.clear()
        KMeans(20, init="k-means||", max_iter=1, random_state=0).fit(parts)
        assert sorted(passes) == ["measure"] * n * 5 + ["sample"] * n * 5
        # The default: of few clusters scikit-learn's draws, of many a bounded number of passes.
        for n_clusters, expected in ((16, ["measure"] * n * 16), (17, sorted(passes))):
            passes.clear()
            KMeans(n_clusters, max_iter=1, random_state=0).fit(parts)
            assert sorted(passes) == expected
