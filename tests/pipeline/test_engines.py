"""Pipelines over a Split on the local engine and on Dask: the suite, counts, and faults."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import InvalidArgumentError, SplIterError, split
from spliter.pipeline import Rows, pipeline, splittable
from tests.pipeline.checks import attempt
from tests.pipeline.split_suite import TABLE, WEIGHTS, SplitSuite, norms, tasks

__all__ = ["tasks"]


class TestLocal(SplitSuite):
    """In this process."""

    def deliver(self, make: Callable[[int], Any], number: int) -> Any:
        return [make(each) for each in range(number)]

    def gathered(self, collection: Any) -> Any:
        if isinstance(collection[0], np.ndarray):
            return np.concatenate(collection)
        return pd.concat([each for each in collection if len(each)])


@pytest.mark.backend("dask")
class TestDask(SplitSuite):
    """On two worker processes."""

    @pytest.fixture(autouse=True)
    def of_client(self, client: Any) -> None:
        self.client = client

    def deliver(self, make: Callable[[int], Any], number: int) -> Any:
        from tests.dask_workers import workers_of

        workers = workers_of(self.client)
        return [
            self.client.submit(make, each, workers=[workers[2 * each // number]], pure=False)
            for each in range(number)
        ]

    def gathered(self, collection: Any) -> Any:
        if isinstance(collection, list):
            return TestLocal().gathered(self.client.gather(collection))
        return collection.compute()

    def received(self) -> int:
        counts = self.client.run(
            lambda dask_worker: dask_worker.state.transfer_incoming_count_total
        )
        return int(sum(counts.values()))

    def test_tasks_are_partitions_and_no_byte_moves(self) -> None:
        import dask.array as da
        from distributed import wait

        from benchmarks.pipelines import results_of
        from tests.counting import counter
        from tests.dask_workers import workers_of

        workers = workers_of(self.client)
        x = da.from_array(TABLE, chunks=(4, 3)).persist()
        w = da.from_array(WEIGHTS, chunks=4).persist()
        parts = split(x, w)
        body = pipeline(lambda x, w: np.exp(x) * w[:, None] + norms(x)[:, None])
        body(parts)  # what workers import they keep
        with counter(self.client) as count:
            found = count(lambda: wait(results_of(kept := body(parts))) and kept)
            ones = [self.client.submit(np.ones, 9, workers=[each], pure=False) for each in workers]
            moved = count(lambda: self.client.submit(np.add, *ones).result(60))
        assert (found.tasks, found.nbytes) == (len(parts), 0)
        assert moved.nbytes > 0
        assert len(parts) == 2 < len(x.chunks[0])

    def test_results_have_the_blocks_of_the_collection(self) -> None:
        import dask.array as da

        x = da.from_array(TABLE, chunks=(4, 3)).persist()
        found, few = pipeline(lambda x: (x * 2, x[x[:, 0] > 0]))(split(x))
        assert (found.chunks, found.dtype) == (x.chunks, x.dtype)
        np.testing.assert_array_equal(found.compute(), TABLE * 2)
        assert few.numblocks == x.numblocks
        np.testing.assert_array_equal(few.compute(), TABLE[TABLE[:, 0] > 0])

    def test_frames_of_dask(self) -> None:
        import dask.dataframe as dd

        frame = pd.DataFrame({"a": WEIGHTS, "n": np.arange(30)})
        scaled = splittable(lambda frame: frame * 2, frame=Rows(), returns=Rows())
        found = pipeline(scaled)(split(dd.from_pandas(frame, npartitions=4).persist()))
        pd.testing.assert_frame_equal(found.compute(), frame * 2)

    def test_rows_must_be_whole(self) -> None:
        import dask.array as da

        columns = da.from_array(TABLE, chunks=(4, 2)).persist()
        with pytest.raises(InvalidArgumentError, match="parts of rows"):
            pipeline(lambda x: x.mean(axis=0))(split(columns))

    def test_functions_sent_by_value_and_pipelines_in_tasks(self) -> None:
        doubled = pipeline(lambda x: x * 2)
        found = self.client.submit(doubled, TABLE, pure=False).result(60)
        np.testing.assert_array_equal(found, TABLE * 2)
        called = splittable(lambda x: doubled(x) + 1, x=Rows(), returns=Rows(like="x"))
        self.check(lambda x: called(x).sum(axis=0), TABLE)


def kill_once(x: Any, marker: str) -> Any:
    """End the process of the first call, as a crash would."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return x + 1
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


killing = splittable(kill_once, x=Rows(), returns=Rows(like="x"))


@pytest.fixture(scope="module")
def fragile() -> Iterator[Any]:
    """Client of a cluster whose workers may be killed: others take their place."""
    from tests.dask_backend.conftest import start

    with ExitStack() as stack:
        yield start(stack)


@pytest.mark.backend("dask")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_reduced", [False, True])
def test_a_worker_killed_in_a_pass_ends_right_or_typed(
    fragile: Any, tmp_path: Path, is_reduced: bool
) -> None:
    import dask.array as da

    def body(x: Any, marker: str) -> Any:
        y = killing(x * 2, marker)
        return y.sum(axis=0) + 0 if is_reduced else y - 1

    fragile.wait_for_workers(2, timeout=60)
    x = da.from_array(TABLE, chunks=(5, 3)).persist()

    def run() -> Any:
        found = pipeline(body)(split(x), str(tmp_path / "killed"))
        return np.asarray(found if is_reduced else found.compute())

    check_right_or_lost(run, (TABLE * 2 + 1).sum(axis=0) if is_reduced else TABLE * 2)
    assert (tmp_path / "killed").exists()


def check_right_or_lost(run: Callable[[], Any], expected: Any) -> None:
    """Check that a result is right, or that a typed error says what was lost."""
    found = attempt(run)
    if isinstance(found, SplIterError):
        assert re.search(r"lost|worker|node|died|killed|ended", str(found).lower()), found
    else:
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.backend("dask")
@pytest.mark.timeout(120)
def test_a_worker_killed_between_passes_ends_right_or_typed(fragile: Any) -> None:
    import dask.array as da

    from tests.dask_backend.programs import kill
    from tests.dask_workers import workers_of

    fragile.wait_for_workers(2, timeout=60)
    x = da.from_array(TABLE, chunks=(5, 3)).persist()
    parts = split(x)

    def body(x: Any) -> Any:
        mean = np.asarray(x.mean(axis=0))
        kill(fragile, workers_of(fragile)[0])
        return x - mean

    check_right_or_lost(lambda: pipeline(body)(parts).compute(), TABLE - TABLE.mean(axis=0))
