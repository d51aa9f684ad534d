"""COMPSs tasks over objects in a real dataClay: found by its locator, run on the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spliter import BackendNotUsableError, Partition, split
from spliter_apps import histogramdd
from tests.compss_backend.dsarrays import contents
from tests.engine_collections import cut
from tests.histogram_suite import points

pytest.importorskip("dataclay")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("compss"),
    pytest.mark.backend("dataclay"),
    pytest.mark.standin,
    pytest.mark.timeout(200),
]


@pytest.fixture(scope="module")
def dataclay() -> Iterator[Any]:
    from spliter_backends.dataclay.cluster import EmbeddedDataClay

    with EmbeddedDataClay(2) as services:
        yield services.client()


@pytest.fixture(params=["without a runtime", "on nodes"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> None:
    if request.param == "on nodes":
        request.getfixturevalue("runtime")


@pytest.fixture
def blocks(dataclay: Any) -> Any:
    from spliter_backends.dataclay import distribute

    return distribute(cut(points(), [30, 0, 20, 40]))


def test_blocks_and_indexes(blocks: Any) -> None:
    with split(blocks, backend="compss") as parts:
        assert len(parts.locations) == 2
        found = [future.result() for future in parts.map(contents)]
        assert [[index for index, _ in content] for content in found] == [
            partition.get_indexes() for partition in parts
        ]
        for partition, content in zip(parts, found, strict=True):
            rows = np.concatenate([block for _, block in content])
            np.testing.assert_array_equal(rows, points()[partition.get_item_indexes()])


def count(partition: Partition) -> int:
    return sum(1 for _ in partition)


def test_aligned_and_as_one(blocks: Any) -> None:
    from spliter_backends.dataclay import distribute

    other = distribute([block * 2 for block in cut(points(), [30, 0, 20, 40])])
    with split(blocks, other, backend="compss", materialize=True) as parts:
        assert [future.result() for future in parts.map(count)] == [1] * len(parts)
        same = parts.map(lambda part: all(np.array_equal(2 * a, b) for a, b in part))
        assert all(future.result() for future in same)


def read(partition: Partition, failing: Any = None) -> tuple[list[Any], int, int | None, str]:
    """Return the blocks, the number of copies, the depth of reading ahead, and an error.

    Copying one of the objects may fail.
    """
    from spliter_backends.compss import persistent_contents

    copy, copied, found, error = persistent_contents.content_of, [], [], ""

    def content(value: Any) -> Any:
        copied.append(value)
        if value._dc_meta.id == failing:
            raise OSError("no copy")
        return copy(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistent_contents, "content_of", content)
        reading: Any = iter(partition)
        try:
            found.extend(reading)
        except OSError as raised:
            error = str(raised)
    return found, len(copied), getattr(reading._blocks, "deepest", None), error


def test_blocks_are_copied_once_and_ahead(dataclay: Any) -> None:
    from spliter_backends.dataclay import distribute

    blocks = distribute(cut(points(), [10] * 9))
    for prefetch in (3, "auto", False):
        with split(blocks, backend="compss", partitions_per_location=1, prefetch=prefetch) as parts:
            outcomes = [future.result() for future in parts.map(read)]
            for partition, (found, copies, depth, error) in zip(parts, outcomes, strict=True):
                rows = points()[partition.get_item_indexes()]
                np.testing.assert_array_equal(np.concatenate(found), rows)
                assert (copies, error) == (len(partition), "")
                assert (depth is None) == (prefetch is False)
                assert prefetch != 3 or depth == 3
            lost = blocks.object_ids[parts[0].indexes.positions[2]]
            found, _, _, error = parts[0].submit(read, lost).result()
            assert (len(found), error) == (2, "no copy")


def test_application(blocks: Any) -> None:
    with split(blocks, backend="compss") as parts:
        found, _ = histogramdd(parts, 3)
    np.testing.assert_array_equal(found, np.histogramdd(points(), 3)[0])


def test_blocks_of_yet_another_backend(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "points", dtype=np.float64, mode="w+", shape=(8, 2))
    if "on nodes" in request.node.name:
        with pytest.raises(BackendNotUsableError, match="dataClay"):
            split(stored, backend="compss")
    else:
        counts = split(stored, backend="compss").map(count)
        assert sum(future.result() for future in counts) > 0
