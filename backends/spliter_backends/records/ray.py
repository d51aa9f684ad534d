"""Records in Ray's object store, by their references: one ``ray.get`` for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray import ObjectRef

from spliter import InvalidArgumentError
from spliter_backends.ray.cluster import fetch_objects


@dataclass(frozen=True)
class RaySource:
    """Objects of the Ray cluster that the task runs in. Keys are references.

    References in a block keep their objects alive as long as the block.

    Parameters
    ----------
    max_batch : int, default 100
        Objects in a request, all of which are in the memory of the node at once.
    timeout : float, optional
        Maximum wait for a batch, in seconds; by default that for blocks.

    Examples
    --------
    >>> RaySource(max_batch=20)
    RaySource(max_batch=20, timeout=None)
    """

    max_batch: int = 100
    timeout: float | None = None

    def get(self, key: ObjectRef) -> Any:
        """Return the object of a reference; see :meth:`get_many`."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[ObjectRef]) -> list[Any]:
        """Return the objects of references.

        Raises
        ------
        BlockLostError
            If one is lost and Ray cannot recreate it.
        BlockTimeoutError
            If they do not arrive in time.
        BaseException
            The error of a task that makes one.
        """
        for key in keys:
            if not isinstance(key, ObjectRef):
                raise InvalidArgumentError(f"keys of RaySource must be references, got {key!r}")
        return fetch_objects(keys, (), self.timeout)
