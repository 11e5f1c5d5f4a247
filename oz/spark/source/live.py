"""A recorder for one query: it writes the journal that the query reads."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from typing import Any, Literal, cast

from oz.errors import JournalError
from oz.journal.lock import WriterLock
from oz.services.recorder import Recorder
from oz.spark.source.options import Options

_log = logging.getLogger("oz.spark.source")

_TAKEOVER = 20.0  # seconds that the process of a query which ended may take to end too
_LOOK = 0.05
_START = 60.0
_STOP = 30.0


class LiveRecorder:
    """Records what a query asks for, in a thread, for as long as the process of its planning lives."""

    def __init__(self, options: Options) -> None:
        """Prepare.

        Args:
            options: the query's, with endpoints.
        """
        self._options = options
        self._recorder: Recorder | None = None
        self._failure: BaseException | None = None
        self._is_settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oz-spark-recorder", daemon=True)

    def start(self) -> None:
        """Subscribe, and begin to record.

        Raises:
            JournalError: somebody else writes the journal, or it cannot be written.
            PatternError, ValueError, zmq.ZMQError: as `oz.services.recorder.Recorder`.
        """
        if self._options.is_private:
            _log.warning(
                "no option journal: what is received goes to %s, which is removed when the query ends; it "
                "cannot go on from its checkpoint after that",
                self._options.journal,
            )
        _await_lock(self._options)
        self._thread.start()
        if not self._is_settled.wait(_START):
            raise JournalError(f"{self._options.journal}: opening the journal takes more than {_START:g} s")
        self.check()

    def _run(self) -> None:
        # The socket belongs to the thread that makes it.
        try:
            with _recorder_of(self._options) as recorder:
                self._recorder = recorder
                self._is_settled.set()
                recorder.run()
        except BaseException as error:
            self._failure = error
        finally:
            self._is_settled.set()

    def check(self) -> None:
        """Raise what ended the recorder, if anything did."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End it; a private journal is removed."""
        if self._recorder is not None:
            self._recorder.stop()
            self._thread.join(_STOP)
        if self._options.is_private:
            shutil.rmtree(self._options.journal, ignore_errors=True)


def _recorder_of(options: Options) -> Recorder:
    writer: dict[str, Any] = {
        "retain_bytes": options.retain_bytes,
        "retain_seconds": options.retain_seconds,
    }
    return Recorder(
        options.journal,
        options.patterns() or ["zmq:"],
        connect=list(options.endpoints),
        filtering=cast(Literal["prefix", "publisher"], options.filtering),
        subscriber={"dedupe": True} if options.dedupe else None,
        **writer,
    )


def _await_lock(options: Options) -> None:
    """Wait until the process of an earlier run of the query is gone."""
    options.journal.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + _TAKEOVER
    while True:
        try:
            WriterLock(options.journal).release()
        except JournalError as error:
            if time.monotonic() >= ends:
                raise JournalError(
                    f"{error}: give the option endpoint to one query; others read its journal without it"
                ) from None
            time.sleep(_LOOK)
        else:
            return
