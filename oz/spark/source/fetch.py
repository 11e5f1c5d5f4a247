"""The way an executor gets the records of a range: from the journal's files, which it must see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from oz.errors import JournalError
from oz.journal.epochs import history_of
from oz.journal.ranges import RangeGone, read_range
from oz.journal.reading import why_renumbered
from oz.journal.schema import COLUMNS
from oz.logs import logger
from oz.spark.source.planning import Range
from oz.spark.source.wanted import WantedRecords

_log = logger("oz.spark.source")


class Fetcher:
    """Fetches ranges of one journal. All that it needs travels to executors with it."""

    def __init__(self, directory: Path, journal: str, *, fails_on_loss: bool) -> None:
        """Prepare; nothing is opened yet.

        Args:
            directory: the journal, as executors see it.
            journal: its id.
            fails_on_loss: whether it is an error that retention was faster.
        """
        self._directory = directory
        self._journal = journal
        self._fails_on_loss = fails_on_loss

    def compare(self, epoch: str, end: int) -> None:
        """See that the journal is still the one that the query was planned with.

        Args:
            epoch: the epoch of the last record that is wanted.
            end: the offset after it.

        Raises:
            JournalError: other records have the offsets now.
        """
        history = history_of(self._directory, self._journal)
        if history.agreed(epoch, end) != end and self._directory.is_dir():
            raise JournalError(
                f"{self._directory}: {why_renumbered(history, epoch, end)}; run the query again"
            )

    def fetch(
        self, wanted: Range, records: WantedRecords, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.Table]:
        """Fetch the records of a range, as they are; batches without any wanted may be left out.

        Args:
            wanted: the range, acknowledged up to its end.
            records: which of them are wanted.
            columns: what to read of them; others are not even decompressed.

        Raises:
            JournalError: the journal is not here, something of it is damaged or missing, or retention was
                faster and that is an error.
        """
        first = wanted.first
        if not self._directory.is_dir():
            raise JournalError(
                f"{self._directory}: there is no such directory on this machine; executors must see the "
                "journal's directory as the driver does"
            )
        while first < wanted.end:
            try:
                yield from read_range(
                    self._directory, first, wanted.end, columns, records.wants_batch, self._journal
                )
                return
            except RangeGone as gone:
                if self._fails_on_loss:
                    raise JournalError(
                        f"{gone} after the query was planned; keep more with retain_bytes or retain_seconds, "
                        "or read on with failOnDataLoss=false"
                    ) from None
                _log.warning("%s; %d records are passed by", gone, gone.there - first)
                first = gone.there
