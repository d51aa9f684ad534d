"""The ``spliter`` command: comparisons, the paper's evaluation, ``profile`` and ``doctor``."""

from __future__ import annotations
