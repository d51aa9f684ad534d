"""A stand-in for PyCOMPSs, for tests: the part of its interface that dislib and SplIter use.

Written from the public documentation, for machines without a COMPSs runtime. It has two modes:

*sequential*, the one that it starts in and the one that the real binding has when a program is
run by plain ``python``: a task is a call, ``compss_wait_on`` returns what it is given;

*cluster* (``pycompss.cluster.Cluster``), in which a call returns a future at once, tasks run in
processes that stand for nodes, every object is pickled on its way, and a scheduler prefers the
node that holds most of a task's input.
"""

from __future__ import annotations
