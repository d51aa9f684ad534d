"""Reports of tasks on Ray, and split called in tasks, actors, threads and Ray Client."""

from __future__ import annotations

import asyncio
import operator
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import ray
from ray import ObjectRef

from spliter import (
    BackendNotUsableError,
    BlockLostError,
    reduce,
    split,
    task,
)
from spliter_backends.ray import blocks as ray_blocks
from tests.ray_backend import programs
from tests.ray_backend.cluster import RayNodes
from tests.ray_backend.placing import at, put_at
from tests.ray_backend.test_ray_split import WAIT

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(120)]


def test_what_moved_is_counted_for_its_own_split(nodes: RayNodes) -> None:
    """A task on partitions of two Splits reads the blocks of one, which come from elsewhere."""
    handle, name = nodes.add(num_cpus=0)
    try:
        putting = programs.put_all.options(num_cpus=0, scheduling_strategy=at(name))
        stranded = ray.get(putting.remote([np.ones(20_000, int)]), timeout=WAIT)
        mine, others = split(stranded), split(stranded)
        (first,), (second,) = list(mine), list(others)
        assert first.location == second.location
        assert task(programs.first_total)(first, second).result(WAIT) == 20_000
        assert mine.moved.fetched_blocks == 1
        assert others.moved.blocks == 0
        assert task(programs.first_total)(second, first).result(WAIT) == 20_000
        assert mine.moved.fetched_blocks == 1
    finally:
        nodes.kill(handle)


def test_reports_asked_for_by_submitting(
    nodes: RayNodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each task submitted asks about one report at most, however many are pending."""
    asked = []
    wait = ray.wait

    def counted(references: list[ObjectRef], **options: Any) -> Any:
        asked.append(len(references))
        return wait(references, **options)

    parts = split([ray.put(np.arange(4)) for _ in range(30)], partitions_per_location=30)[:]
    monkeypatch.setattr(ray, "wait", counted)
    go = tmp_path / "go"
    futures = [part.submit(programs.wait_for, str(go)) for _ in range(3) for part in parts]
    assert sum(asked) <= len(futures)
    go.touch()
    for future in futures:
        future.result(WAIT)


@ray.remote  # type: ignore[untyped-decorator]
def split_and_add(blocks: list[ObjectRef]) -> int:
    futures = [task(programs.total)(partition) for partition in split(blocks)]
    return int(reduce(operator.add, futures).result(WAIT))


def test_in_a_task(nodes: RayNodes) -> None:
    blocks = put_at(nodes.ids, [np.arange(3)] * 6, [0, 1, 2] * 2)
    assert ray.get(split_and_add.remote(blocks), timeout=WAIT) == 18


@ray.remote
class Asynchronous:
    """An actor with an event loop."""

    async def direct(self, blocks: list[ObjectRef]) -> str:
        try:
            split(blocks)
        except BackendNotUsableError as error:
            return str(error)
        return "it was done"

    async def in_a_thread(self, blocks: list[ObjectRef]) -> int:
        return len(await asyncio.to_thread(split, blocks))


def test_on_the_event_loop_of_an_actor(nodes: RayNodes) -> None:
    remote: Any = Asynchronous
    actor = remote.options(num_cpus=0).remote()
    blocks = put_at(nodes.ids, [np.arange(3)] * 2, [0, 1])
    assert "asyncio.to_thread" in ray.get(actor.direct.remote(blocks), timeout=WAIT)
    assert ray.get(actor.in_a_thread.remote(blocks), timeout=WAIT) == 2
    ray.kill(actor)


def test_in_another_thread(nodes: RayNodes) -> None:
    blocks = put_at(nodes.ids, [np.arange(3)] * 2, [0, 1])
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(split(blocks))))
    thread.start()
    thread.join(WAIT)
    assert found == [2]


def test_after_the_connection_has_changed(nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = split([ray.put(np.arange(4))])
    monkeypatch.setattr(ray_blocks, "connection", lambda: "another")
    with pytest.raises(BlockLostError, match="Ray was shut down"):
        parts.map(programs.total)


def test_through_ray_client(nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
    with pytest.raises(BackendNotUsableError, match="Ray Client"):
        split([ray.put(np.arange(4))])
