"""A group of commands that are imported when they are run, not when they are listed.

Some commands need packages (Matplotlib, pandas, scikit-learn) that take seconds to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


class LazyCommands(TyperGroup):
    """A group of the commands in a table."""

    # Parameters are Any: Click's types, or those of Typer's own copy of Click in newer releases.
    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Location and help line of each command."""

    _only_listed = False

    def load(self, name: str) -> Callable[..., None] | typer.Typer:
        module, _, attribute = self.table[name][0].partition(":")
        found: Callable[..., None] | typer.Typer
        found = getattr(importlib.import_module(module), attribute)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(name for name in self.commands if name not in self.table), *self.table]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, or return a placeholder while the help is formatted."""
        if cmd_name in self.commands or cmd_name not in self.table:
            return super().get_command(ctx, cmd_name)
        summary = self.table[cmd_name][1]
        if self._only_listed:
            return _command(cmd_name, lambda: None, summary)
        found = self.load(cmd_name)
        if isinstance(found, typer.Typer):
            command: Any = get_command(found)
            command.name = cmd_name
        else:
            command = _command(cmd_name, found, summary)
        self.commands[cmd_name] = command
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help of this group without importing its commands."""
        self._only_listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_listed = False


def _command(name: str, function: Callable[..., None], summary: str) -> Any:
    alone = typer.Typer(add_completion=False)
    alone.command(name=name, short_help=summary)(function)
    return get_command(alone)
