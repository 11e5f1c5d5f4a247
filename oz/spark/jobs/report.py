"""The job `report`: what passes over the bus, as figures, as JSON and as one page for people."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from oz.escaping import json_text
from oz.spark.columns import SEPARATOR
from oz.spark.jobs.reporting.figures import figures
from oz.spark.jobs.reporting.rows import Source, narrow_rows
from oz.spark.jobs.reporting.tasks import few_tasks
from oz.subjects.pattern import Pattern
from oz.system import refuse_planted


@dataclass(frozen=True)
class Report:
    """The traffic of the bus.

    Attributes:
        figures: all figures, as JSON has them; docs/spark-jobs.md says what they are.
    """

    figures: dict[str, Any]

    def json(self) -> str:
        """Return the figures as JSON."""
        return json_text(self.figures, indent=1)

    def html(self) -> str:
        """Return the page: one file, with nothing to load from anywhere.

        Raises:
            SparkMissing: Matplotlib, which draws the charts, is not installed.
        """
        from oz.spark.jobs.reporting.page import page  # Matplotlib takes a second, and JSON needs none of it

        return page(self.figures)

    def save(
        self, *, html: str | os.PathLike[str] | None = None, json: str | os.PathLike[str] | None = None
    ) -> None:
        """Write files, in UTF-8.

        Args:
            html: the page's.
            json: the figures'.

        Raises:
            OSError: a file cannot be written; or a stranger's link, in a directory for all, leads to it.
            SparkMissing: Matplotlib, which draws the page's charts, is not installed.
        """
        for path in (html, json):
            if path is not None:
                refuse_planted(path)
        if html is not None:
            Path(html).write_text(self.html(), encoding="utf-8", errors="replace")
        if json is not None:
            Path(json).write_text(self.json() + "\n", encoding="utf-8", errors="replace")


def report(
    spark: SparkSession,
    source: Source,
    *,
    pattern: Pattern | str | None = None,
    separator: str = SEPARATOR,
    levels: int = 3,
    most: int = 10,
    silent_after: float | None = None,
    on_progress: Callable[[str], object] = lambda stage: None,
) -> Report:
    """Report on recorded traffic.

    Spark reads the source once, keeps of it what is needed (in memory, or else on its executors' disks), and
    sums it up; what comes here is as much as the page shows.

    Args:
        spark: the session.
        source: a journal's directory, a Parquet lake, or a DataFrame with the columns of either.
        pattern: only what it matches; numbers that are missing are then not told.
        separator: what stands between tokens: `/` in mqtt.
        levels: how many levels of subjects to go down.
        most: how many subjects, publishers and branches to name of each kind.
        silent_after: after how many seconds a subject counts as silent; None: after a tenth of the time.
        on_progress: is called with what comes next, for those who wait.

    Raises:
        JournalError: there is no journal, or it cannot be read.
        OptionError: the pattern names no dialect and has a comma.
        PatternError: a dialect does not allow the pattern.
        ValueError: a number is not positive, or the separator is empty.
    """
    if levels < 1 or most < 1 or (silent_after is not None and silent_after < 0):
        raise ValueError(f"levels={levels}, most={most}, silent_after={silent_after}: all are above 0")
    if not separator:
        raise ValueError("the separator is empty")
    with few_tasks(spark):
        found = figures(
            narrow_rows(spark, source, pattern),
            separator=separator,
            levels=levels,
            most=most,
            silent_after=silent_after,
            is_whole=pattern is None,
            say=on_progress,
        )
    about = {
        "source": "a DataFrame" if isinstance(source, DataFrame) else os.fspath(source),
        "pattern": None
        if pattern is None
        else str(pattern.text if isinstance(pattern, Pattern) else pattern),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Report(about | found)
