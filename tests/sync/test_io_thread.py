"""The thread of a node, and what has it come back from waiting."""

import select
import threading

import pytest

from oz.sync.io_thread import IOThread
from waiting import DEADLINE


class Interrupted:
    """A socket whose first `send` is cut short by what a signal handler raises."""

    def __init__(self, socket):
        self._socket = socket
        self._is_interrupted = False

    def send(self, data):
        if not self._is_interrupted:
            self._is_interrupted = True
            raise KeyboardInterrupt
        return self._socket.send(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def test_a_thread_hears_the_bell_again_after_ctrl_c_interrupted_a_ring():
    def wait(_is_soon):
        select.select([running.bell], [], [], DEADLINE)
        running.hear()

    running = IOThread("waiting", wait)
    running._ringer = Interrupted(running._ringer)
    running.start()
    with pytest.raises(KeyboardInterrupt):
        running.ring()
    done = threading.Event()
    asking = threading.Thread(target=lambda: running.call(done.set), daemon=True)
    asking.start()
    came = done.wait(DEADLINE / 2)
    assert running.stop(2 * DEADLINE)
    assert came
