"""COMPSs tasks over objects in a real dataClay with a storage interface; inside ``runcompss``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from spliter import Partition, gather, split
from spliter_apps import histogramdd
from spliter_apps.kmeans import KMeans
from spliter_backends.compss import configure
from spliter_backends.compss.api import storage_is_configured
from spliter_backends.compss.persistent import nodes_of_backends
from spliter_backends.dataclay import distribute
from spliter_experiments.compare.engines.compss_launch import WITH_DATACLAY as ENGINE
from spliter_experiments.compare.engines.engine import ClusterChoice
from tests.compss_backend.real.nodes import nodes_by_software
from tests.dataclay_backend.classes import Readings, Table
from tests.engine_collections import cut
from tests.experiments.call_ways import pose
from tests.histogram_suite import points

WORKERS = nodes_of_backends()


def split_on_compss(*collections: Any, **settings: Any) -> Any:
    return split(*collections, backend="compss", **settings)


def test_there_is_a_storage_interface() -> None:
    assert storage_is_configured()
    assert set(WORKERS.values()) == set(nodes_by_software())


def test_histogram() -> None:
    with split_on_compss(distribute(cut(points(), [20] * 4 + [10]))) as parts:
        found, _ = histogramdd(parts, 3)
    np.testing.assert_array_equal(found, np.histogramdd(points(), 3)[0])


def test_k_means() -> None:
    flowers = load_iris().data
    with split_on_compss(distribute(cut(flowers, [40] * 3 + [30]))) as parts:
        ours = KMeans(3, random_state=0).fit(parts)
        labels = np.concatenate(ours.labels_.gather())
    expected = KMeans(3, random_state=0).fit(flowers)
    np.testing.assert_allclose(ours.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(labels, expected.labels_)


@pytest.mark.parametrize("name", ["histogram", "knn-blocks"])
def test_comparison(name: str) -> None:
    with ENGINE.connect(ClusterChoice(None, workers=1, threads=1)) as engine:
        assert engine.workers == len(WORKERS)
        with pose(ENGINE, name, engine, {}) as posed:
            wanted = posed.answer("per-block")
            assert posed.app.same(posed.answer("spliter"), wanted)
            assert posed.tasks("spliter") < posed.tasks("per-block")


def total(partition: Partition) -> int:
    return sum(int(getattr(block, "values", block).sum()) for block in partition)


@pytest.mark.parametrize("kind", [Readings, Table])
def test_objects_of_a_program(kind: Any) -> None:
    objects = [kind(np.arange(size)) for size in (3, 4, 5)]
    for value in objects:
        value.make_persistent()
    with split_on_compss(objects) as parts:
        assert sum(gather(parts.map(total))) == 3 + 6 + 10


def doubled(partition: Partition) -> list[bool]:
    return [bool(np.array_equal(2 * one, other)) for one, other in partition]


def test_aligned_and_as_one() -> None:
    blocks = cut(points(), [30, 0, 20, 40])
    other = distribute([block * 2 for block in blocks])
    with split_on_compss(distribute(blocks), other, materialize=True) as parts:
        assert gather(parts.map(doubled)) == [[True]] * len(parts)


def depth(partition: Partition) -> tuple[float, int]:
    """Return the sum of the items, and how many blocks were copied ahead; -1 if none may be."""
    blocks: Any = iter(partition)
    found = sum(float(block.sum()) for block in blocks)
    return found, getattr(blocks._blocks, "deepest", -1)


def test_blocks_are_copied_ahead() -> None:
    blocks = distribute(cut(points(), [10] * 9))
    for prefetch, depths in ((3, {1, 2, 3}), (False, {-1})):
        with split_on_compss(blocks, partitions_per_location=1, prefetch=prefetch) as parts:
            found = gather(parts.map(depth))
        np.testing.assert_allclose(sum(part for part, _ in found), points().sum())
        assert {ahead for _, ahead in found} <= depths


def test_objects_that_move() -> None:
    objects = [Table(np.arange(size)) for size in range(4)]
    for value in objects:
        value.make_persistent()
    with split_on_compss(objects) as parts:
        expected = 0 + 0 + 1 + 3
        assert sum(gather(parts.map(total))) == expected
        for value in objects:
            there = uuid.UUID(
                next(one for one in WORKERS if one != str(value._dc_meta.master_backend_id))
            )
            value.move(backend_id=there)
        assert sum(gather(parts.map(total))) == expected


def node(_: Partition) -> str:
    return os.environ["COMPSS_HOSTNAMES"]


@pytest.fixture
def pinned() -> Iterator[None]:
    before = configure(pins=nodes_by_software())
    yield
    configure(pins=before.pins)


@pytest.mark.usefixtures("pinned")
def test_pinned_to_the_nodes_of_the_backends() -> None:
    blocks = distribute(cut(points(), [9] * 10))
    with split_on_compss(blocks, partitions_per_location=5) as parts:
        assert len(parts) == 10
        assert gather(parts.map(node)) == [WORKERS[part.location] for part in parts]
