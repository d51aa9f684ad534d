"""Run a cluster: many tasks of a graph as one task at a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask.typing import Key


@dataclass(frozen=True)
class ClusterTask:
    """The tasks of a cluster, ready to run.

    Parameters
    ----------
    nodes : tuple
        Dask's tasks, in the order in which they run.
    released : tuple of tuple of hashable
        For each task, the values that nothing uses after it.
    direct : tuple of hashable
        Keys of the arguments that are single values.
    outputs : tuple of tuple of hashable
        Keys of the values that leave together.
    singles : tuple of hashable
        Keys of values that leave one by one.
    """

    nodes: tuple[Any, ...]
    released: tuple[tuple[Key, ...], ...]
    direct: tuple[Key, ...]
    outputs: tuple[tuple[Key, ...], ...]
    singles: tuple[Key, ...]

    def __call__(self, *arguments: Any) -> Any:
        """Run the tasks.

        Parameters
        ----------
        *arguments
            The values of `direct`, then mappings from keys to values of other clusters.

        Returns
        -------
        dict or tuple
            A dict of keys and values for each of `outputs`, then the values of `singles`; one dict
            alone is not in a tuple.
        """
        single = len(self.direct)
        values: dict[Key, Any] = dict(zip(self.direct, arguments[:single], strict=True))
        for outputs in arguments[single:]:
            values.update(outputs)
        del arguments
        for node, released in zip(self.nodes, self.released, strict=True):
            try:
                values[node.key] = node({key: values[key] for key in node.dependencies})
            except Exception as error:
                error.add_note(f"raised by the Dask task {node.key!r}, which ran in a cluster")
                raise
            for key in released:
                del values[key]
        left = [{key: values[key] for key in keys} for keys in self.outputs]
        if len(left) == 1 and not self.singles:
            return left[0]
        return (*left, *(values[key] for key in self.singles))


def releases(
    uses: Sequence[Sequence[Key]], made: Sequence[Key], kept: Sequence[Key]
) -> tuple[tuple[Key, ...], ...]:
    """Return, for each task, the values that no later task uses.

    Parameters
    ----------
    uses : sequence of sequence of hashable
        Keys that each task uses.
    made : sequence of hashable
        Key of each task's own value.
    kept : sequence of hashable
        Keys that are used after the last task.

    Examples
    --------
    >>> releases([[], ["a"], ["b", "x"]], made="abc", kept=["c"])
    ((), ('a',), ('b', 'x'))
    """
    seen = set(kept)
    found = []
    for used, key in zip(reversed(uses), reversed(made), strict=True):
        last = [needed for needed in (*used, key) if needed not in seen]
        seen.update(last)
        found.append((*dict.fromkeys(last),))
    return (*reversed(found),)
