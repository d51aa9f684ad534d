"""Ray: the backend as the registry loads it.

Where what is:

``ray_collections``  blocks with sizes that are known, as one collection
``ray_locator``      opens collections: references to blocks, or an error that says what to call
``ray_executor``     tasks with affinity to nodes
``_ray_future``      what stands for a task's result: Ray's reference, with ``result``
``_ray_blocks``      the opened blocks: placement, aligned copies, count of what moved
``_ray_cluster``     what is asked of Ray: nodes, where objects are, bounded waits
``_ray_source``      the blocks of a partition, at their node
``_ray_tasks``       what runs on the nodes
``_ray_errors``      how errors of tasks and of Ray reach the program
"""

from __future__ import annotations

from spliter import Backend
from spliter_backends.ray_executor import executor_of_future
from spliter_backends.ray_locator import RayLocator

BACKEND = Backend("ray", RayLocator(), executor_of_future)
"""What the registry loads under the name ``"ray"``."""
