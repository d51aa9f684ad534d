"""The chaos suite: applications iterate while a seeded adversary does what clusters do.

``cases``          from a seed to a case: application, layout of the data, faults and their times
``programs``       the four applications, and what they must answer
``outcomes``       what a run may end in, and the record that is kept of it
``runner``         one run: place the data, let the adversary loose, judge the answer
``campaign``       many runs: records in a file, resumed where they ended; the tables
``dask_arena``     a Dask cluster of worker processes to be harmed, and restored between runs
``dataclay_arena`` the same for dataClay
"""

from __future__ import annotations
