"""Drop-in sockets over `epgm://`, where libzmq has PGM."""

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.ports import lasting_udp_port
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("pgm"), reason="this libzmq has no PGM")


@pytest.fixture
def endpoint():
    return f"epgm://127.0.0.1;239.192.1.9:{lasting_udp_port()}"


def test_patterns_filter_multicast_messages(context, made, endpoint):
    sub = made(context.socket(zmq.SUB, socket_class=oz.SubSocket, dialect="nats"))
    pub = made(context.socket(zmq.PUB, socket_class=oz.PubSocket, dialect="nats"))
    for socket in (sub, pub):
        socket.rate = 10_000
    sub.subscribe("a.*.c")
    sub.subscribe("end.>")
    sub.connect(endpoint)
    pub.bind(endpoint)

    def joins():
        pub.send_multipart([b"end.join", b"x"])
        return sub.poll(50)

    until(joins)
    for number in range(20):
        pub.send_multipart([b"a.%d.d" % number, b"refused"])
        pub.send_multipart([b"a.%d.c" % number, b"%d" % number])
    pub.send(b"end.now")
    found, sub.rcvtimeo = [], int(DEADLINE * 1000)
    while (frames := sub.recv_multipart()) != [b"end.now"]:
        if frames[0] != b"end.join":
            found.append(frames)
    assert found == [[b"a.%d.c" % number, b"%d" % number] for number in range(20)]
