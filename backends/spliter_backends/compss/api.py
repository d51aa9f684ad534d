"""Import the functions of PyCOMPSs that the backend uses, or advise how to install it.

PyCOMPSs comes with the COMPSs runtime, which package registries do not have.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from spliter_backends._shared.compss_requirements import pycompss_advice

try:
    from pycompss.api.api import (
        compss_barrier,
        compss_delete_object,
        compss_get_number_of_resources,
        compss_wait_on,
    )
    from pycompss.api.constraint import constraint
    from pycompss.api.parameter import COLLECTION_IN, IN_DELETE
    from pycompss.api.task import task
    from pycompss.runtime.management.classes import Future
    from pycompss.util.context import CONTEXT
except ImportError as missing:
    advice = pycompss_advice(os.environ.get("COMPSS_HOME", ""))
    raise ImportError(f"PyCOMPSs cannot be imported ({missing}); {advice}") from missing

__all__ = [
    "COLLECTION_IN",
    "CORE_ELEMENT_KEY",
    "IN_DELETE",
    "Future",
    "compss_barrier",
    "compss_delete_object",
    "compss_get_number_of_resources",
    "compss_wait_on",
    "constraint",
    "runtime_is_up",
    "storage_is_configured",
    "task",
]

CORE_ELEMENT_KEY: Final = "compss_core_element"
"""Keyword argument by which decorators above ``@task`` pass their settings."""


def runtime_is_up() -> bool:
    """Return whether this is the main program of a running application.

    False in a program started by plain ``python`` and inside a task; there a task is an ordinary
    call.
    """
    return bool(CONTEXT.in_master())


def storage_is_configured() -> bool:
    """Return whether the application has a storage interface.

    If so, persistent objects can be passed to tasks, and the scheduler queries their locations.
    """
    start: Any = sys.modules.get("pycompss.runtime.start.initialization")
    return start is not None and bool(start.LAUNCH_STATUS.get_persistent_storage())
