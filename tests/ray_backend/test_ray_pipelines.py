"""Pipelines over a Split in Ray: the suite of every engine, nothing moves, and a node that ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import ray

from spliter import split
from spliter.pipeline import pipeline
from tests.pipeline.split_suite import TABLE, SplitSuite, tasks
from tests.pipeline.test_engines import TestLocal as LocalSuite
from tests.pipeline.test_engines import check_right_or_lost, killing
from tests.ray_backend.cluster import RayNodes
from tests.ray_backend.placing import at
from tests.ray_backend.test_ray_split import created

__all__ = ["tasks"]

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(300)]


@ray.remote  # type: ignore[untyped-decorator]
def made(make: Callable[[int], Any], number: int) -> Any:
    return make(number)


class TestRay(SplitSuite):
    @pytest.fixture(autouse=True)
    def on_nodes(self, nodes: RayNodes) -> None:
        self.nodes = nodes

    def deliver(self, make: Callable[[int], Any], number: int) -> Any:
        ids = self.nodes.ids[:2]
        return [
            made.options(scheduling_strategy=at(ids[2 * each // number])).remote(make, each)
            for each in range(number)
        ]

    def gathered(self, collection: Any) -> Any:
        return LocalSuite().gathered(ray.get(list(getattr(collection, "blocks", collection))))

    def test_no_block_is_copied_to_another_node(self) -> None:
        large = np.ones((6, 50_000))
        parts = split(self.deliver(lambda number: large * number, 6), partitions_per_location=1)
        pipeline(lambda x: x.sum(axis=0).max())(parts)
        before = created()
        assert pipeline(lambda x: x.max())(parts) == 5
        assert created() - before < large.nbytes

    @pytest.mark.parametrize("is_reduced", [False, True])
    def test_a_worker_killed_in_a_pass_ends_right_or_typed(
        self, tmp_path: Path, is_reduced: bool
    ) -> None:
        def body(x: Any, marker: str) -> Any:
            y = killing(x * 2, marker)
            return y.sum(axis=0) + 0 if is_reduced else y - 1

        def run() -> Any:
            with self.split(TABLE) as parts:
                found = pipeline(body)(parts, str(tmp_path / "killed"))
                return np.asarray(found) if is_reduced else self.gathered(found)

        check_right_or_lost(run, (TABLE * 2 + 1).sum(axis=0) if is_reduced else TABLE * 2)
        assert (tmp_path / "killed").exists()
