"""Lag and rates of streaming queries, for those who watch them."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_HELP = {
    "lag": ("gauge", "records of the journal that the query has not read yet"),
    "lost": ("counter", "records that retention removed before the query came to them"),
    "rows": ("counter", "rows that the source gave since this process has watched the query"),
    "input_rows_per_second": ("gauge", "rows that came in, as Spark tells for the last micro-batch"),
    "processed_rows_per_second": (
        "gauge",
        "rows that were processed, as Spark tells for the last micro-batch",
    ),
    "batch_seconds": ("gauge", "the duration of the last micro-batch"),
}


class SourceFigures(NamedTuple):
    """The figures of one source of a query; docs/spark-source.md explains each.

    Attributes:
        lag: records of the journal that the query has not read yet; None if the source is none of oz.
        lost: records that retention removed before the query came to them; None if the source is none of oz.
        rows: rows that the source gave since the listener was added.
        input_rows_per_second: as Spark tells for the last micro-batch.
        processed_rows_per_second: as Spark tells for the last micro-batch.
        batch_seconds: the duration of the last micro-batch.
    """

    lag: int | None
    lost: int | None
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    batch_seconds: float


class QueryMetrics(StreamingQueryListener):  # type: ignore[misc]
    """Exports lag and rates of all streaming queries of a session, as text that Prometheus reads.

    `spark.streams.addListener(oz.spark.QueryMetrics("/var/lib/node_exporter/oz.prom"))`
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Prepare it; Spark calls it once it is added.

        Args:
            path: a file that is replaced at each progress; its directory must be there. None for no file.
        """
        self._path = None if path is None else os.fspath(path)
        self._figures: dict[tuple[str, int], SourceFigures] = {}
        self._lock = threading.Lock()

    @property
    def figures(self) -> Mapping[tuple[str, int], SourceFigures]:
        """The last figures, by the name of the query (its id if it has none) and the number of the source."""
        with self._lock:
            return dict(self._figures)

    def text(self) -> str:
        """Return the figures in the text format of Prometheus."""
        return "".join(f"{line}\n" for line in self._lines(self.figures))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no figures yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the figures of a micro-batch."""
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the last figures hold."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last figures stay, so that it is seen how far a query came."""

    def take(self, progress: Mapping[str, Any]) -> None:
        """Take the progress of a query, as Spark has it in JSON, and write the file.

        Raises:
            OSError: the file cannot be written.
        """
        query = str(progress.get("name") or progress["id"])
        with self._lock:
            for number, source in enumerate(progress["sources"]):
                before = self._figures.get((query, number))
                self._figures[query, number] = _figures(progress, source, before.rows if before else 0)
        if self._path is not None:
            begun = f"{self._path}.{secrets.token_hex(8)}"
            with open(begun, "x", encoding="utf-8") as file:
                file.write(self.text())
            os.replace(begun, self._path)

    def _lines(self, figures: Mapping[tuple[str, int], SourceFigures]) -> Iterator[str]:
        for name, (kind, said) in _HELP.items():
            full = f"oz_spark_{name}" + ("_total" if kind == "counter" else "")
            yield f"# HELP {full} {said}"
            yield f"# TYPE {full} {kind}"
            for (query, number), found in figures.items():
                value = getattr(found, name)
                if value is not None:
                    yield f'{full}{{query="{_escaped(query)}",source="{number}"}} {value}'


def _figures(progress: Mapping[str, Any], source: Mapping[str, Any], rows: int) -> SourceFigures:
    reached = _object(source.get("latestOffset"))
    is_ours = "lag" in reached
    return SourceFigures(
        lag=int(reached["lag"]) if is_ours else None,
        lost=int(reached["lost"]) if is_ours else None,
        rows=rows + int(source.get("numInputRows", 0)),
        input_rows_per_second=float(source.get("inputRowsPerSecond", 0.0)),
        processed_rows_per_second=float(source.get("processedRowsPerSecond", 0.0)),
        batch_seconds=progress.get("durationMs", {}).get("triggerExecution", 0) / 1000,
    )


def _object(offset: Any) -> Mapping[str, Any]:
    """Read an offset, which Spark gives as JSON, or as text that holds it."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
