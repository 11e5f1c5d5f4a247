"""The page about the command line has each command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from oz.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Walk the commands below one, each with its names."""
    if not isinstance(command, click.Group):
        yield names
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, *names, name)


def test_the_table_has_each_command():
    rows = [row for row in PAGE.splitlines() if row.startswith("| `oz ")]
    named = {
        names: any(f"`oz {names[0]}" in row and names[-1] in row.split(" | ")[0] for row in rows)
        for names in commands(main)
    }
    assert len(named) > 20
    assert not [names for names, is_there in named.items() if not is_there]
