"""What the program keeps of a partition to start tasks on it; it is not sent to the location."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spliter._checks import check_process, owner_of
from spliter._errors import UnknownItemIndexError
from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Location
from spliter._planning.reuse import NOT_MATERIALIZED, Materialization
from spliter.backend.executor import Executor


@dataclass(eq=False, slots=True)
class Dispatch:
    """Starts the tasks of one partition: at its location, or at any of its holders if it has some.

    `counter` counts the rows of all blocks of the Split.
    """

    executor: Executor
    location: Location
    counter: weakref.WeakMethod[Callable[[], BlockGrid]]
    holders: tuple[Location, ...] = ()
    location_number: int = field(default=0, init=False)
    materialization: Materialization = field(default=NOT_MATERIALIZED, init=False)
    passes: int = field(default=0, init=False)
    owner: int | None = field(init=False)
    """Id of the process that may use the executor; ``None`` for any."""

    def __post_init__(self) -> None:
        self.owner = owner_of(self.executor)

    def check_process(self) -> None:
        """Raise `ForkedError` in a process that must not use the executor."""
        check_process(self.owner, "Split")

    def begin_pass(self) -> bool:
        """Count a task; return whether it iterates over one concatenated block."""
        self.passes += 1
        return self.materialization.applies_to(self.passes)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        is_alone: bool = True,
    ) -> Any:
        """Start a task: at any holder, if the partition is the only one among its arguments."""
        if is_alone and self.holders:
            return self.executor.submit_among(fn, args, kwargs, self.holders)
        return self.executor.submit(fn, args, kwargs, location=self.location)

    def count_rows(self) -> BlockGrid:
        """Return the grid of the Split with its sizes, which takes a task per partition."""
        count = self.counter()
        if count is None:
            raise UnknownItemIndexError(
                "rows cannot be numbered, because the sizes of the blocks are unknown and the "
                "Split was deleted; keep it, or call its resolve_item_indexes() first"
            )
        return count()
