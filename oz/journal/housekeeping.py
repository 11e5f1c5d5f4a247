"""Sealing finished segments and letting go of the oldest, in a thread, so that no append waits for it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from oz.journal import recovery
from oz.journal.manifest import Manifest
from oz.journal.retention import Retention

_log = logging.getLogger("oz.journal")


class Housekeeper:
    """Works through what it is asked for, in a thread; nobody else changes manifest and sealed segments.

    It never touches the segment that grows, nor one that may come after it.
    """

    def __init__(self, directory: Path, manifest: Manifest, retention: Retention) -> None:
        """Begin; the thread starts when there is something to do.

        Args:
            directory: the journal's.
            manifest: as recovery left it.
            retention: how much to keep.
        """
        self._directory = directory
        self._manifest = manifest
        self._retention = retention
        self._changed = threading.Condition()
        self._asked: int | None = None
        self._is_busy = self._is_over = False
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said: str | None = None

    def ask(self, active: int) -> None:
        """Have everything before a segment looked after, soon.

        Args:
            active: the base of the segment that grows.
        """
        with self._changed:
            self._asked = active
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="oz-journal-seal", daemon=True)
                self._thread.start()

    def look_after(self, active: int) -> None:
        """Do it now; see `ask`."""
        with self._working:
            try:
                self._seal(active)
                self._let_go(active)
            except Exception as error:
                # The streams are whole, and are sealed later or when the journal is opened next.
                _log.error("%s: a segment stays a stream: %s", self._directory, error)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_over or self._asked is not None)
                if self._asked is None:
                    return
                active, self._asked, self._is_busy = self._asked, None, True
            self.look_after(active)

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

    def _let_go(self, active: int) -> None:
        try:
            self._retention.apply(self._directory, self._manifest, active)
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
        if self._thread is not None:
            self.finish()
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            self._thread.join()
