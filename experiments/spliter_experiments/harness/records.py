"""Store records of finished runs in a folder, so that a measurement can be resumed or reported.

Each finished run is a file ``runs/ID.json``, written atomically: under a temporary name, flushed to
the disk, then renamed. A killed runner loses only its current run, and jobs on several nodes may
share the folder. ``plans`` holds the requested runs.

``results.parquet`` holds all records as one table; its columns are those of :class:`Record`.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, with_config

from spliter_experiments.harness.errors import IncompatibleResultsError, ResultsError
from spliter_experiments.harness.facts import Facts
from spliter_experiments.harness.files import write_whole
from spliter_experiments.harness.runner import Measurement

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
"""Version of the record format; records of other versions are rejected."""

COMPARE = "compare"
"""Value of `Record.figure` for ``spliter compare``; a folder may hold several comparisons."""

AGAIN = "run `spliter experiment resume`, or the same `spliter compare` again"
"""How to do the missing runs of a folder."""

RUNS, PLANS, TABLE = "runs", "plans", "results.parquet"
"""Names of the entries in a results folder."""


def _printable(text: str) -> str:
    if not text.isprintable():  # nor are lone surrogates, which no file can hold
        raise ValueError("no control characters, line breaks or lone surrogates")
    return text


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


MOST: Final = 2**53
"""Largest count of a record: above it, neighbouring numbers are equal as floats."""

Text: TypeAlias = Annotated[str, AfterValidator(_printable)]
Time: TypeAlias = Annotated[str, AfterValidator(_time)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=MOST)]
Positive: TypeAlias = Annotated[int, Field(ge=1, le=MOST)]
Amount: TypeAlias = Annotated[float, Field(ge=0, le=MOST)]


@with_config(extra="forbid", allow_inf_nan=False)
@dataclass(frozen=True)
class Record:
    """A finished run: a row of the results table; ``docs/experiments.md`` explains the columns."""

    run_id: Text
    figure: Text
    app: Text
    size: Text
    plan_digest: Text
    engine: Text
    configuration: Text
    way: Text
    nodes: Positive
    workers: Positive
    threads: Positive
    blocks: Count
    blocks_per_core: Amount
    rows: Count
    queries: Count
    repetition: int
    seed: int
    position: Count
    x: Amount
    started_at: Time
    seconds: Amount
    init_seconds: Amount
    split_seconds: Amount | None
    rechunk_seconds: Amount | None
    iterate_seconds: Amount
    tasks: Count | None
    bytes_moved: Count | None
    peak_memory_bytes: Count | None
    host: Text
    system: Text
    processor: Text
    host_cores: Positive
    host_memory: Count
    versions: Mapping[Text, Text]
    command: str


COLUMN_TYPES: Mapping[Any, str] = {
    str: "string",
    int: "int64",
    float: "float64",
    float | None: "float64",
    int | None: "Int64",
    Mapping[str, str]: "string",
}

COLUMNS = {name: COLUMN_TYPES[kind] for name, kind in get_type_hints(Record).items()}
"""Data type of each column of the table."""


def record_of(run: Measurement, here: Facts, command: str, **plan: Any) -> Record:
    apart = run.phases.get("split", 0.0) + run.phases.get("rechunk", 0.0)
    return Record(
        **plan,
        repetition=run.round,
        position=run.position,
        started_at=(datetime.now(UTC) - timedelta(seconds=run.seconds)).isoformat(),
        seconds=run.seconds,
        init_seconds=run.phases.get("init", 0.0),
        split_seconds=run.phases.get("split"),
        rechunk_seconds=run.phases.get("rechunk"),
        iterate_seconds=max(run.seconds - apart, 0.0),
        tasks=run.tasks,
        bytes_moved=run.nbytes,
        peak_memory_bytes=run.peak,
        host=platform.node(),
        system=here.system,
        processor=here.processor,
        host_cores=here.cores,
        host_memory=here.memory,
        versions=dict(here.versions),
        command=command,
    )


def digest_of(plan: Mapping[str, Any]) -> str:
    """Hash the parameters that determine what runs compute."""
    text = json.dumps(plan, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ResultsFolder:
    """Folder of records and plans; created at the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Create the folder, to fail before any time is spent on runs."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"cannot write results to {self.path}: {error}") from error

    def append(self, record: Record) -> None:
        self._write(RUNS, record.run_id, {"schema_version": SCHEMA_VERSION, **asdict(record)})

    def keep_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        self._write(PLANS, name, {"schema_version": SCHEMA_VERSION, **plan})

    def has_plan(self, name: str) -> bool:
        return (self.path / PLANS / f"{name}.json").exists()

    def done(self) -> set[str]:
        return {file.stem for file in (self.path / RUNS).glob("*.json")}

    def plans(self) -> list[dict[str, Any]]:
        files = sorted((self.path / PLANS).glob("*.json"))
        if not self.path.is_dir():
            raise ResultsError(f"there is no folder {self.path}; give that of `experiment run`")
        if not files:
            raise ResultsError(f"{self.path} holds no results of `spliter experiment run`")
        return [_read(file) for file in files]

    def records(self) -> list[Record]:
        files = sorted((self.path / RUNS).glob("*.json"))
        if not self.path.is_dir():
            raise ResultsError(f"there is no folder {self.path}; give that of `experiment run`")
        if not files:
            raise ResultsError(f"{self.path} holds no finished run; spliter experiment resume")
        found = [_record(_read(file), file) for file in files]
        check_together(found)
        return found

    def done_so_far(self, here: Facts) -> dict[str, Record]:
        """Return all records by run id, after checking that new runs are comparable with them."""
        self.check_fits(COMPARE, "", "", here)
        return {one.run_id: one for one in self.records()} if self.done() else {}

    def write_table(self, records: Sequence[Record]) -> Path:
        file = self.path / TABLE
        try:
            write_whole(file, frame_of(records).to_parquet(index=False))
        except OSError as error:
            raise ResultsError(f"cannot write {file}: {error}") from error
        return file

    def check_fits(self, figure: str, size: str, digest: str, here: Facts) -> None:
        """Check that new runs are comparable with those in the folder."""
        if not self.done():
            return
        there = self.records()
        for record in there:
            if (record.figure, record.size) == (figure, size) != (COMPARE, ""):
                if record.plan_digest != digest:
                    raise IncompatibleResultsError(
                        f"{self.path} holds runs of another scenario of figure {figure} "
                        f"({record.run_id}); they must not be mixed: take another --results folder"
                    )
                break
        last = there[-1]
        other = replace(last, run_id="a run here", versions=here.versions, processor=here.processor)
        check_together([last, other])

    def _write(self, kind: str, name: str, content: Mapping[str, Any]) -> None:
        file = self.path / kind / f"{name}.json"
        try:
            write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise ResultsError(
                f"cannot write {file}: {error.strerror or error}; nothing else is lost: mend that "
                f"and {AGAIN}"
            ) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = content.pop("schema_version")
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ResultsError(f"{file} cannot be read ({error!r}); remove it and {AGAIN}") from error
    if version != SCHEMA_VERSION:
        raise IncompatibleResultsError(
            f"{file} is of version {version} of the format of results; this is version "
            f"{SCHEMA_VERSION}: use the SplIter that wrote it, or another folder"
        )
    assert isinstance(content, dict)
    return content


_RECORD = TypeAdapter(Record)


def _record(content: Mapping[str, Any], file: Path) -> Record:
    try:
        return _RECORD.validate_python(content)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ResultsError(
            f"{file} is not a record of a run ({wrong['loc'][0]}: {wrong['msg']}); remove it and "
            f"{AGAIN}"
        ) from error


def check_together(records: Sequence[Record]) -> None:
    first: dict[tuple[str, ...], Record] = {}
    for record in records:
        if record.figure != COMPARE:
            asked = first.setdefault((record.figure, record.size), record)
            _refuse_other(asked, record, {"scenario": "plan_digest"})
        taken = first.setdefault((), record)
        _refuse_other(taken, record, {"versions": "versions", "processor": "processor"})


def _refuse_other(one: Record, other: Record, what: Mapping[str, str]) -> None:
    for name, field in what.items():
        here, there = getattr(one, field), getattr(other, field)
        if here != there:
            if isinstance(here, Mapping):
                here, there = _differences(here, there)
            raise IncompatibleResultsError(
                f"{one.run_id} and {other.run_id} are not of the same {name} ({here}; {there}) and "
                "must not be mixed: take another folder"
            )


def _differences(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, str]:
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return tuple(
        ", ".join(f"{name} {side.get(name, 'missing')}" for name in names) for side in (here, there)
    )  # type: ignore[return-value]


def frame_of(records: Sequence[Record]) -> pd.DataFrame:
    import pandas as pd

    rows = [{**asdict(record), "versions": json.dumps(record.versions)} for record in records]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
