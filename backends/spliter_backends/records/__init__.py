"""Sources of records for :meth:`spliter.Partition.lookup`, one module for each kind.

``redis``     a Redis server: MGET
``sql``       a table of any database that SQLAlchemy knows: one SELECT with IN
``http``      a service: one GET for each key
``objects``   an object store or file system that fsspec knows: whole objects, or ranges of them
``dataclay``  persistent objects: one call for each backend that has some
``ray``       Ray's object store: one ``ray.get`` of references

A source pickles as its URL and options. Each process that uses it opens its own connections, shares
them among its threads, and closes them when it ends.
"""

from __future__ import annotations
