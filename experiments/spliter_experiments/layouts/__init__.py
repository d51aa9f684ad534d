"""Pack and unpack data that is not contiguous, next to MPICH, Open MPI, NumPy and numba."""

from __future__ import annotations
