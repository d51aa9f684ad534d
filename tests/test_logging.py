"""What is told through the standard logging: events with fields, and silence unless asked."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.backend import log_event
from tests.conftest import RunPython
from tests.fake_engine import fake_split


class Told:
    """The records of SplIter's loggers so far, from INFO on."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def records(self) -> list[Any]:
        return [record for record in self._caplog.records if record.name.startswith("spliter")]

    @property
    def last(self) -> Any:
        return self.records[-1]

    @property
    def events(self) -> list[str]:
        return [record.event for record in self.records]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.INFO, logger="spliter")
    return Told(caplog)


def test_split_tells_what_was_decided(told: Told) -> None:
    fake_split([[0]] * 4, [["A"], ["A"], ["A"], ["B"]])
    (record,) = told.records
    assert (record.name, record.levelno, record.event) == ("spliter", logging.INFO, "split")
    facts = (record.blocks, record.partitions, record.locations, record.nbytes, record.executor)
    assert facts == (4, 2, 2, 32, "FakeExecutor")
    assert (record.aligned_blocks, record.aligned_nbytes) == (1, 10)
    said = "split 4 blocks into 2 partitions (locations: 2, FakeExecutor)"
    assert record.getMessage() == said


def test_drift_is_told_with_what_it_changed(told: Told) -> None:
    parts, blocks, _ = fake_split([[0]] * 4, [["A"], ["A"], ["B"], ["C"]])
    list(parts)
    assert told.events == ["split"]
    blocks.holders = [["A"], ["A"], ["B"], ["B"]]
    blocks.counter.drifted = True
    list(parts)
    list(parts)
    record = told.last
    assert told.events == ["split", "replan"]
    assert (record.cause, record.changed, record.partitions) == ("drift", 1, 2)
    assert (record.fetched_blocks, record.fetched_nbytes) == (2, 20)
    parts.refresh()
    assert (told.last.cause, told.last.changed) == ("refresh", 0)


@pytest.mark.parametrize(
    ("materialize", "from_pass", "reason"),
    [
        (True, 1, "requested"),
        ("auto", 1, "about 3 rows per block"),
    ],
)
def test_materialization_is_told_with_the_reason(
    told: Told, materialize: Any, from_pass: int, reason: str
) -> None:
    split([np.zeros(3)] * 4, materialize=materialize, partitions_per_location=2)
    record = told.last
    assert record.event == "materialization"
    assert (record.from_pass, record.reason) == (from_pass, reason)
    assert record.getMessage() == f"partitions are materialized ({reason})"


def test_engines_have_loggers_of_their_own(told: Told) -> None:
    log_event("retry", "at %(location)s", engine="dask", location="A")
    assert (told.last.name, told.last.getMessage()) == ("spliter.dask", "at A")
    assert told.last.funcName == "test_engines_have_loggers_of_their_own"


SILENT = """
import logging
import numpy as np
from spliter import split
from spliter.backend import log_event

split([np.zeros(3)] * 4, materialize=True)
log_event("location lost", "lost", level=logging.WARNING)
"""


def test_silent_unless_logging_is_set_up(run_python: RunPython) -> None:
    done = run_python("-c", SILENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    loud = run_python("-c", "import logging; logging.basicConfig(level=20)" + SILENT)
    assert "INFO:spliter:split 4 blocks" in loud.stderr
    assert "WARNING:spliter:lost" in loud.stderr


def test_nothing_is_counted_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, blocks, _ = fake_split([[0]] * 2, [["A"], ["B"]])
    monkeypatch.setattr(blocks, "moved", lambda: pytest.fail("asked what has moved"))
    parts.refresh()
