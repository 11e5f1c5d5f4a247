"""Log records of the library while a command runs, said as the command says things: in one line each."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

from oz.cli.exits import say
from oz.cli.output import printable


class _Lines(logging.Handler):
    def __init__(self, ctx: click.Context, lead: str, level: int) -> None:
        super().__init__(level)
        self._ctx, self._lead = ctx, lead

    def emit(self, record: logging.LogRecord) -> None:
        say(self._ctx, f"{self._lead}{printable(record.getMessage())}")


@contextmanager
def log_in_lines(ctx: click.Context, lead: str = "", level: int = logging.WARNING) -> Iterator[None]:
    """Say what is of `level` or worse on stderr, behind `lead`, for as long as it lasts."""
    handler, logger = _Lines(ctx, lead, level), logging.getLogger("oz")
    before = logger.level
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
