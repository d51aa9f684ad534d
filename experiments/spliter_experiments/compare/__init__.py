"""``spliter compare``: the same computation in several ways, on your data and cluster."""

from __future__ import annotations
