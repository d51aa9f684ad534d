"""Pack and unpack data that is not contiguous, next to MPICH, Open MPI and NumPy."""

from __future__ import annotations
