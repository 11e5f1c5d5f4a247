"""While the disk is full, the journal is tried less and less often: nothing tells of room."""

import time

from oz.errors import JournalFull
from oz.services.backlog import BacklogWriter, RecordBacklog, RecorderStats
from oz.services.columns import Loss


class Full:
    """A journal's writer without room, until it was tried so often."""

    def __init__(self, tries):
        self.tries = tries

    def append_columns(self, *_):
        self.tries -= 1
        if self.tries > 0:
            raise JournalFull("somewhere", 0, "no room")


class Waits:
    """Stands for the event by which waiting is given up; keeps for how long it was waited for."""

    def __init__(self):
        self.seconds = []

    def is_set(self):
        return False

    def wait(self, seconds):
        self.seconds.append(seconds)
        return False


def write(writing, writer, backlog, tries):
    """Write one item into a journal that has room after so many attempts; the pauses between them."""
    writer.tries = tries
    writing._giving_up = waits = Waits()
    backlog.put(Loss(1, time.time_ns()))
    items = backlog.take(1 << 20)
    while not writing._commit(items):
        pass
    backlog.done(len(items))
    return waits.seconds


def test_full_disk_is_tried_less_and_less_often_and_soon_again_when_there_was_room():
    backlog, writer = RecordBacklog(1 << 20), Full(0)
    writing = BacklogWriter(backlog, writer, RecorderStats(), ">", lambda: None)
    for _ in range(2):
        seconds = write(writing, writer, backlog, 70)
        assert seconds[0] <= 0.01
        assert seconds[-1] == 1.0
        assert seconds == sorted(seconds)
        assert sum(seconds) > 60
