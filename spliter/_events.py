"""Log events through the standard ``logging`` module.

Each record has a readable message, and the attribute ``event`` plus further fields for programs.
The loggers are ``spliter`` and, for events of one backend, ``spliter.<backend>``. Nothing is
shown until the program configures logging.
"""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = logging.getLogger("spliter")
# Without a handler, logging would print warnings to standard error.
LOGGER.addHandler(logging.NullHandler())


def log_event(
    event: str,
    message: str,
    *,
    level: int = logging.INFO,
    engine: str | None = None,
    **fields: object,
) -> None:
    """Log an event.

    Parameters
    ----------
    event : str
        Name of the event, for programs.
    message : str
        Format string for people, filled from the fields: ``"%(blocks)d blocks"``.
    level : int, default logging.INFO
        Level of the record.
    engine : str, optional
        Name of the backend that logs; the core by default.
    **fields : object
        Attributes of the record. Names of :class:`logging.LogRecord` attributes are reserved.

    Raises
    ------
    KeyError
        If the name of a field is reserved.

    Examples
    --------
    >>> log_event("split", "%(blocks)d blocks", blocks=3)  # prints nothing by default
    """
    logger = LOGGER if engine is None else LOGGER.getChild(engine)
    if logger.isEnabledFor(level):
        # The format takes names from a single mapping argument, which must not be empty.
        arguments = (fields,) if fields else ()
        logger.log(level, message, *arguments, extra={"event": event, **fields}, stacklevel=2)
