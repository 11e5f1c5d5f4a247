"""Publishes the messages over a socket, and records what arrives."""

import threading
import time
from pathlib import Path

from flight_data import Event

import oz
from oz.services import Recorder

PATTERNS = ("flight.>", "weather.*")
MOST_SECONDS = 300.0


def record(events: list[Event], journal: Path) -> int:
    """Publish all messages, and record them in a journal.

    Returns:
        How many were recorded: all of them, or it ends the program.
    """
    with (
        oz.Publisher(bind="tcp://127.0.0.1:*", on_full="block", full_timeout=60) as publisher,
        Recorder(journal, PATTERNS, connect=publisher.endpoint, filtering="publisher") as recorder,
    ):
        recorder.wait_ready(30)
        recording = threading.Thread(target=recorder.run)
        recording.start()
        try:
            publisher.publish_many((subject, payload) for _, subject, payload in events)
            publisher.flush()
            _await(recorder, len(events), recording)
        finally:
            recorder.stop()
            recording.join()
    if recorder.stats.lost or recorder.stats.recorded != len(events):
        raise SystemExit(f"of {len(events)} messages {recorder.stats.lost} were lost on the way")
    return recorder.stats.recorded


def _await(recorder: Recorder, count: int, recording: threading.Thread) -> None:
    ends = time.monotonic() + MOST_SECONDS
    while recording.is_alive() and time.monotonic() < ends:
        if recorder.stats.recorded + recorder.stats.lost >= count:
            return
        time.sleep(0.05)
