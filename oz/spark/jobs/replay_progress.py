"""How far a replay is, by what the process that publishes writes down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

OnProgress = Callable[[int, int | None], object]
"""Called with the messages published so far, and how many there are, or None while that is not known."""

_EVERY = 0.3


@dataclass
class Facts:
    """What is known of a batch that is published.

    Attributes:
        published: rows so far.
        rows: how many there are; None while they are staged.
        skipped: rows that cannot be published.
        example: what is wrong with the first of those.
    """

    published: int = 0
    rows: int | None = None
    skipped: int = 0
    example: str | None = None

    def read(self, path: str) -> None:
        """Take in what is written; nothing while there is nothing."""
        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            said = json.load(file)
            self.published, self.rows = said["published"], said["rows"]
            self.skipped, self.example = said["skipped"], said["example"]


@contextmanager
def watched(path: str, before: int, on_progress: OnProgress | None) -> Iterator[Facts]:
    """Tell how a batch goes on while it is published.

    Args:
        path: the report of the sink.
        before: messages published before this batch.
        on_progress: called now and then.
    """
    facts, ended = Facts(), threading.Event()

    def tell() -> None:
        facts.read(path)
        if on_progress is not None:
            on_progress(before + facts.published, None if facts.rows is None else before + facts.rows)

    def watch() -> None:
        while not ended.wait(_EVERY):
            tell()

    watcher = threading.Thread(target=watch, name="oz-replay-progress", daemon=True)
    watcher.start()
    try:
        yield facts
    finally:
        ended.set()
        watcher.join()
        tell()
