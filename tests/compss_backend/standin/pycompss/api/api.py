"""Functions of the main program: wait, delete, ask."""

from __future__ import annotations

from typing import Any

from pycompss import cluster


def compss_wait_on(*objects: Any, mode: str = "rw") -> Any:
    """Return what futures stand for; without a runtime, what it is given."""
    found = list(objects)
    if cluster.RUNNING is not None:
        found = [cluster.RUNNING.wait_on(value, mode) for value in objects]
    return found[0] if len(found) == 1 else found


def compss_delete_object(*objects: Any) -> Any:
    """Forget objects."""
    for value in objects:
        if cluster.RUNNING is not None:
            cluster.RUNNING.delete(value)
    return True


def compss_barrier(no_more_tasks: bool = False) -> None:
    """Wait for all tasks."""
    if cluster.RUNNING is not None:
        cluster.RUNNING.barrier()


def compss_get_number_of_resources() -> int:
    """Return the number of nodes."""
    return 1 if cluster.RUNNING is None else len(cluster.RUNNING.nodes)
