"""`oz.PubSocket`: the check of subjects, and what stays as in pyzmq."""

import copy

import pytest
import zmq

import oz
from support.waiting import DEADLINE


@pytest.fixture
def pair(context, made):
    """Function that makes a PubSocket and a SUB that receives all of it."""

    def make(dialect):
        pub = made(context.socket(zmq.PUB, socket_class=oz.PubSocket, dialect=dialect))
        plain = made(context.socket(zmq.SUB))
        plain.rcvtimeo = int(DEADLINE * 1000)
        address = f"inproc://{id(pub)}"
        pub.bind(address)
        plain.subscribe("")
        plain.connect(address)
        return pub, plain

    return make


@pytest.mark.parametrize("subject", [b"a..b", b"", b"a b", b"\xff", b"a.*"])
def test_a_first_frame_that_is_no_subject_is_not_sent(pair, subject):
    pub, plain = pair("nats")
    sends = [
        lambda: pub.send(subject),
        lambda: pub.send(zmq.Frame(subject)),
        lambda: pub.send(bytearray(subject), zmq.SNDMORE),
        lambda: pub.send(memoryview(subject), copy=False),
        lambda: pub.send_multipart([subject, b"payload"]),
        lambda: pub.send_multipart((zmq.Frame(subject), b"payload"), copy=False),
        lambda: pub.send_serialized(subject, lambda frame: [frame]),
    ]
    for send in sends:
        with pytest.raises(oz.SubjectError):
            send()
    pub.send(b"a.b")
    assert plain.recv_multipart() == [b"a.b"]
    assert plain.poll(0) == 0


def test_frames_after_the_first_are_not_checked(pair):
    pub, plain = pair("nats")
    pub.send_string("a.b", zmq.SNDMORE)
    pub.send(b"..", zmq.SNDMORE)
    pub.send_json({"n": 1})
    assert plain.recv_multipart() == [b"a.b", b"..", b'{"n": 1}']
    pub.send_multipart([b"a.b", b"", b".."], copy=False, track=True).wait(DEADLINE)
    assert plain.recv_multipart() == [b"a.b", b"", b".."]
    with pytest.raises(oz.SubjectError):
        pub.send(b"..")


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, oz.PubSocket, oz.PubSocket.shadow])
def test_shadows_check_alike(pair, make):
    pub, plain = pair("nats")
    shadow = make(pub)
    assert shadow.dialect == "nats"
    pub.send(b"a.b", zmq.SNDMORE)
    shadow.send(b"..")
    assert plain.recv_multipart() == [b"a.b", b".."]
    with pytest.raises(oz.SubjectError):
        shadow.send(b"..")


def test_constructors_and_wrong_types(context):
    with oz.PubSocket() as pub:
        assert pub.context is zmq.Context.instance()
        assert pub.type == zmq.PUB
    for wrong in (zmq.SUB, zmq.XPUB):
        with pytest.raises(oz.ConfigurationError, match=r"must be zmq\.PUB"):
            context.socket(wrong, socket_class=oz.PubSocket)
    with pytest.raises(ValueError, match="nuts"):
        oz.PubSocket(context, dialect="nuts")
    with oz.PubSocket(context) as pub:
        pub.sndhwm = 7
        assert pub.get(zmq.SNDHWM) == pub.hwm == 7
        with pytest.raises(zmq.ZMQError):
            pub.recv(zmq.NOBLOCK)
    with pytest.raises(zmq.ZMQError):
        pub.send(b"a")
