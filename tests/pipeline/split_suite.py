"""What pipelines over a Split promise on every engine; each engine's tests derive a class."""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import InvalidArgumentError, Partition, Split, split
from spliter.pipeline import Groups, Reduction, Rows, options, pipeline, splittable, unknown
from tests.pipeline import differing_blocks as differing
from tests.pipeline.checks import attempt, same

LENGTHS = [5, 0, 9, 1, 12, 3]
DRAW = np.random.default_rng(2)
TABLE = DRAW.normal(size=(sum(LENGTHS), 3))
WEIGHTS = DRAW.uniform(1, 2, sum(LENGTHS))
FRAME = pd.DataFrame({"k": np.arange(30) % 4, "x": WEIGHTS, "n": np.arange(30)})


def blocks(whole: Any) -> list[Any]:
    """Cut rows into blocks."""
    edges = np.cumsum([0, *LENGTHS])
    return [whole[start:stop] for start, stop in itertools.pairwise(edges)]


def standardized(x: Any) -> Any:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def in_several_passes(x: Any, w: Any) -> Any:
    heavy = x[w > 1.5]
    y = heavy * 2
    y -= heavy.min(axis=0)
    return {"heavy": y, "sums": [x.sum(), heavy.sum(axis=0)], "rows": x[:, 0] * w / w.sum()}


norms = splittable(
    lambda x: np.sqrt((x**2).sum(axis=1)), x=Rows(), returns=Rows(dtype="f8", shape=())
)
keep = splittable(lambda x: x[x[:, 0] > 0], x=Rows(), returns=unknown)
joined = splittable(
    lambda x: "".join(f"{each:.1f}," for each in x[:, 0]),
    x=Rows(),
    returns=Reduction(merge=lambda one, other: one + other),
)
by_key = splittable(
    lambda frame: frame.groupby("k")[["x", "n"]], frame=Rows(), returns=Groups("sum")
)


def annotated(x: Any) -> Any:
    return norms(x * 2), keep(x).sum(axis=0), keep(x), joined(x)


class Tasks:
    """Counts the tasks that run a pass: those that do not combine results."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = Partition.submit

        def counted(partition: Partition, fn: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += getattr(fn, "__name__", "") == "run_pass"
            return plain(partition, fn, *args, **kwargs)

        patch.setattr(Partition, "submit", counted)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    return Tasks(monkeypatch)


class SplitSuite(ABC):
    """Tests of an engine, which derives a class with two methods."""

    @abstractmethod
    def deliver(self, make: Callable[[int], Any], number: int) -> Any:
        """Return a collection of so many blocks, each made by a function of its number."""

    @abstractmethod
    def gathered(self, collection: Any) -> Any:
        """Return a collection with rows as one value."""

    def received(self) -> int:
        """Return how often workers have received data so far."""
        return 0

    def split(self, *wholes: Any) -> Split:
        """Split arrays or frames, cut into blocks of unequal lengths."""
        made = [self.deliver(blocks(each).__getitem__, len(LENGTHS)) for each in wholes]
        return split(*made, partitions_per_location=2)

    def check(self, body: Callable[..., Any], *wholes: Any, rtol: float = 1e-12) -> None:
        """Compare a pipeline over a Split with the plain program."""
        with self.split(*wholes) as parts:
            found = self.settled(pipeline(body)(parts), expected := body(*wholes))
        same(found, expected, rtol)

    def settled(self, found: Any, expected: Any) -> Any:
        """Return results, of which those with rows are gathered."""
        if isinstance(expected, tuple | list):
            pairs = zip(found, expected, strict=True)
            return type(expected)(self.settled(*pair) for pair in pairs)
        if isinstance(expected, dict):
            return {key: self.settled(found[key], each) for key, each in expected.items()}
        is_plain = isinstance(found, type(expected)) or not np.ndim(expected)
        return found if is_plain else self.gathered(found)

    @pytest.mark.parametrize("batch", ["auto", 4])
    def test_programs_give_what_they_give_for_all_rows(self, batch: Any) -> None:
        with options(batch=batch):
            self.check(standardized, TABLE)
            self.check(in_several_passes, TABLE, WEIGHTS)
            self.check(annotated, TABLE)
            self.check(lambda x: np.sqrt(np.abs(x)) * 2, TABLE, rtol=0)

    def test_frames_go_through_annotated_functions(self) -> None:
        def body(frame: Any) -> Any:
            return differing.scaled(frame), by_key(frame)

        self.check(body, FRAME)

    @pytest.mark.filterwarnings("ignore:the matrix subclass")
    @pytest.mark.parametrize(("kind", "name"), differing.CASES)
    @pytest.mark.parametrize("changed", [0, 2])
    def test_blocks_that_differ_are_right_or_refused_by_name(
        self, kind: str, name: str, changed: int
    ) -> None:
        def make(number: int) -> Any:
            return differing.make(kind, name, changed, number)

        def run() -> Any:
            collection = self.deliver(make, differing.NBLOCKS)
            with split(collection, partitions_per_location=1) as parts:
                found = pipeline(body)(parts)
                return self.gathered(found) if refusal else self.settled(found, expected)

        refusal = differing.KINDS[kind][name].refusal
        body = differing.identity if refusal and changed == 0 else differing.BODIES[kind]
        expected = None if refusal else body(differing.whole(kind, name, changed))
        found = attempt(run)
        if refusal:
            assert isinstance(found, InvalidArgumentError), found
            assert re.search(refusal, str(found)), found
        else:
            same(found, expected, 1e-12)

    def test_each_pass_is_one_task_per_partition(self, tasks: Tasks) -> None:
        bodies: list[tuple[Callable[..., Any], int]] = [
            (lambda x: np.exp(x) * 2 + 1, 1),
            (lambda x: (x.sum(), x.max(), x.min(axis=0), norms(x).max()), 1),
            (lambda x: (x * 2, x.sum(), keep(x)), 1),
            (lambda x: x - x.mean(axis=0), 2),
            (standardized, 2),
        ]
        with self.split(TABLE) as parts:
            for body, passes in bodies:
                tasks.count = 0
                kept = pipeline(body)(parts)
                assert tasks.count == passes * len(parts)
                del kept
        assert 1 < len(parts) < len(LENGTHS)

    def test_nothing_moves(self) -> None:
        with self.split(TABLE, WEIGHTS) as parts:
            before = self.received()
            kept = pipeline(lambda x, w: (np.exp(x) * w[:, None] + 1, x[w > 1.5]))(parts)
            assert self.received() == before
            same(self.gathered(kept[1]), TABLE[WEIGHTS > 1.5])

    def test_errors_of_tasks_name_the_call(self) -> None:
        def refuse(x: Any) -> Any:
            if (x > 2).any():
                raise ZeroDivisionError("large")
            return x

        refusing = splittable(refuse, x=Rows(), returns=Rows(like="x"))
        with (
            self.split(np.arange(30.0)) as parts,
            pytest.raises(ZeroDivisionError, match="large") as caught,
        ):
            pipeline(lambda x: refusing(x + 1).sum() + 1)(parts)
        assert "refuse" in "".join(caught.value.__notes__)
