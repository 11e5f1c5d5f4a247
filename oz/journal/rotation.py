"""Beginning segments, and having the finished and the oldest looked after."""

from __future__ import annotations

import time
from pathlib import Path

from oz.journal import own
from oz.journal.housekeeping import Housekeeper
from oz.journal.manifest import Entry
from oz.journal.mark import Growing
from oz.journal.recovery import Recovered
from oz.journal.retention import Retention
from oz.journal.stream import ActiveStream

_LOOK_SECONDS = 1.0  # between two looks at what has grown too old


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
        self._journal = state.manifest.journal
        self._manifest = state.manifest
        self._history = state.history
        self._has_begun = False
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._looked = 0.0
        base = state.tail.segment.base if state.tail else state.end_offset
        self.stream = ActiveStream(directory, state.manifest.journal, base, state.tail)
        self.stream.sync()
        self._housekeeper = Housekeeper(directory, state.manifest, retention)

    def begin_epoch(self) -> None:
        """Begin an epoch where the journal ends, durably, unless this writer has begun its own.

        Raises:
            OSError: the system did not take it.
        """
        if not self._has_begun:
            history = self._history.begun(self.stream.end_offset, self._manifest.first or 0)
            history.save(self._directory, self._journal)
            self._history, self._has_begun = history, True

    def end_epoch(self) -> None:
        """Have the next append begin an epoch."""
        self._has_begun = False

    @property
    def growing(self) -> Growing:
        """What the note of what is acknowledged says beside the end."""
        return Growing(self._journal, *self._history.present, self.stream.base, self.stream.size)

    def missing(self) -> list[Entry]:
        """List the sealed segments that somebody else has removed."""
        return own.missing(self._directory, self._manifest)

    @property
    def is_finished(self) -> bool:
        """Whether the present segment is large or old enough."""
        started = self.stream.started
        if started is None:
            return False
        return self.stream.size >= self._most_bytes or time.monotonic() - started >= self._most_seconds

    def begin(self) -> None:
        """Begin a segment, and have the one before sealed, which must be durable.

        Raises:
            OSError: the system did not take the beginning of it; the one before goes on then.
        """
        before = self.stream
        self.stream = ActiveStream(self._directory, self._journal, before.end_offset)
        before.close()
        self._looked = time.monotonic()
        self._housekeeper.ask(self.stream.base)

    def look(self) -> None:
        """Have what has grown too old removed, if some time has passed since the last look."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._housekeeper.ask(self.stream.base)

    def make_room(self) -> None:
        """Remove now what is not to be kept."""
        self._housekeeper.look_after(self.stream.base)

    def finish(self) -> None:
        """Wait until what is finished is sealed, and what is not to be kept is gone."""
        self._housekeeper.finish()

    def abandon(self) -> None:
        """Leave what is finished as it is: the directory is not the one that it was."""
        self._housekeeper.abandon()

    def close(self) -> None:
        """Seal what is finished, and close the stream."""
        self._housekeeper.stop()
        self.stream.close()
