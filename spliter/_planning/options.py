"""The options of ``split`` that decide how blocks are cut into partitions."""

from __future__ import annotations

from dataclasses import dataclass

from spliter._checks import check_choice
from spliter._errors import InvalidArgumentError
from spliter._planning.planner import check_partitions_per_location
from spliter._planning.reuse import Materialize
from spliter._planning.schedule import AUTO, Schedule


@dataclass(frozen=True)
class SplitOptions:
    """Options of :func:`spliter.split` of these names.

    Raises
    ------
    InvalidArgumentError
        If one has none of its values, or does not go with another one.
    """

    partitions_per_location: int | None = None
    schedule: Schedule | None = None
    steal: bool = False
    materialize: Materialize = False

    def __post_init__(self) -> None:
        check_partitions_per_location(self.partitions_per_location)
        check_choice("materialize", self.materialize, True, False, "auto")
        check_choice("steal", self.steal, True, False)
        if self.schedule is not None and self.partitions_per_location is not None:
            raise InvalidArgumentError(
                "a schedule decides how many partitions a location gets; pass schedule or "
                "partitions_per_location, not both"
            )
        if self.steal and self.schedule is None:
            raise InvalidArgumentError(
                "steal=True needs small partitions to move; pass a schedule as well, such as "
                'schedule="FAC2"'
            )
        if self.steal and self.materialize is not False:
            raise InvalidArgumentError(
                "steal=True does not go with materialize, as a partition is materialized at one "
                "location; leave one of them out"
            )
        if self.is_auto and (self.steal or self.materialize is not False):
            raise InvalidArgumentError(
                "schedule AUTO measures the blocks that each core has taken, so it does not go "
                'with materialize or steal; pass another schedule, such as "FAC2"'
            )

    @property
    def is_auto(self) -> bool:
        """Whether blocks are cut anew by measured seconds."""
        return self.schedule is not None and self.schedule.kind == AUTO
