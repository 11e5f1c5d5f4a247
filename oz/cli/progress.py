"""Progress bar of a long command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from oz.cli.output import console, is_quiet

Update = Callable[[int, str], None]
"""Function that updates the bar. Its arguments are the number of completed units, and the text before the bar."""


@contextmanager
def progress_bar(text: str, total: int | None) -> Iterator[Update | None]:
    """Show a bar on stderr in a `with` block, if stderr is a terminal and `--quiet` was not given.

    Args:
        text: the text before the bar.
        total: the total number of units. None shows a bar without a percentage.

    Yields:
        The function that updates the bar, or None if no bar is shown.
    """
    screen = console(stderr=True)
    if not screen.is_terminal or is_quiet(click.get_current_context()):
        yield None
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns += [BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()]
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)
