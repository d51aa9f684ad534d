"""Code shared by several engines; imports none of them."""

from __future__ import annotations
