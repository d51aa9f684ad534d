"""The conformance suite, and two tests of this backend alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders_backend import Files, folder_executor

from spliter import BlockLostError, Partition, split
from spliter.testing import BackendTests


def folder_of_this_thread(_: Partition) -> str:
    """Return the location a task runs at, from the name of its thread."""
    return threading.current_thread().name.removeprefix("folder ").rpartition("_")[0]


class TestFolders(BackendTests):
    """Each location is a folder below pytest's temporary folder."""

    backend = "folders"
    locations_are_elsewhere = False  # a folder's threads are threads of this process
    n_locations = 3

    @pytest.fixture(autouse=True)
    def folders(self, tmp_path: Path) -> None:
        """Start with no folders."""
        self.root = tmp_path
        self.numbers = itertools.count()

    def distribute(self, blocks: Sequence[Any], placement: Sequence[int]) -> Any:
        """Write each block into the folder of its location."""
        paths = []
        for block, location in zip(blocks, placement, strict=True):
            path = self.root / f"disk{location}" / f"{next(self.numbers):06}.npy"
            path.parent.mkdir(exist_ok=True)
            np.save(path, block)
            paths.append(path)
        return Files(tuple(paths))

    def where_it_runs(self) -> Callable[[Partition], str]:
        """Return the function above."""
        return folder_of_this_thread

    def test_reduce_and_gather_know_its_futures(self) -> None:
        """And where their tasks were sent."""
        (future, *_) = self.split_of(3, 4).map(len)
        assert folder_executor().location_of(future) == str(self.root / "disk0")

    def test_a_deleted_file_raises_block_lost(self) -> None:
        """Tasks on other blocks are not affected."""
        files = self.encoded((3, 4, 5))
        parts = split(files)
        files.paths[1].unlink()
        first, second, third = parts.map(lambda part: sum(len(block) for block in part))
        assert first.result(timeout=60) == 3
        assert third.result(timeout=60) == 5
        with pytest.raises(BlockLostError, match=r"000001\.npy is missing"):
            second.result(timeout=60)
