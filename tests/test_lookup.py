"""Records by key: the same as a plain loop of single gets, requested once, in batches, ahead."""

from __future__ import annotations

import functools
import gc
import math
import threading
import time
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from spliter import InvalidArgumentError, SplitClosedError, split
from spliter._reading.lookup import MAX_REQUESTS, Lookup, LookupAhead
from spliter._reading.pace import MAX_DEPTH
from spliter._reading.read_ahead import (
    WINDOW_NBYTES,
    Fetches,
    ReadAhead,
    _abandoned,
    wait_for_abandoned,
    window_of,
)


class Squares:
    """Squares of the numbers that are not negative; counts its requests."""

    def __init__(self, max_batch: int = 4, delay: float = 0.0, failing: int | None = None) -> None:
        self.max_batch = max_batch
        self.delay = delay
        self.failing = failing
        self.requests: list[Sequence[Any]] = []
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()

    def get(self, key: Any) -> Any:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> Sequence[Any]:
        with self.lock:
            self.requests.append(keys)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.delay)
        with self.lock:
            self.running -= 1
        if self.failing in keys:
            raise OSError(f"key {self.failing}")
        return [key**2 if key >= 0 else None for key in keys]


class Ones:
    """As many ones as keys."""

    max_batch = 1

    def get(self, key: Any) -> int:
        return 1

    def get_many(self, keys: Sequence[Any]) -> list[int]:
        return [1] * len(keys)


def local_partition(blocks: Sequence[Any], **options: Any) -> Any:
    """Return a partition at its location: a list of blocks in this process."""
    (part,) = split(blocks, partitions_per_location=1, **options)
    return part.submit(lambda here: here).result()


@settings(max_examples=60, deadline=None)
@given(
    blocks=st.lists(st.lists(st.integers(-2, 12), max_size=9), max_size=9),
    failing=st.sampled_from(["", "read", "keys", "source", "missing"]),
    at=st.integers(0, 9),
    leave=st.integers(0, 10),
    prefetch=st.sampled_from(["auto", False, 1, 3, 50]),
    max_batch=st.integers(1, 5),
    delay=st.sampled_from([0.0, 0.0005, 0.002]),
    nbytes=st.sampled_from([0, WINDOW_NBYTES // 3, 2 * WINDOW_NBYTES]),
)
def test_same_as_single_gets(
    blocks: list[list[int]],
    failing: str,
    at: int,
    leave: int,
    prefetch: Any,
    max_batch: int,
    delay: float,
    nbytes: int,
) -> None:
    source = Squares(max_batch, delay, failing=12 if failing == "source" else None)
    here = threading.get_ident()

    def read() -> Any:
        for number, block in enumerate(blocks):
            if failing == "read" and number == at:
                raise OSError(f"block {at}")
            yield np.array([number, *block])

    def keys(block: Any) -> Any:
        assert threading.get_ident() == here
        if failing == "keys" and block[0] == at:
            raise OSError(f"keys {at}")
        return block[1:]

    def plain(single: Squares) -> Any:
        for block in read():
            records = [single.get(int(key)) for key in keys(block)]
            if failing == "missing" and None in records:
                raise KeyError(-1)
            yield block, records

    def consumed(loop: Any) -> tuple[list[Any], str]:
        found = []
        try:
            for block, records in loop:
                found.append((block.tolist(), records))
                if len(found) == leave:
                    break
        except (OSError, KeyError) as error:
            return found, str(error) if isinstance(error, OSError) else "missing"
        return found, ""

    expected, error = consumed(plain(Squares(failing=source.failing)))
    error = "missing" if "-1" in error else error
    lookup = Lookup(source, keys, "raise" if failing == "missing" else None)
    ahead = LookupAhead(read(), lookup, [nbytes] * len(blocks), prefetch, "looked up", "split")
    window = window_of("looked up")
    most = MAX_DEPTH if prefetch == "auto" else int(prefetch)

    def watched() -> Any:
        for item in ahead:
            pending = len(ahead._begun)
            assert pending <= most
            assert window.nbytes == pending * nbytes <= max(WINDOW_NBYTES, nbytes)
            yield item

    assert consumed(watched()) == (expected, error)
    ahead.close()
    wait_for_abandoned("split")
    assert (window.nbytes, window.loops) == (0, 0)
    assert source.most <= MAX_REQUESTS + 1  # and the loop itself
    assert all(len(set(batch)) == len(batch) <= max_batch for batch in source.requests)
    begun = len(source.requests)
    needed = [math.ceil(len(set(block)) / max_batch) for block in blocks]
    if len(expected) == len(blocks):
        assert begun == sum(needed)
    assert begun <= sum(needed)
    time.sleep(0.003)
    assert len(source.requests) == begun


@pytest.mark.parametrize("materialize", [False, True])
def test_partition_yields_blocks_and_records(materialize: bool) -> None:
    blocks = [np.array([3, -1, 3]), np.array([2])]
    expected: list[Any] = [([3, -1, 3], [9, None, 9]), ([2], [4])]
    with split(blocks, partitions_per_location=1, materialize=materialize) as parts:
        found = parts[0].submit(
            lambda part: [(block.tolist(), got) for block, got in part.lookup(Squares(), _itself)]
        )
        assert found.result() == ([([3, -1, 3, 2], [9, None, 9, 4])] if materialize else expected)
        (measured,) = parts.metrics()
    assert measured.blocks == 2


def _itself(block: Any) -> Any:
    return block


def test_keys_of_arrays_are_objects_of_python() -> None:
    source = Squares()
    list(local_partition([np.array([1, 2])]).lookup(source, lambda block: block.astype(np.int16)))
    assert [type(key) for key in source.requests[0]] == [int, int]


def test_requests_run_ahead_of_the_loop() -> None:
    def most_ahead(prefetch: Any) -> int:
        source = Squares(100, delay=0.02)
        ahead = []
        for here, _ in enumerate(
            local_partition([np.arange(5)] * 24).lookup(source, _itself, prefetch), 1
        ):
            time.sleep(0.005)
            ahead.append(len(source.requests) - here)
        assert len(source.requests) == 24
        return max(ahead)

    assert most_ahead(False) == 0
    assert most_ahead("auto") > 1


def test_fast_sources_take_no_thread() -> None:
    ran = set()

    class Fast(Ones):
        def get_many(self, keys: Sequence[Any]) -> list[int]:
            ran.add(threading.get_ident())
            return super().get_many(keys)

    looked_up = local_partition([np.arange(5)] * 20).lookup(Fast(), _itself)
    assert len(list(looked_up)) == 20
    assert ran == {threading.get_ident()}


def test_blocks_are_read_ahead_too() -> None:
    reads: list[int] = []
    memory = [True]

    def read(number: int) -> Any:
        time.sleep(0.003)
        reads.append(number)
        return np.arange(number)

    fetches = Fetches(read, [8] * 12, 4, "both", lambda: memory[0])
    blocks = ReadAhead(fetches, "both")
    ahead = LookupAhead(blocks, Lookup(Squares(), _itself, None), [8] * 12, 2, "elsewhere")
    assert ahead._window is blocks._window
    assert [len(records) for _, records in ahead] == list(range(12))
    assert sorted(reads) == list(range(12))
    memory[0] = False
    ahead = LookupAhead(ReadAhead(fetches), Lookup(Squares(), _itself, None), [8] * 12, 2, "both")
    next(ahead)
    assert not ahead._begun


def test_no_reference_to_a_used_block_is_kept() -> None:
    made = (np.arange(3) + number for number in range(8))
    ahead = LookupAhead(made, Lookup(Squares(delay=0.003), _itself, None), [24] * 8, 2)
    for block, _ in ahead:
        used = weakref.ref(block)
        del block
        assert used() is None


@pytest.mark.thorough
def test_nothing_is_left_of_broken_loops() -> None:
    source = Squares(2, delay=0.002)
    for _ in range(300):
        blocks = (np.arange(6) for _ in range(20))
        ahead = LookupAhead(blocks, Lookup(source, _itself, None), [24] * 20, 4, "left", "left")
        next(ahead)
        del ahead
    wait_for_abandoned("left")
    time.sleep(0.05)
    gc.collect()
    assert not _abandoned
    # Not isinstance, which asks proxies of others for their class: these may be dead.
    assert not [one for one in gc.get_objects() if type(one) is LookupAhead]
    begun = len(source.requests)
    time.sleep(0.02)
    assert len(source.requests) == begun


def test_other_requests_of_a_block_end_if_one_fails() -> None:
    class FailsAtOnce(Squares):
        def get_many(self, keys: Sequence[Any]) -> Sequence[Any]:
            if 0 in keys:
                raise OSError("key 0")
            return super().get_many(keys)

    source = FailsAtOnce(1, delay=0.1)
    ahead = LookupAhead(iter([range(200)]), Lookup(source, _itself, None), [8], 1, "f", "failed")
    with pytest.raises(OSError, match="key 0"):
        next(ahead)
    wait_for_abandoned("failed")
    assert source.running == 0
    assert len(source.requests) <= MAX_REQUESTS


def test_missing_key_is_named() -> None:
    looked_up = local_partition([[1], [-5, 2, -6]]).lookup(Squares(), _itself, missing="raise")
    assert next(looked_up) == ([1], [1])
    with pytest.raises(KeyError, match="-5") as raised:
        next(looked_up)
    assert raised.value.__notes__ == ["2 of 3 keys of the block have no record"]


def _call(fn: Any, block: Any) -> Any:
    return fn(block)


async def _later(_: Any) -> Any:
    return [1]


class _LaterSource(Ones):
    async def get_many(self, keys: Any) -> Any:  # type: ignore[override]
        return [1]


def _like(**attributes: Any) -> Any:
    return type("Like", (Ones,), attributes)()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prefetch": -1}, "prefetch must be .*, got -1"),
        ({"prefetch": True}, "prefetch must be .*, got True"),
        ({"prefetch": "fast"}, "prefetch must be .*, got 'fast'"),
        ({"missing": "ignore"}, "missing must be None or \"raise\", got 'ignore'"),
        ({"missing": True}, "missing must be .*, got True"),
        ({"keys": "id"}, "keys must be a function .*, got 'id'"),
        ({"keys": _later}, "keys=_later is a coroutine function"),
        ({"source": "redis://:hidden@host"}, "an object with get_many.*got str"),
        ({"source": Ones}, "an object with get_many.*got type"),
        ({"source": _LaterSource()}, "get_many of .*_LaterSource is a coroutine function"),
        ({"source": _like(max_batch=0)}, "max_batch of .*Like must be an int >= 1, got 0"),
        ({"source": _like(max_batch="many")}, "max_batch of .* got 'many'"),
        ({"source": _like(max_batch=True)}, "max_batch of .* got True"),
    ],
)
def test_bad_arguments_are_refused_at_once(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"source": Ones(), "keys": _itself, **changed}
    part = local_partition([[1]])
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        part.lookup(**arguments)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (lambda _: [[1], [2]], r"keys that can be hashed, got \[1\]"),
        (lambda _: [1, {}], "keys that can be hashed, got {}"),
        (lambda _: np.ones((2, 2)), "one after the other along one axis, got numpy.ndarray"),
        (lambda _: "name", "got str"),
        (lambda _: 3, "got int"),
        (lambda _: None, "got NoneType"),
        (functools.partial(_call, _later), "got coroutine"),
    ],
)
def test_bad_keys_are_refused_at_their_block(keys: Any, message: str) -> None:
    def second_is_bad(block: list[int]) -> Any:
        return [] if block == [1] else keys(block)

    looked_up = local_partition([[1], [2], [3]]).lookup(Ones(), second_is_bad, prefetch=2)
    assert next(looked_up) == ([1], [])
    with pytest.raises(InvalidArgumentError, match=message):
        next(looked_up)
    assert list(looked_up) == []


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], r"for each of 2 keys, got 1 records in a list of int"),
        ([1, 2, 3], r"for each of 2 keys, got 3 records"),
        ({1: 1, 2: 2}, "got dict"),
        ("ab", "got str"),
        (None, "got NoneType"),
    ],
)
def test_sources_that_return_too_few_are_refused(returned: Any, message: str) -> None:
    source = _like(get_many=lambda self, keys: returned, max_batch=5)
    with pytest.raises(InvalidArgumentError, match=f"get_many of .*Like must return.*{message}"):
        list(local_partition([[1, 2]]).lookup(source, _itself))


def test_a_request_that_raises_stop_iteration_does_not_end_the_loop() -> None:
    def ends(block: Any) -> Any:
        raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(local_partition([[1]]).lookup(Ones(), ends))


@pytest.mark.parametrize("prefetch", ["auto", 3])
def test_splits_that_are_closed_during_a_lookup(prefetch: Any) -> None:
    source = Squares(1, delay=0.003)
    blocks: list[list[int]] = [[number] for number in range(20)]
    reached, closed = threading.Event(), threading.Event()

    def total(part: Any) -> int:
        found = 0
        for (number,), records in part.lookup(source, _itself, prefetch):
            found += sum(records)
            if number == 4:
                reached.set()
                assert closed.wait(30)
        return found

    parts = split(blocks, partitions_per_location=1)
    future = parts[0].submit(total)
    assert reached.wait(30)
    window = window_of(parts[0].location)
    assert window.loops == 1
    parts.close()
    closed.set()
    error = future.exception(30)
    assert isinstance(error, SplitClosedError) or future.result() == sum(n**2 for n in range(20))
    wait_for_abandoned(parts._plan.token)
    assert (window.nbytes, window.loops, source.running, len(_abandoned)) == (0, 0, 0, 0)


def test_blocks_without_keys_do_not_count_as_fast() -> None:
    source = Squares(4, delay=0.003)
    blocks: list[list[Hashable]] = [[], [1], [], [2], [3], [], [4], [5], [6]]
    found = [records for _, records in local_partition(blocks).lookup(source, _itself)]
    assert found == [[], [1], [], [4], [9], [], [16], [25], [36]]
    assert source.most > 1
