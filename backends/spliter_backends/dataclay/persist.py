"""Make blocks persistent at a backend; imported there by the tasks that do so."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from spliter.backend import count_rows
from spliter_backends._shared.readable import block_nbytes
from spliter_backends.dataclay.objects import Block


def keep_blocks(blocks: Sequence[Any]) -> list[tuple[uuid.UUID, int, int]]:
    """Make blocks persistent at this backend; return id, bytes and rows of each; runs as a task."""
    made = []
    for content in blocks:
        block = Block(content)
        made.append((block._dc_meta.id, block_nbytes(content), count_rows(content)))
    return made
