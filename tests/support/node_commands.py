"""What tests of commands that join a bus share."""

import contextlib
import threading

import oz
from support.waiting import DEADLINE, until

ANSWER = ("--wait", "60", "--timeout", "60")  # of `oz request`: as long as a slow machine may take


def on_bus(directory, *arguments):
    return (*arguments, "--directory", directory)


def answered(node, subject, payload=b"", **options):
    """Send a request as soon as there is a responder; return the payload of the reply."""

    def ask():
        with contextlib.suppress(oz.NoResponders):
            return [node.request(subject, payload, timeout=DEADLINE, **options).payload]

    return until(ask, DEADLINE)[0]


class Lines(threading.Thread):
    """The lines of a stream, read as they come."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self._stream = stream
        self.seen = []
        self.start()

    def run(self):
        with contextlib.suppress(ValueError):  # closed at the end of the test
            for line in self._stream:
                self.seen.append(line.decode().rstrip("\n"))
