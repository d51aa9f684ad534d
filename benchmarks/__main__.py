"""``python -m benchmarks NAME``: measure what the pages of the documentation claim."""

from __future__ import annotations

from benchmarks import kernels, pipelines, reading, rows, scale, schedules  # noqa: F401
from benchmarks.measure import main

if __name__ == "__main__":
    main()
