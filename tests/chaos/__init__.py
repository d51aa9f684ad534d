"""Chaos tests: applications run while faults drawn from a seed hit their cluster.

``cases``             from a seed to a case: application, layout of the data, faults and their times
``programs``          the four applications, and their right answers
``runner``            one run: place the data, inject the faults, judge the answers
``dask_cluster``      a Dask cluster of worker processes, repaired between runs
``dataclay_cluster``  the same for dataClay

``python -m tests.chaos --backend dask --runs 120 --seed 30000`` makes as many runs as you like.
"""

from __future__ import annotations
