"""Waiting with a deadline, for tests that must not sleep and hope."""

import sys
import threading
import time

from support.conditions import parts_of

DEADLINE = 40.0
"""Seconds. It only ends what hangs: a machine that has much else to do may take long."""


def until(condition, timeout=DEADLINE):
    """Look again and again until something is so; its last value.

    Who gives up says what each part of the condition is then. A long wait looks less often than a short one:
    to look is work, which what is waited for may need.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        assert waited < timeout, f"still not so after {timeout:g} s: {value!r}{parts_of(condition)}"
        time.sleep(min(max(waited / 8, 0.001), 0.02))
    return value


class Thread(threading.Thread):
    """A thread whose outcome is asked for, error or result; it never holds up the end of a test."""

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
        """Wait until it stays at one place in its code, and sleeps there."""
        wait_until_stuck(self)

    def outcome(self, timeout=DEADLINE):
        self.join(timeout)
        assert not self.is_alive(), f"a thread is still busy after {timeout:g} s"
        if self._error is not None:
            raise self._error
        return self._result


def wait_until_stuck(thread):
    """Wait until a thread stays at one place in its code, and sleeps there."""
    seen = [None] * 20

    def stays():
        # A busy machine leaves a thread that could go on at one place for long too.
        if _sleeps(thread):
            frame = sys._current_frames().get(thread.ident)
            seen[:] = [*seen[1:], frame and (frame.f_code, frame.f_lasti)]
        return seen[0] is not None and len(set(seen)) == 1

    until(stays)


def _sleeps(thread):
    """Tell whether it waits for something else than a processor; True where that cannot be seen."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return sys.platform != "linux"
