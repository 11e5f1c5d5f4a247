"""What a job says while one waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from oz.cli.exits import say
from oz.cli.output import console


@contextmanager
def stages(ctx: click.Context) -> Iterator[Callable[[str], object]]:
    """Show on stderr what comes next: one line that changes on a terminal, else a line each."""
    if not sys.stderr.isatty():
        yield lambda stage: say(ctx, stage)
        return
    with console(stderr=True).status("starting Spark") as status:
        yield status.update
