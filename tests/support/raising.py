"""Signal handlers that raise, wherever Python may run one: at each place of a call in turn.

Python looks for signals where a function begins, behind a call, and where a loop begins anew; pyzmq does when
a frame has gone or come, and when there was no room or no message. Nowhere else: in between, what several
instructions do is whole.
"""

import contextlib
import dis
import inspect
import sys
import threading
from dataclasses import replace
from pathlib import Path

import zmq

import oz
from oz.transport import backend

_OF_OZ = str(Path(oz.__file__).parent)
_OF_PYTHON = (contextlib.__file__, threading.__file__)
_OF_PYZMQ = ("pyzmq_send", "pyzmq_recv")
_CALLED_IN_C = ("__init__", "__enter__", "__exit__", "__bool__", "__len__", "<genexpr>")
_known = {}
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}


class Interrupted(BaseException):
    """What the handler raises."""


class AtPlace:
    """Raises at the n-th place of a `with` block where Python may run a signal handler in oz.

    Attributes:
        has_raised: whether there were so many.
    """

    def __init__(self, number, again=0, passed_over=()):
        """Begin.

        Args:
            number: of the place.
            again: after how many places more it raises once more.
            passed_over: names of functions in which, and in what they call, there are no places.
        """
        self._left = number
        self._passed_over = passed_over
        self._again = again
        self._last = {}
        self.has_raised = False

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)
        self._last.clear()

    def _enter(self, frame, event, _):
        code = frame.f_code
        if code.co_name not in _CALLED_IN_C:
            # Who calls a function of Python goes on without a look when that returns.
            self._last.pop(frame.f_back, None)
        is_of_pyzmq = code.co_filename == __file__ and code.co_name in _OF_PYZMQ
        is_inside = code.co_filename.startswith(_OF_OZ) or (
            code.co_filename in _OF_PYTHON and frame.f_back.f_code.co_filename.startswith(_OF_OZ)
        )
        if not (is_inside or is_of_pyzmq) or _is_in(frame, self._passed_over):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        is_resumed = code.co_flags & inspect.CO_GENERATOR and frame in self._last
        if not (is_of_pyzmq or is_resumed):
            self._arrive()
        return self._step

    def _step(self, frame, event, _):
        at, before = frame.f_lasti, self._last.get(frame, -1)
        self._last[frame] = at
        calls, regions = _know(frame.f_code)
        # It belongs to the call itself: where that is caught elsewhere than what follows, it is passed over.
        if event == "opcode" and (at < before or before in calls) and regions.get(at) == regions.get(before):
            self._arrive()
        return self._step

    def _arrive(self):
        self._left -= 1
        if self._left == 0:
            self._left, self._again, self.has_raised = self._again or -1, 0, True
            raise Interrupted


def _is_in(frame, names):
    while frame is not None and names:
        if frame.f_code.co_name in names:
            return True
        frame = frame.f_back
    return False


def _know(code):
    """Give where a function calls others, and by what an exception is caught at each of its instructions."""
    known = _known.get(code)
    if known is None:
        calls = {one.offset for one in dis.get_instructions(code) if one.opname in _CALLS}
        regions = {
            at: (one.target, one.depth)
            for one in dis._parse_exception_table(code)
            for at in range(one.start, one.end, 2)
        }
        known = _known[code] = calls, regions
    return known


class Room:
    """The room of a publisher's subscribers for batches, as the test says: so many frames find none."""

    def __init__(self):
        self.refused = 0


def pyzmq_in_python(monkeypatch):
    """Have new sockets call pyzmq by functions that handlers can raise in; give the room that there is."""
    send, recv, room = backend.PYZMQ.send, backend.PYZMQ.recv, Room()

    def pyzmq_send(socket, frame, *more, **named):
        if room.refused > 0 and bytes(frame).startswith(b"\0"):
            room.refused -= 1
            len(())
            raise zmq.Again
        result = send(socket, frame, *more, **named)
        return result

    def pyzmq_recv(*given):
        result = recv(*given)
        return result

    functions = {"send": pyzmq_send, "send_whole": None, "recv": pyzmq_recv}
    monkeypatch.setattr(backend, "PYZMQ", replace(backend.PYZMQ, **functions))
    return room
