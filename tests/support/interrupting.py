"""Injection of exceptions at each place of a call where a signal handler may raise."""

import sys
from itertools import count
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])


class Interruption(BaseException):
    """Exception that stands for one of a signal handler, such as KeyboardInterrupt."""


class _Interrupting:
    """Exception at one place of a call, outside the tests: the entry of a Python or the end of a C function."""

    def __init__(self, place):
        self._left, self.has_raised = place, False
        # `sys.setprofile` keeps no reference while the function runs.
        self._function = self._profile

    def _profile(self, frame, event, argument):
        if event not in ("call", "c_return") or frame.f_code.co_filename.startswith(_TESTS):
            return
        self._left -= 1
        if self._left == -1:
            self.has_raised = True
            # Python ends the profile, because the function raises.
            raise Interruption

    def run(self, call):
        # Python drops an exception of a destructor, and calls the hook.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            sys.setprofile(self._function)
            try:
                call()
            finally:
                sys.setprofile(None)
        except Interruption:
            pass
        finally:
            sys.unraisablehook = hook


def each_interruption(prepare, step=1):
    """Call a function again and again, each time interrupted at another place, until it ends by itself.

    Args:
        prepare: returns the next call.
        step: how far one place is from the next.

    Yields:
        The place, after each call.
    """
    for place in count(0, step):
        interrupting = _Interrupting(place)
        interrupting.run(prepare())
        if not interrupting.has_raised:
            return
        yield place
