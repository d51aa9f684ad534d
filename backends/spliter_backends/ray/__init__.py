"""Ray backend: partitions at nodes, and tasks with affinity to those nodes.

``collection``  blocks with known sizes, as one collection
``locator``     finds the references of a collection's blocks
``blocks``      client-side blocks of a Split: locations, aligned copies, transfer counters
``executor``    submits tasks with affinity to nodes
``future``      Ray's reference to a task's result, with ``result()``
``cluster``     queries to Ray: nodes, locations of objects, waits with a timeout
``source``      the blocks of a partition, read at their node
``worker``      remote functions that run on the nodes
``errors``      translates errors of Ray and of tasks into SplIter's
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.ray.collection import RayArray
from spliter_backends.ray.executor import executor_of_future
from spliter_backends.ray.locator import RayLocator

__all__ = ["BACKEND", "RayArray"]

BACKEND = Backend("ray", RayLocator(), executor_of_future)
"""Loaded by the registry under the name ``"ray"``."""
