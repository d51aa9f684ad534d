"""Importing and starting dataClay without its noise.

Importing dataClay gives the root logger a handler, and starting a client prints to standard
output; both would end up among the lines of a program that only wants to compute. dataClay also
looks for secrets in ``/run/secrets`` and warns where there are none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave logging and standard output as they were, whatever dataClay does to them inside.

    Examples
    --------
    >>> with quiet():
    ...     print("Starting event loop in new thread")
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # `basicConfig` does nothing where there is a handler.
    root.addHandler(logging.NullHandler())
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", 'directory "/run/secrets" does not exist', UserWarning)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
