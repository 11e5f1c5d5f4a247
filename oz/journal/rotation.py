"""Beginning segments, sealing the finished ones, and letting go of the oldest."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from oz.journal import recovery
from oz.journal.recovery import Recovered
from oz.journal.retention import Retention
from oz.journal.stream import ActiveStream

_LOOK_SECONDS = 1.0  # between two looks at what has grown too old
_log = logging.getLogger("oz.journal")


class Segments:
    """The segments as their writer has them.

    Attributes:
        stream: the one that grows.
    """

    def __init__(
        self, directory: Path, state: Recovered, most_bytes: int, most_seconds: float, retention: Retention
    ) -> None:
        """Go on where recovery left off.

        Args:
            directory: the journal's.
            state: what recovery found.
            most_bytes: the size at which a segment ends.
            most_seconds: the age at which it ends.
            retention: how much to keep.

        Raises:
            OSError: the system did not take the beginning of a new segment.
        """
        self._directory = directory
        self._manifest = state.manifest
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._retention = retention
        self._looked = 0.0
        base = state.tail.segment.base if state.tail else state.end_offset
        self.stream = ActiveStream(directory, state.manifest.journal, base, state.tail)
        self.stream.sync()

    @property
    def is_finished(self) -> bool:
        """Whether the present segment is large or old enough."""
        started = self.stream.started
        if started is None:
            return False
        return self.stream.size >= self._most_bytes or time.monotonic() - started >= self._most_seconds

    def begin(self) -> None:
        """Begin a segment, and seal the one before, which must be durable.

        Raises:
            OSError: the system did not take the beginning of it; the one before goes on then.
        """
        before = self.stream
        self.stream = ActiveStream(self._directory, self._manifest.journal, before.end_offset)
        before.close()
        try:
            findings = recovery.seal_finished(self._directory, self._manifest)
            self._manifest.save(self._directory)
        except OSError as error:
            _log.warning("%s: a segment stays a stream for now: %s", self._directory, error)
        else:
            for finding in findings:
                _log.warning("%s: %s", self._directory, finding)
        self._looked = 0.0

    def let_go(self) -> None:
        """Remove what is not to be kept, if some time has passed since the last look or a segment began."""
        now = time.monotonic()
        if self._looked and now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        try:
            if self._retention.apply(self._directory, self._manifest, time.time_ns()):
                self._manifest.save(self._directory)
        except OSError as error:
            _log.warning("%s: the oldest segments stay for now: %s", self._directory, error)
