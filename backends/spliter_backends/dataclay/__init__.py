"""dataClay: partitions at backends, tasks as calls of active methods.

``collection``  a blocked collection of persistent objects
``creation``    puts blocks into dataClay, or has its backends make them
``objects``     the persistent classes
``locator``     finds the ids of a collection's persistent objects
``blocks``      the blocks of a Split at the client: where they are, sizes, partitions
``executor``    tasks as calls of active methods
``client/``     what runs in the program: connection, calls of backends, handles, futures
``worker/``     what runs in the processes of backends: tasks, blocks, copies, leases
``message``     pickles values that cross between client and backends
``quiet``       imports and starts dataClay without its output
``cluster/``    an embedded dataClay for the time of a program
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.dataclay.collection import DataClayArray
from spliter_backends.dataclay.creation import distribute, from_array, generate
from spliter_backends.dataclay.executor import executor_of_future
from spliter_backends.dataclay.locator import DataClayLocator

__all__ = ["BACKEND", "DataClayArray", "distribute", "from_array", "generate"]

BACKEND = Backend("dataclay", DataClayLocator(), executor_of_future)
"""What the registry loads under the name ``"dataclay"``."""
