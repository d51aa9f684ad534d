"""Apps of ``spliter compare``, and the ways to run each."""

from __future__ import annotations
