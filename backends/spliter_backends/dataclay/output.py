"""Suppress dataClay's output when it is imported or started.

Importing dataClay adds a handler to the root logger, and starting a client prints to standard
output; both would disturb the output of the program. dataClay also searches for secrets in
``/run/secrets`` and warns if there are none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def suppress_output() -> Iterator[None]:
    """Restore logging, and suppress standard output, around calls of dataClay.

    Examples
    --------
    >>> with suppress_output():
    ...     print("Starting event loop in new thread")
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # `basicConfig` does nothing if there is a handler.
    root.addHandler(logging.NullHandler())
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", 'directory "/run/secrets" does not exist', UserWarning)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
