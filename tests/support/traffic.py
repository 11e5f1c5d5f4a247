"""Numbers that are published without a pause, or nearly."""

import time

from support.waiting import Thread


class Traffic:
    """Publishes numbers from 0, as `encode` makes them, until it is stopped."""

    def __init__(self, publisher, subject, *, encode=int, pause=0.0):
        self.count = 0
        self._is_over = False
        self._thread = Thread(lambda: self._run(publisher, subject, encode, pause))

    def _run(self, publisher, subject, encode, pause):
        while not self._is_over:
            publisher.publish(subject, encode(self.count))
            self.count += 1
            if pause and not self.count % 10:
                time.sleep(pause)

    def stop(self):
        self._is_over = True
        self._thread.outcome()
