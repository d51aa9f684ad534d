"""Run a compiled stage: threads take batch after batch, and run all calls on each."""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any

from spliter._errors import ForkedError
from spliter.pipeline._calls.calls import Call
from spliter.pipeline._calls.split_types import Axis
from spliter.pipeline._options import Options
from spliter.pipeline._running.compiled import Group, driver_of, groups_of
from spliter.pipeline._running.inner_loops import addresses_of
from spliter.pipeline._running.program import Program, Step, allocate
from spliter.pipeline._running.recorded_warnings import WarningRecorder
from spliter.pipeline._running.results import Pieces, check_declared, check_length, check_results


class Batches:
    """All batches of a program, which threads take one after the other."""

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self.groups = groups_of(program)
        self.driver = driver_of(self.groups)
        self.batch = program.batch(options, self.driver)
        self.threads = min(program.threads(options), -(-program.length // self.batch))
        self._numbers = itertools.count()
        self._stopped = False
        self._failures: list[tuple[BaseException, Call, int, int]] = []

    def run(self, collectors: Sequence[Pieces], recorder: WarningRecorder) -> None:
        """Run all batches, whose results are collected; raise the first failure, and begin none."""
        work = functools.partial(self._work, collectors, recorder)
        # A context of its own holds the handling of floating-point errors, and the options.
        others = [
            threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
            for _ in range(self.threads - 1)
        ]
        process = os.getpid()
        try:
            for thread in others:
                thread.start()
            work()
        except BaseException:  # Ctrl-C
            self._stopped = True
            raise
        finally:
            for thread in others:
                if thread.is_alive():
                    thread.join()
        if os.getpid() != process:
            raise ForkedError(
                f"this process was forked while {self.program.steps[0].call.place} ran in threads, "
                "which it has not got; leave it by os._exit, or start processes by spawn"
            )
        if self._failures:
            self._raise()

    def _raise(self) -> None:
        """Raise the first failure, or what is no error of a call, such as Ctrl-C."""
        error, call, start, stop = min(
            self._failures, key=lambda each: (isinstance(each[0], Exception), each[2])
        )
        self._failures = []  # whose tracebacks refer to this object
        if isinstance(error, Exception):
            error.add_note(f"{call.place}, items {start} to {stop}")
        raise error

    def _work(self, collectors: Sequence[Pieces], recorder: WarningRecorder) -> None:
        """Run batches until there are no more."""
        thread = Thread(self.program, self.batch)
        while not self._stopped:
            start = next(self._numbers) * self.batch
            if start >= self.program.length:
                return
            stop = min(start + self.batch, self.program.length)
            try:
                for group in self.groups:
                    _run_group(group, thread, start, stop, recorder)
                if collectors:
                    thread.load(start, stop)
                for (register, *_), collector in zip(self.program.results, collectors, strict=True):
                    collector.put(start, stop, thread.values[register])
            except BaseException as error:  # noqa: BLE001 -- raised by the thread that waits
                self._stopped = True
                self._failures.append((error, thread.call, start, stop))


def _run_group(
    group: Group, thread: Thread, start: int, stop: int, recorder: WarningRecorder
) -> None:
    """Run some steps on a batch, those in Python that the compiled driver has not run."""
    thread.call = group.steps[0].call
    done = group.table.run(thread.addresses, start, stop - start) if group.table else 0
    if done == len(group.steps):
        return
    thread.load(start, stop)
    with recorder.errstate(thread.call, lambda: thread.call):
        for step in group.steps[done:]:
            thread.call = step.call
            _run_step(step, thread.values, start)
            for register, kind, meta in step.checked:
                check_declared(meta, thread.values[register], step.call.place)
                if isinstance(kind, Axis):
                    check_length(kind, thread.values[register], stop - start, step.call.place)
            for register in step.last_used:
                thread.values[register] = None


class Thread:
    """Registers of one thread."""

    def __init__(self, program: Program, batch: int) -> None:
        self.program = program
        self.values: list[Any] = [None] * program.registers
        for register, value in program.constants.items():
            self.values[register] = value
        self.buffers = [(each, allocate(each, batch)) for each in program.scratch]
        arrays = [*self.values]  # of each register what batches do not change
        for register, _, data in program.cuts:
            arrays[register] = data
        for scratch, buffer in self.buffers:
            arrays[scratch.register] = buffer
        self._places = addresses_of(arrays)
        self.addresses: int = self._places.ctypes.data
        self.loaded: tuple[int, int] | None = None
        self.call = program.steps[0].call  # that runs

    def load(self, start: int, stop: int) -> None:
        """Cut the sources and the scratch memory for a batch, unless that has been done."""
        if self.loaded == (start, stop):
            return
        values = self.values
        for register, kind, data in self.program.cuts:
            values[register] = kind.split(data, start, stop)
        if self.loaded is None or self.loaded[1] - self.loaded[0] != stop - start:
            for scratch, buffer in self.buffers:
                values[scratch.register] = buffer[: stop - start]
        self.loaded = start, stop


def _run_step(step: Step, values: list[Any], start: int) -> None:
    """Run a call of a batch."""
    args = [values[register] for register in step.args]
    kwargs = {name: values[register] for name, register in step.kwargs}
    if step.takes_start:
        kwargs["start"] = start
    if step.outs:
        step.fn(*args, **kwargs, out=tuple([values[register] for register in step.outs]))
        return
    result = step.fn(*args, **kwargs)
    check_results(result, step.call)
    for register, value in zip(step.results, result if len(step.results) > 1 else [result]):  # noqa: B905 -- of none, nothing is kept
        values[register] = value
