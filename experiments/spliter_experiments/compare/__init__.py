"""``spliter compare``: run one computation in several ways, on the user's data and cluster."""

from __future__ import annotations
