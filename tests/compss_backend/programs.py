"""Tasks of a program's own, importable at the nodes."""

from __future__ import annotations

from typing import Any

from pycompss.api.task import task

from spliter_backends.compss.api import CORE_ELEMENT_KEY


class _Wants:
    """What a decorator above ``@task`` tells it."""

    def __init__(self, software: str) -> None:
        self.software = software

    def get_impl_constraints(self) -> dict[str, Any]:
        return {"app_software": self.software}


@task(returns=1)  # type: ignore[untyped-decorator]
def block_as_it_is(block: Any) -> Any:
    return block


def at_node(software: str, block: Any) -> Any:
    """Make a block by a task of the program's own, at the node with that software."""
    return block_as_it_is(block, **{CORE_ELEMENT_KEY: _Wants(software)})
