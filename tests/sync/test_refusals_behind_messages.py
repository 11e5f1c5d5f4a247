"""A refusal is raised where one would wait: what has come before is received first."""

from itertools import islice
from uuid import uuid4

import pytest
import zmq

import oz
from support.inside import engine_of
from support.waiting import DEADLINE

WAYS = {
    "receive": lambda sub, count: [sub.receive(DEADLINE).payload for _ in range(count)],
    "receive for ever": lambda sub, count: [sub.receive().payload for _ in range(count)],
    "receive what is there": lambda sub, count: [sub.receive(0).payload for _ in range(count)],
    "iteration": lambda sub, count: [one.payload for one in islice(sub, count)],
    "receive_many": lambda sub, count: [one.payload for one in sub.receive_many(count, DEADLINE)],
    "recv_multipart": lambda sub, count: [sub.recv_multipart()[1] for _ in range(count)],
    "recv_multipart without a wait": lambda sub, count: [
        sub.recv_multipart(zmq.NOBLOCK)[1] for _ in range(count)
    ],
}


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
@pytest.mark.parametrize("way", WAYS)
def test_what_has_come_is_received_before_a_refusal(filtering, way):
    context = zmq.Context.instance()
    # Over inproc what was flushed is there.
    with (
        oz.Publisher(f"inproc://{uuid4()}", context=context) as pub,
        oz.Subscriber(pub.endpoint, filtering=filtering, context=context) as sub,
    ):
        sub.subscribe("a.*")
        pub.wait_for_subscribers(timeout=DEADLINE)
        if filtering == "publisher":
            sub.wait_ready(DEADLINE)
        for number in range(4):
            # Each in a batch of its own.
            pub.publish("a.b", b"%d" % number)
            pub.flush()
        first = sub.receive(DEADLINE).payload
        engine_of(sub).fail(oz.PermissionDenied("refused"))
        assert [first, *WAYS[way](sub, 3)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(oz.PermissionDenied, match="refused"):
            WAYS[way](sub, 1)
        pub.publish("a.b", b"4")
        assert sub.receive(DEADLINE).payload == b"4"
