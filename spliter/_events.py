"""What SplIter does on its own account, told through the standard ``logging``.

A record has a sentence for people, and for programs the attribute ``event`` and fields beside it.
The loggers are ``spliter`` and, for what an engine's half does, ``spliter.<engine>``. Nothing is
shown until the program sets logging up: then, too, only from the level it asks for.
"""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = logging.getLogger("spliter")
# Without a handler of its own, warnings would go to standard error unasked.
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
        What programs know it by.
    message : str
        What people read: a format of the fields, ``"%(blocks)d blocks"``.
    level : int, default logging.INFO
        Level of the record.
    engine : str, optional
        Name of the backend whose doing it is; the core's by default.
    **fields : object
        Attributes of the record, of names that :class:`logging.LogRecord` does not have itself.

    Raises
    ------
    KeyError
        If a field has a name that is taken.

    Examples
    --------
    >>> log_event("split", "%(blocks)d blocks", blocks=3)  # shows nothing: nobody asked for it
    """
    logger = LOGGER if engine is None else LOGGER.getChild(engine)
    if logger.isEnabledFor(level):
        # A single mapping as argument is what the format takes its names from; not an empty one.
        arguments = (fields,) if fields else ()
        logger.log(level, message, *arguments, extra={"event": event, **fields}, stacklevel=2)
