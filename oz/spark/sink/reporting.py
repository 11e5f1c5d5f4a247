"""How far publishing a batch has come, in a file: the process that publishes is not the one that asks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from oz.spark.sink.staging import Staged

_EVERY = 0.2


class Report:
    """Says in a file, when there is to be one, how far a batch is."""

    def __init__(self, path: str | None, batch: int, staged: Sequence[Staged]) -> None:
        """Begin.

        Args:
            path: the file; None for none.
            batch: the number of the batch.
            staged: what is to be published.
        """
        self._path = path
        self._facts: dict[str, object] = {
            "batch": batch,
            "rows": sum(one.rows for one in staged),
            "skipped": sum(one.skipped for one in staged),
            "example": next((one.example for one in staged if one.example), None),
        }
        self._due = 0.0

    def progress(self, published: int, *, is_done: bool = False) -> None:
        """Say how many rows are published, unless that was said a moment ago.

        Args:
            published: rows of the batch.
            is_done: whether that was all, and it went out.
        """
        if self._path is None or not (is_done or time.monotonic() >= self._due):
            return
        begun = f"{self._path}.{os.getpid()}"
        with open(begun, "w", encoding="utf-8") as file:
            json.dump({**self._facts, "published": published, "is_done": is_done}, file)
        os.replace(begun, self._path)
        self._due = time.monotonic() + _EVERY
