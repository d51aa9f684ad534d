"""Trial runs: find out which keys a function reads, with unknown values for absent records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

from spliter.ahead._records import Identity

WINDOW: Final = 64
"""Keys of trials that the throttle remembers."""

LEAST_USED: Final = 0.25
"""Share of them that must be read later: a batch of four keys takes little longer than one."""

MISSES: Final = 8
"""Records in a row that a program waited for one by one, before trials are made again."""

PATIENCE: Final = 10
"""Seconds of a trial over those of the requests that it could save."""

UNMEASURED_SECONDS: Final = 0.01
"""Of a request, before one was measured."""


class TrialEnded(BaseException):
    """A trial goes no further."""


class Trial:
    """One run of a function in which absent records are unknown."""

    def __init__(self, region: object, seconds: float, most_keys: int) -> None:
        self.region: object = region
        self.keys: dict[Identity, Any] = {}
        """Absent keys that were read, in order."""
        self.is_complete: bool = True
        """Whether nothing was unknown, so that the trial was the run itself."""
        self.unknown: Unknown = Unknown(self)
        self._seconds = seconds
        self._most_keys = most_keys
        self._reads = 0
        self._begun = time.perf_counter()

    def miss(self, key: Any, identity: Identity) -> Unknown:
        """Note an absent key; return an unknown record."""
        self.keys.setdefault(identity, key)
        return self.read_unknown()

    def read_unknown(self) -> Unknown:
        """Return an unknown record, of a key that may be unknown itself."""
        self.is_complete = False
        self._reads += 1
        if self._reads >= self._most_keys:
            self.end()
        self.check()
        return self.unknown

    def check(self) -> None:
        """End the trial if it takes longer than it could save."""
        could_save = self._seconds * max(len(self.keys), 1)
        if time.perf_counter() - self._begun > PATIENCE * could_save:
            self.end()

    def end(self) -> NoReturn:
        """End the trial."""
        self.is_complete = False
        raise TrialEnded

    def call(self, fn: Callable[..., Any], arguments: Iterable[Any]) -> Any:
        """Call a function of a `map`; what it raises because of unknown values is unknown."""
        try:
            return fn(*arguments)
        except Exception:
            if self.is_complete:
                raise
            return self.unknown


class Unknown:
    """In place of a record: false, empty, and the result of all that is done with it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def _absorb(self, *args: object, **kwargs: object) -> Unknown:
        self._trial.check()
        return self

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):  # protocols that it does not have, such as those of NumPy
            raise AttributeError(name)
        return self._absorb()

    def __bool__(self) -> bool:
        self._trial.check()
        return False

    def __len__(self) -> int:
        self._trial.check()
        return 0

    __int__ = __index__ = __len__

    def __float__(self) -> float:
        return float(len(self))

    def __iter__(self) -> Iterator[Any]:
        self._trial.check()
        return iter(())

    def __contains__(self, item: object) -> bool:
        return bool(self)

    def __str__(self) -> str:
        self._trial.check()
        return ""

    def __format__(self, spec: str) -> str:
        return str(self)

    def __hash__(self) -> int:
        return id(self._trial)

    def __enter__(self) -> Unknown:
        return self

    def __exit__(self, *error: object) -> None:
        return None


_OPERATORS: Final = (
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "call", "neg", "pos", "abs", "invert"),
    *("round", "setitem", "delitem"),
)
_BINARY: Final = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
for _name in (*_OPERATORS, *_BINARY, *(f"r{one}" for one in _BINARY)):
    setattr(Unknown, f"__{_name}__", Unknown._absorb)


class Throttle:
    """Stops trials whose keys are seldom read, and has them made again when they could help.

    Examples
    --------
    >>> throttle = Throttle()
    >>> throttle.note_fetched([False] * 64)
    >>> throttle.is_stopped
    True
    >>> for _ in range(8):
    ...     throttle.note_read(was_present=False)
    >>> throttle.is_stopped
    False
    """

    def __init__(self) -> None:
        self._used: deque[bool] = deque(maxlen=WINDOW)
        self._misses = 0
        self.is_stopped: bool = False

    def note_fetched(self, used: Iterable[bool]) -> None:
        """Take into account which of the keys that trials had fetched were read."""
        self._used.extend(used)
        if len(self._used) == WINDOW and sum(self._used) < LEAST_USED * WINDOW:
            self.is_stopped = True
            self._used.clear()
            self._misses = 0

    def note_read(self, was_present: bool) -> None:
        """Take into account a read of a run that follows no trial."""
        self._misses = 0 if was_present else self._misses + 1
        if self._misses >= MISSES:
            self.is_stopped = False
