"""dataClay: the backend as the registry loads it.

Where what is:

``dataclay_collections``  collections in dataClay: made of arrays, blocks, or at the backends
``dataclay_objects``      the persistent classes
``dataclay_locator``      opens collections: ids of persistent objects
``_dataclay_blocks``      the opened blocks: placement, sizes, partitions
``_dataclay_anchor``      a partition's place, made again where its blocks have moved
``dataclay_executor``     tasks as calls of active methods, and their futures
``_dataclay_session``     the client's connection
``_dataclay_peer``        one backend: calls that cannot hang; what is kept there, freed
``_dataclay_station``     what runs at a backend: tasks, answers, what is kept
``_dataclay_leases``      what is kept for a client that was killed is freed
``_dataclay_home``        the blocks at a backend: found, read, put into one
``_dataclay_message``     how values cross
``_sent_errors``          how errors cross
``dataclay_cluster``      services for the time of a program
"""

from __future__ import annotations

from spliter import Backend
from spliter_backends.dataclay_executor import executor_of_future
from spliter_backends.dataclay_locator import DataClayLocator

BACKEND = Backend("dataclay", DataClayLocator(), executor_of_future)
"""What the registry loads under the name ``"dataclay"``."""
