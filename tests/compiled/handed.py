"""A publisher as the compiled part sees it, with its sink, in two that are alike."""

import zmq
from hypothesis import strategies as st

from oz.compiled import HOT
from oz.transport.guard import Guard
from oz.transport.publisher.sink import PlainFrames

raised = st.sampled_from([zmq.Again(), zmq.ZMQError(zmq.ETERM), KeyboardInterrupt(), ValueError("x")])


class Sink:
    """Is lossless, or not; has room, or not."""

    __slots__ = ("_is_lossless", "log")

    def __init__(self, log):
        self._is_lossless, self.log = True, log

    def try_add(self, size):
        self.log.append(("counted", size))
        return True

    def make_lossy(self):
        if self._is_lossless:
            self.log.append("lossy")
            self._is_lossless = False


class Publisher:
    """What hands over, and what it needs; `errors` come out of the sends in turn."""

    def __init__(self, *, compiled):
        self.log, self.errors, self.guard = [], [], Guard()
        self.sink = Sink(self.log)
        backend = type("Backend", (), {"send": self._send, "send_whole": None})
        plain = PlainFrames(self.guard, self.sink, self.sink, backend)
        self.hand_over = plain.shortest() if compiled else plain.hand_over
        assert (type(self.hand_over) is HOT.HandOver) is compiled

    def _send(self, socket, frame, flags):
        self.log.append((socket, frame, flags, self.guard.is_mine, self.guard.is_wanted))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def call(self, *given):
        try:
            return self.hand_over("socket", *given)
        except BaseException as error:
            return repr(error)


def both():
    return Publisher(compiled=True), Publisher(compiled=False)
