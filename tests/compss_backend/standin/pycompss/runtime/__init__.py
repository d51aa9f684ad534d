"""As in PyCOMPSs."""

from __future__ import annotations
