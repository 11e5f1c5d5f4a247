"""Waiting for conditions with a deadline, because tests must not sleep to synchronise."""

import sys
import threading
import time

DEADLINE = 100.0
"""Seconds after which a wait fails. It is long, because a busy machine is slow."""


def until(condition, timeout=DEADLINE):
    """Wait until a condition holds; return its value.

    A long wait polls less often, because polling takes processor time from the code under test.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        assert waited < timeout, f"still not so after {timeout:g} s: {value!r}"
        time.sleep(min(max(waited / 8, 0.001), 0.02))
    return value


class Thread(threading.Thread):
    """Daemon thread that keeps its result or error for `outcome`."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self._work = work
        self._result = self._error = None
        self.start()

    def run(self):
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def wait_until_stuck(self):
        """Wait until the thread sleeps at one place in its code."""
        wait_until_stuck(self)

    def outcome(self, timeout=DEADLINE):
        self.join(timeout)
        assert not self.is_alive(), f"a thread is still busy after {timeout:g} s"
        if self._error is not None:
            raise self._error
        return self._result


def wait_until_stuck(thread):
    """Wait until a thread sleeps at one place in its code."""
    seen = [None] * 20

    def stays():
        # On a busy machine a runnable thread may stay at one place for long too.
        if _sleeps(thread):
            frame = sys._current_frames().get(thread.ident)
            seen[:] = [*seen[1:], frame and (frame.f_code, frame.f_lasti)]
        return seen[0] is not None and len(set(seen)) == 1

    until(stays)


def _sleeps(thread):
    """Return whether a thread waits, but not for a processor; True if the system does not show it."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return sys.platform != "linux"
