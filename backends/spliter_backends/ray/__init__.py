"""Ray: partitions at nodes, tasks with affinity to them.

``collection``  blocks with known sizes, as one collection
``locator``     finds the references of blocks, or says what to call first
``blocks``      the blocks of a Split at the client: where they are, aligned copies, what moved
``executor``    tasks with affinity to nodes
``future``      Ray's reference to a task's result, with ``result()``
``cluster``     queries to Ray: nodes, locations of objects, waits with a bound
``source``      the blocks of a partition, read at their node
``worker``      remote functions that run on the nodes
``errors``      translates Ray's errors and those of tasks into SplIter's
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.ray.collection import RayArray
from spliter_backends.ray.executor import executor_of_future
from spliter_backends.ray.locator import RayLocator

__all__ = ["BACKEND", "RayArray"]

BACKEND = Backend("ray", RayLocator(), executor_of_future)
"""What the registry loads under the name ``"ray"``."""
