"""What several engines need; independent of all of them."""

from __future__ import annotations
