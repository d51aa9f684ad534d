"""dataClay backend: partitions at dataClay backends, tasks as calls of active methods.

``collection``  a blocked collection of persistent objects
``creation``    puts blocks into dataClay, or has its backends make them
``objects``     the persistent classes
``locator``     finds the ids of a collection's persistent objects
``blocks``      client-side blocks of a Split: locations, sizes, partitions
``executor``    tasks as calls of active methods
``client/``     runs in the program: connection, calls of backends, handles, futures
``worker/``     runs in the processes of backends: tasks, blocks, copies, leases
``message``     pickles values sent between client and backends
``suppress_output``       suppresses dataClay's output when it is imported or started
``cluster/``    an embedded dataClay that ends with the program
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.dataclay.collection import DataClayArray
from spliter_backends.dataclay.creation import distribute, from_array, generate
from spliter_backends.dataclay.executor import executor_of_future
from spliter_backends.dataclay.locator import DataClayLocator

__all__ = ["BACKEND", "DataClayArray", "distribute", "from_array", "generate"]

BACKEND = Backend("dataclay", DataClayLocator(), executor_of_future)
"""Loaded by the registry under the name ``"dataclay"``."""
