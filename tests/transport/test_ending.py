"""The end of a context."""

from support.scripts import finished, started

SCRIPT = """
import threading
import zmq
from oz.transport.socket import end_context

for _ in range(30):
    context = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.bind("tcp://127.0.0.1:*")
    socket.close(0)
    ending = [threading.Thread(target=end_context, args=(context, 60.0)) for _ in range(4)]
    for one in ending:
        one.start()
    for one in ending:
        one.join()
    assert context.closed
"""


def test_several_may_end_one_context_as_whoever_closes_again_after_ctrl_c_does():
    with started("-c", SCRIPT) as process:
        finished(process)
