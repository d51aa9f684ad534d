"""Run a compiled stage: threads take batch after batch, and run all calls on each."""

from __future__ import annotations

import contextvars
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from spliter._errors import ForkedError
from spliter.pipeline._calls.calls import Call
from spliter.pipeline._options import Options
from spliter.pipeline._running.compiled import Group, driver_of, groups_of
from spliter.pipeline._running.inner_loops import addresses_of
from spliter.pipeline._running.program import Program, Step, allocate
from spliter.pipeline._running.recorded_warnings import WarningRecorder
from spliter.pipeline._running.results import Pieces, check_count, check_length, check_nothing


class Failure(NamedTuple):
    """What a call raised on a batch, which has the items from `start` to before `stop`."""

    error: BaseException
    call: Call
    start: int
    stop: int


class Batches:
    """All batches of a program, which threads take one after the other."""

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self.groups = groups_of(program)
        self.driver = driver_of(self.groups)
        self.batch = program.batch(options, self.driver)
        self.threads = min(program.threads(options), -(-program.length // self.batch))
        self._numbers = itertools.count()
        self._failures: list[Failure] = []
        self._beginning = threading.Lock()
        """Held while threads begin, which wait for all: after Ctrl-C meanwhile, none runs."""
        self._stopped = True

    def run(self, collectors: Sequence[Pieces], recorder: WarningRecorder) -> None:
        """Run all batches; raise the first failure, after which none begins."""
        others = [
            # A context of its own holds the handling of floating-point errors, and the options.
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._join_in, collectors, recorder),
                daemon=True,
            )
            for _ in range(self.threads - 1)
        ]
        process = os.getpid()
        try:
            with self._beginning:
                for thread in others:
                    thread.start()
                self._stopped = False
            self._work(collectors, recorder)
            _join(others)
        except BaseException:  # Ctrl-C
            self._stopped = True
            _join(others)
            raise
        if os.getpid() != process:
            raise ForkedError(
                f"this process was forked while {self.program.steps[0].call.place} ran in threads, "
                "which it has not got; leave it by os._exit, or start processes by spawn"
            )
        if self._failures:
            self._raise()

    def _raise(self) -> None:
        """Raise the first failure, or what is no error of a call, such as Ctrl-C."""
        failures, self._failures = self._failures, []  # tracebacks would refer to this object
        error, call, start, stop = min(
            failures, key=lambda each: (isinstance(each.error, Exception), each.start)
        )
        if isinstance(error, Exception):
            error.add_note(f"{call.place}, items {start} to {stop}")
        try:
            raise error
        finally:
            del error, failures

    def _join_in(self, collectors: Sequence[Pieces], recorder: WarningRecorder) -> None:
        """Work, once all threads have begun."""
        with self._beginning:
            pass
        self._work(collectors, recorder)

    def _work(self, collectors: Sequence[Pieces], recorder: WarningRecorder) -> None:
        """Run batches until there are no more."""
        thread = Thread(self.program, self.batch)
        while not self._stopped:
            start = next(self._numbers) * self.batch
            if start >= self.program.length:
                return
            stop = min(start + self.batch, self.program.length)
            try:
                self._run(thread, start, stop, recorder)
                for (register, *_), collector in zip(self.program.results, collectors, strict=True):
                    collector.put(start, stop, thread.values[register])
            except BaseException as error:  # noqa: BLE001 -- raised by the thread that waits
                self._stopped = True
                self._failures.append(Failure(error, thread.call, start, stop))

    def _run(self, thread: Thread, start: int, stop: int, recorder: WarningRecorder) -> None:
        for group in self.groups:
            thread.call = group.steps[0].call
            done = group.run(thread.addresses, start, stop - start)
            if done < len(group.steps):
                thread.load(start, stop)
                _run_in_python(thread, group, done, recorder)
        if self.program.results:
            thread.load(start, stop)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        if thread.is_alive():
            thread.join()


def _run_in_python(thread: Thread, group: Group, done: int, recorder: WarningRecorder) -> None:
    start, stop = cast(tuple[int, int], thread.loaded)
    with recorder.errstate(group.errstate, lambda: thread.call):
        for step in group.steps[done:]:
            thread.call = step.call
            _run_step(step, thread.values, start)
            for register, kind in step.checked:
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
                values[scratch.register] = buffer[: stop - start]
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
    """Run a call of a batch."""
    args = [values[register] for register in step.args]
    kwargs = {name: values[register] for name, register in step.kwargs}
    if step.takes_start:
        kwargs["start"] = start
    if step.outs:
        step.fn(*args, **kwargs, out=tuple([values[register] for register in step.outs]))
        return
    result = step.fn(*args, **kwargs)
    if len(step.results) == 1:
        values[step.results[0]] = result
    elif step.results:
        check_count(result, step.call)
        for register, value in zip(step.results, result, strict=True):
            values[register] = value
    else:
        check_nothing(result, step.call)
