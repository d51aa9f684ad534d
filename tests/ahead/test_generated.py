"""Generated programs give the plain program's result, error and writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spliter import ahead
from tests.ahead.sources import Memory, Plain

pytest.importorskip("greenlet")

NKEYS = 12
RECORDS = {key: [(key * 7 + 3) % (NKEYS + 3), (key * 5 + 1) % NKEYS] for key in range(NKEYS)}
"""Each record names two keys; some of them have no record."""

ACTIONS = st.recursive(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, NKEYS + 1)),
        st.tuples(st.just("follow"), st.integers(0, 1)),
        st.tuples(st.just("get"), st.integers(0, NKEYS + 1)),
        st.tuples(st.just("stop"), st.integers(0, 3)),
        st.tuples(st.just("put"), st.integers(0, 3)),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("map"), st.integers(0, 4), st.lists(inner, max_size=4)),
        st.tuples(st.just("if"), st.lists(inner, max_size=3), st.lists(inner, max_size=3)),
        st.tuples(st.just("try"), st.lists(inner, max_size=4)),
    ),
    max_leaves=12,
)
PROGRAMS = st.lists(ACTIONS, max_size=5)


class Interpreter:
    """Runs a generated program with reads of a region, or plain ones."""

    def __init__(self, people: Any, with_puts: bool) -> None:
        self.people = people
        self.with_puts = with_puts

    def call(self, actions: list[Any], start: int, place: tuple[int, ...]) -> list[Any]:
        """Run the actions of one call; its own writes are to keys that no other call has."""
        seen: list[Any] = [start]
        for number, (kind, *rest) in enumerate(actions):
            do: Callable[..., Any] = getattr(self, f"_{kind}")
            seen.append(do(seen, *rest, place=(*place, number)))
        return seen

    def _read(self, seen: list[Any], key: int, place: Any) -> Any:
        return self.people[(key + seen[0]) % (NKEYS + 1)]

    def _follow(self, seen: list[Any], which: int, place: Any) -> Any:
        for last in reversed(seen):
            if isinstance(last, list) and len(last) == 2 and isinstance(last[which], int):
                return self.people[last[which]]
        return self.people.get(seen[0])

    def _get(self, seen: list[Any], key: int, place: Any) -> Any:
        return self.people.get(key, "none")

    def _stop(self, seen: list[Any], number: int, place: Any) -> Any:
        if (seen[0] + number) % 4 == 0:
            raise ValueError(place)
        return number

    def _put(self, seen: list[Any], number: int, place: Any) -> Any:
        if self.with_puts:
            self.people.put(("own", *place), [number, seen[0]])
            return self.people["own", *place]
        return number

    def _map(self, seen: list[Any], count: int, actions: list[Any], place: Any) -> Any:
        return self.people.map(
            lambda at: self.call(actions, seen[0] + at, (*place, at)), range(count)
        )

    def _if(self, seen: list[Any], yes: list[Any], no: list[Any], place: Any) -> Any:
        return self.call(yes if self.people.get(seen[0]) else no, seen[0] + 1, place)

    def _try(self, seen: list[Any], actions: list[Any], place: Any) -> Any:
        try:
            return self.call(actions, seen[0], place)
        except (KeyError, ValueError) as error:
            return repr(error)


def outcome(people: Any, program: list[Any], width: int, by: str, with_puts: bool) -> Any:
    """Return the result or the error of a program."""
    interpreter = Interpreter(people, with_puts)

    def one(start: int) -> Any:
        return interpreter.call(program, start, (start,))

    try:
        return people.map(one, range(width)) if by == "map" else people.run(one, width)
    except (KeyError, ValueError) as error:
        return repr(error)


@settings(max_examples=500, deadline=None)
@given(PROGRAMS, st.integers(0, 6), st.integers(1, 5))
def test_map_gives_what_the_plain_program_gives(
    program: list[Any], width: int, max_batch: int
) -> None:
    plain, source = Memory(copy.deepcopy(RECORDS)), Memory(copy.deepcopy(RECORDS), max_batch)
    expected = outcome(Plain(plain), program, width, "map", with_puts=True)
    with ahead(source) as people:
        assert outcome(people, program, width, "map", with_puts=True) == expected
    assert source.writes == plain.writes
    fetched = [key for request in source.requests for key in request]
    assert all(0 < len(request) <= max_batch for request in source.requests)
    assert len(fetched) == len(set(fetched))


@settings(max_examples=500, deadline=None)
@given(PROGRAMS, st.integers(0, 6), st.integers(1, 5))
def test_run_gives_what_the_plain_program_gives(
    program: list[Any], start: int, max_batch: int
) -> None:
    source = Memory(RECORDS, max_batch)
    expected = outcome(Plain(Memory(RECORDS)), program, start, "run", with_puts=False)
    with ahead(source) as people:
        assert outcome(people, program, start, "run", with_puts=False) == expected
