"""Run a compiled stage: threads take batch after batch, and run all calls on each."""

from __future__ import annotations

import contextvars
import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from spliter._errors import AnnotationError, ForkedError
from spliter._events import LOGGER
from spliter.backend.contents import count_rows
from spliter.pipeline._calls.calls import Call
from spliter.pipeline._calls.split_types import Axis, Unknown
from spliter.pipeline._options import Options
from spliter.pipeline._running.compiled import Group, driver_of, groups_of
from spliter.pipeline._running.inner_loops import addresses_of
from spliter.pipeline._running.interrupts import is_interrupt
from spliter.pipeline._running.program import Program, Step, allocate
from spliter.pipeline._running.recorded_warnings import WarningRecorder
from spliter.pipeline._running.results import Pieces, check_length, check_nothing


class Failure(NamedTuple):
    """What a call raised on a batch, which has the items from `start` to before `stop`."""

    error: BaseException
    call: Call
    start: int
    stop: int


def run_batches(
    program: Program,
    options: Options,
    collectors: Sequence[Pieces],
    recorder: WarningRecorder,
) -> Failure | None:
    """Run all batches of a program; return the first failure, after which none begins.

    Parameters
    ----------
    program : Program
    options : Options
        Threads and items of a batch.
    collectors : sequence of Pieces
        One for each of the program's results.
    recorder : WarningRecorder
    """
    run = _Run(program, options, collectors, recorder)
    starts = range(0, program.length, run.batch)
    others = [
        # A context of its own holds the handling of floating-point errors, and the options.
        threading.Thread(target=contextvars.copy_context().run, args=(run.join_in,), daemon=True)
        for _ in range(min(program.threads(options), len(starts)) - 1)
    ]
    process = os.getpid()
    try:
        with run.beginning:
            for thread in others:
                thread.start()
            run.stopped = False
        run.work()
        _join(others)
    except BaseException:  # Ctrl-C
        run.stopped = True
        _join(others)
        raise
    if os.getpid() != process and not run.interrupts:
        call = program.steps[0].call
        raise ForkedError(
            f"this process was forked while {call.place} ran in threads, which it has "
            "not got; leave it by os._exit, or start processes by spawn"
        )
    return run.first_failure()


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        if thread.is_alive():
            thread.join()


@dataclass(eq=False)
class _Run:
    """What the threads share: the next batch, and the failures."""

    program: Program
    options: Options
    collectors: Sequence[Pieces]
    recorder: WarningRecorder
    failures: list[Failure] = field(default_factory=list)
    interrupts: list[BaseException] = field(default_factory=list)
    """What is no error of a batch, such as Ctrl-C."""

    beginning: Any = field(default_factory=threading.Lock)
    """Held while threads begin, which wait for all: after Ctrl-C meanwhile, none runs a batch."""

    stopped: bool = True

    def __post_init__(self) -> None:
        self.groups = groups_of(self.program, compiles=not self.options.pedantic)
        self.batch = self.program.batch(self.options, driver_of(self.groups))
        self.numbers = itertools.count()

    def first_failure(self) -> Failure | None:
        """Return the first failure, or raise an interrupt; forget them.

        Their tracebacks refer to this object and to frames, and would keep what these refer to.
        """
        failures, interrupts = self.failures, self.interrupts
        self.failures, self.interrupts = [], []
        try:
            if interrupts:
                raise interrupts[0]
            return min(failures, key=lambda failure: failure.start, default=None)
        finally:
            del failures, interrupts

    def join_in(self) -> None:
        """Work, once all threads have begun."""
        with self.beginning:
            pass
        self.work()

    def work(self) -> None:
        """Run batches until there are no more."""
        thread = Thread(self.program, self.batch)
        while not self.stopped:
            start = next(self.numbers) * self.batch
            if start >= self.program.length:
                return
            stop = min(start + self.batch, self.program.length)
            try:
                self._run(thread, start, stop)
            except BaseException as error:  # noqa: BLE001 -- raised by the thread that waits
                self.stopped = True
                if is_interrupt(error):
                    self.interrupts.append(error)
                else:
                    self.failures.append(Failure(error, thread.call, start, stop))

    def _run(self, thread: Thread, start: int, stop: int) -> None:
        for group in self.groups:
            thread.call = group.steps[0].call
            done = group.run(thread.addresses, start, stop - start)
            if done < len(group.steps):
                thread.load(start, stop)
                self._run_in_python(thread, group, done)
        if self.program.results:
            thread.load(start, stop)
        for (register, *_), collector in zip(self.program.results, self.collectors, strict=True):
            collector.put(start, stop, thread.values[register])

    def _run_in_python(self, thread: Thread, group: Group, done: int) -> None:
        start, stop = cast(tuple[int, int], thread.loaded)
        with self.recorder.errstate(group.errstate, lambda: thread.call):
            for step in group.steps[done:]:
                thread.call = step.call
                _run_step(step, thread.values, start)
                for register, kind in step.checked:
                    check_length(kind, thread.values[register], stop - start, step.call.place)
                for register in step.last_used:
                    thread.values[register] = None
                if self.options.pedantic:
                    _check_pieces(step, thread, start, stop)


def _check_pieces(step: Step, thread: Thread, start: int, stop: int) -> None:
    """Refuse pieces of a wrong length, and log the call."""
    LOGGER.info("%s (%s): items %d to %d", step.call.name, step.call.site, start, stop)
    for register, kind in zip(step.results, step.kinds, strict=True):
        if isinstance(kind, Axis):
            check_length(kind, thread.values[register], stop - start, step.call.place)
        elif isinstance(kind, Unknown) and not count_rows(thread.values[register]):
            raise AnnotationError(
                f"{step.call.name} returned an empty piece for items {start} to {stop}, which "
                "pedantic=True refuses; use larger batches, or leave pedantic out"
            )


class Thread:
    """Registers of one thread.

    Parameters
    ----------
    program : Program
    batch : int
        Items of a batch.
    """

    def __init__(self, program: Program, batch: int) -> None:
        self.program = program
        self.values: list[Any] = [None] * program.registers
        for register, value in program.constants.items():
            self.values[register] = value
        self.buffers = [(each, allocate(each, batch)) for each in program.scratch]
        self._places = addresses_of(self._arrays())
        self.addresses: int = self._places.ctypes.data
        self.loaded: tuple[int, int] | None = None
        self.call = program.steps[0].call
        """The call that runs."""

    def load(self, start: int, stop: int) -> None:
        """Cut the sources and the scratch memory for a batch, unless that has been done."""
        if self.loaded == (start, stop):
            return
        values = self.values
        for register, kind, data in self.program.cuts:
            values[register] = kind.split(data, start, stop)
        if self.loaded is None or self.loaded[1] - self.loaded[0] != stop - start:
            for scratch, buffer in self.buffers:
                values[scratch.register] = Axis(scratch.axis).split(buffer, 0, stop - start)
        self.loaded = start, stop

    def _arrays(self) -> list[Any]:
        """Return the array of each register that batches do not change."""
        arrays = [*self.values]
        for register, _, data in self.program.cuts:
            arrays[register] = data
        for scratch, buffer in self.buffers:
            arrays[scratch.register] = buffer
        return arrays


def _run_step(step: Step, values: list[Any], start: int) -> None:
    """Run a call of a batch.

    Parameters
    ----------
    step : Step
    values : list
        Registers.
    start : int
        Position of the first item of the batch.
    """
    args = [values[register] for register in step.args]
    kwargs = {name: values[register] for name, register in step.kwargs}
    if step.takes_start:
        kwargs["start"] = start
    if step.outs:
        outs = tuple([values[register] for register in step.outs])
        if step.preset is not None:
            np.copyto(outs[0], values[step.preset])
        step.fn(*args, **kwargs, out=outs)
        return
    if step.preset is not None:
        kwargs["out"] = values[step.preset].copy()
    result = step.fn(*args, **kwargs)
    if len(step.results) == 1:
        values[step.results[0]] = result
    elif step.results:
        for register, value in zip(step.results, result, strict=True):
            values[register] = value
    else:
        check_nothing(result, step.call)
