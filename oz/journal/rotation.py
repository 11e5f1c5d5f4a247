"""Beginning segments, and having the finished and the oldest looked after."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from oz.journal import own, recovery
from oz.journal.manifest import Entry, Manifest
from oz.journal.mark import Growing
from oz.journal.recovery import Recovered
from oz.journal.retention import Retention
from oz.journal.stream import ActiveStream
from oz.logs import logger


class IntervalThread:
    """Calls something at an interval, in a thread of its own, until it is stopped."""

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        """Start it."""
        self._stopping = threading.Event()
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._call = call
        self._thread = threading.Thread(target=self._run, name="oz-journal-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._call()

    def stop(self) -> None:
        """End it, and wait for the end."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


_log = logger("oz.journal")


class Housekeeper:
    """Works through what it is asked for, in a thread; nobody else changes manifest and sealed segments.

    It never touches the segment that grows, nor one that may come after it.
    """

    def __init__(
        self, directory: Path, manifest: Manifest, retention: Retention, end_old: Callable[[], float | None]
    ) -> None:
        """Begin; the thread starts when there is something to do.

        Args:
            directory: the journal's.
            manifest: as recovery left it.
            retention: how much to keep.
            end_old: called in the thread when the segment that grows may be too old: ends it if it is, and
                gives the seconds after which to call again; None until `watch` says more.
        """
        self._directory = directory
        self._manifest = manifest
        self._retention = retention
        self._changed = threading.Condition()
        self._asked: tuple[int, int] | None = None
        self._is_busy = self._is_over = False
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said: str | None = None
        self._end_old = end_old
        self._due: float | None = None

    @property
    def watches(self) -> bool:
        """Whether `end_old` is going to be called."""
        return self._due is not None

    def watch(self, seconds: float) -> None:
        """Call `end_old` after so many seconds, should nothing be appended until then."""
        with self._changed:
            self._due = time.monotonic() + min(seconds, threading.TIMEOUT_MAX)
            self._wake()

    def ask(self, active: int, kept: int | None = None) -> None:
        """Look after everything before a segment, soon.

        Args:
            active: the base of the segment that grows.
            kept: the base of the first that is not removed, whatever its size and age; None for that one.
        """
        with self._changed:
            self._asked = active, active if kept is None else kept
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        # A thread that is started while the interpreter is finalizing does not run, and `start` waits for it.
        if self._thread is None and not sys.is_finalizing():
            thread = threading.Thread(target=self._run, name="oz-journal-seal", daemon=True)
            # From Python 3.12 on no thread starts while the program ends: `stop` does the work then.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def look_after(self, active: int, kept: int) -> None:
        """Do it now; see `ask`."""
        with self._working:
            try:
                self._seal(active)
                self._let_go(kept)
            except Exception as error:
                # The streams are whole, and are sealed later or when the journal is opened next.
                _log.error("%s: a segment stays a stream: %s", self._directory, error)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                while self._asked is None and not self._is_over and not self._is_due:
                    self._changed.wait(None if self._due is None else self._due - time.monotonic())
                if self._is_over and self._asked is None:
                    return
                asked, self._asked = self._asked, None
                self._is_busy = asked is not None
            if asked is not None:
                self.look_after(*asked)
            elif (again := self._end_old()) is None:
                self._due = None
            else:
                self.watch(again)

    @property
    def _is_due(self) -> bool:
        return self._due is not None and time.monotonic() >= self._due

    def _seal(self, active: int) -> None:
        try:
            was = dict(self._manifest.entries)
            findings = recovery.seal_finished(self._directory, self._manifest, active)
            if self._manifest.entries != was:
                self._manifest.save(self._directory)
        except OSError as error:
            # Once: on a full disk it is tried again at each attempt to append, some times a second.
            if self._said != str(error):
                _log.warning("%s: a segment stays a stream for now: %s", self._directory, error)
            self._said = str(error)
        else:
            self._said = None
            for finding in findings:
                _log.warning("%s: %s", self._directory, finding)

    def _let_go(self, kept: int) -> None:
        try:
            self._retention.apply(self._directory, self._manifest, kept)
        except OSError as error:
            _log.warning("%s: the oldest segments stay for now: %s", self._directory, error)

    def finish(self) -> None:
        """Wait until all that was asked for is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked is None and not self._is_busy)

    def abandon(self) -> None:
        """Do no more of what was asked for: the directory is not the one that it was."""
        with self._changed:
            self._asked = None
            self._changed.notify_all()

    def stop(self) -> None:
        """Finish, and end the thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is threading.current_thread():
            # It had the last reference to the writer. The next writer seals what is finished.
            return self.abandon()
        if self._thread is not None:
            self._thread.join()
        if self._asked is not None:
            self.look_after(*self._asked)
            self._asked = None


_LOOK_SECONDS = 1.0  # between two looks at what has grown too old


class Segments:
    """The segments as their writer has them.

    Attributes:
        stream: the one that grows.
    """

    def __init__(
        self,
        directory: Path,
        state: Recovered,
        most_bytes: int,
        most_seconds: float,
        retention: Retention,
        end_old: Callable[[], float | None],
    ) -> None:
        """Go on where recovery left off.

        Args:
            directory: the journal's.
            state: what recovery found.
            most_bytes: the size at which a segment ends.
            most_seconds: the age at which it ends.
            retention: how much to keep.
            end_old: see `Housekeeper`.

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
        tail = state.tail
        base = tail.segment.base if tail else state.end_offset
        self.stream = ActiveStream(directory, state.manifest.journal, base, tail)
        self.stream.sync()
        self._housekeeper = Housekeeper(directory, state.manifest, retention, end_old)

    def begin_epoch(self) -> None:
        """Begin an epoch where the journal ends, durably, unless this writer has begun its own.

        Raises:
            OSError: the system did not take it.
        """
        if not self._has_begun:
            history = self._history.begun(self.stream.end_offset, self._manifest.first)
            history.save(self._directory, self._journal)
            self._history, self._has_begun = history, True

    def end_epoch(self) -> None:
        """Have the next append begin an epoch."""
        self._has_begun = False

    @property
    def growing(self) -> Growing:
        """The rest of the note of what is acknowledged."""
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

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the present segment is old enough to end; None while it holds nothing."""
        started = self.stream.started
        return None if started is None else max(0.0, started + self._most_seconds - time.monotonic())

    def watch(self) -> None:
        """See that the present segment ends at its age, should nothing more be appended."""
        if not self._housekeeper.watches and (left := self.seconds_left) is not None:
            self._housekeeper.watch(left)

    def begin(self, *, is_appending: bool) -> None:
        """Begin a segment, and have the one before sealed, which must be durable.

        Args:
            is_appending: whether something is appended to it at once. Otherwise the one before stays the last
                that holds something, which retention does not remove.

        Raises:
            OSError: the system did not take the beginning of it; the one before goes on then.
        """
        before = self.stream
        self.stream = ActiveStream(self._directory, self._journal, before.end_offset)
        before.close()
        self._looked = time.monotonic()
        self._housekeeper.ask(self.stream.base, None if is_appending else before.base)

    def look(self) -> None:
        """Remove records that are too old, if some time has passed since the last look."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._housekeeper.ask(self.stream.base)

    def make_room(self) -> None:
        """Remove now what is not to be kept."""
        self._housekeeper.look_after(self.stream.base, self.stream.base)

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
