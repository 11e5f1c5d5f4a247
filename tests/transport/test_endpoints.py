import asyncio
import inspect
import os
import pickle
import tempfile
from unittest import mock

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport import endpoints
from support.cases import each
from support.waiting import DEADLINE


@each(
    "endpoint",
    [
        "tcp://127.0.0.1:5555", "tcp://127.8.9.1:5555", "tcp://[::1]:5555", "tcp://localhost:5555",
        "tcp://lo:5555", "tcp://LOCALHOST:5555", "tcp://[::ffff:127.0.0.1]:5555",
        "tcp://10.0.0.1:0;127.0.0.1:5555", "ipc:///tmp/x", "inproc://x"
    ],
)  # fmt: skip
def test_what_stays_on_this_host_is_local(endpoint):
    assert endpoints.is_local(endpoint)


@each(
    "endpoint",
    [
        "tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://[::]:5555", "tcp://10.0.0.1:5555",
        "tcp://127.0.0.1:0;10.0.0.1:5555", "tcp://127.0.0.1.example.org:5555",
        "tcp://localhost.example.org:5555", "tcp://eth0:5555", "epgm://127.0.0.1;239.192.1.1:5555",
        "udp://127.0.0.1:5555"
    ],
)  # fmt: skip
def test_what_may_leave_this_host_is_not_local(endpoint):
    assert not endpoints.is_local(endpoint)


@each("endpoint", ["", "tcp", "tcp:/127.0.0.1:1", "tcp://", "127.0.0.1:5555"])
def test_what_is_no_endpoint_is_refused_with_an_example(endpoint):
    with pytest.raises(ValueError, match=r"looks like tcp://127\.0\.0\.1:5555"):
        endpoints.check(endpoint, own_context=False)


@each(
    "endpoint",
    [
        "tcp://localhost", "tcp://*", "tcp://127.0.0.1:", "tcp://[::1]", "tcp://::1",
        "tcp://127.0.0.1:0;localhost"
    ],
)  # fmt: skip
@each("make", [oz.Publisher, oz.Subscriber])
@each("way", ["bind", "connect"])
def test_an_endpoint_without_a_port_is_refused_with_an_example(make, way, endpoint):
    with pytest.raises(oz.EndpointError, match=r"names no port; one looks like tcp://127\.0\.0\.1:5555"):
        make(**{way: endpoint})


@each("make", [oz.Publisher, oz.Subscriber])
@each(
    ("way", "endpoint", "says"),
    [
        ("connect", "tcp://::1:*", "the port of the other side"),
        ("connect", "tcp://*:5555", "the port of the other side"),
        ("bind", "tcp://127.0.0.1:abc", "a port is a number"),
        ("bind", "tcp://127.0.0.1:5555x", "names port '5555x'; a port is a number up to 65535"),
        ("connect", "tcp://127.0.0.1:+5", "a port is a number"),
    ],
)
def test_what_libzmq_takes_for_no_endpoint_is_an_endpoint_error(make, way, endpoint, says):
    with pytest.raises(oz.EndpointError, match=says) as caught:
        make(**{way: endpoint})
    assert caught.value.errno == zmq.EINVAL


@each("endpoint", ["tcp://[::1]:5", "tcp://::1:5", "tcp://:::5", "tcp://*:*", "tcp://a:0;b:5"])
def test_an_endpoint_with_a_port_is_one(endpoint):
    endpoints.check(endpoint, own_context=False)


@each("endpoint", [None, 5555, ["tcp://127.0.0.1:1"]])
def test_what_is_no_text_is_a_type_error(endpoint):
    with pytest.raises(TypeError, match="an endpoint is a str"):
        endpoints.check(endpoint, own_context=False)


def test_inproc_needs_a_shared_context():
    with pytest.raises(ValueError, match="context="):
        endpoints.check("inproc://x", own_context=True)
    endpoints.check("inproc://x", own_context=False)


def test_one_endpoint_or_several_or_none_may_be_given():
    assert endpoints.as_list(None) == []
    assert endpoints.as_list("tcp://a:1") == ["tcp://a:1"]
    assert endpoints.as_list(("tcp://a:1", "tcp://b:1")) == ["tcp://a:1", "tcp://b:1"]


# pyzmq's, of its own attributes.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [oz.Publisher, oz.Subscriber, oz.asyncio.Publisher, oz.asyncio.Subscriber])
def test_sockets_can_be_looked_at(make):
    async def scenario():
        socket = make()
        inspect.getmembers(socket)
        mock.Mock(spec=socket)
        assert getattr(socket, "endpoint", "none") is None
        closing = socket.close()
        if inspect.isawaitable(closing):
            await closing
        assert socket.endpoint is None
        assert "closed" in repr(socket)

    asyncio.run(scenario())


def test_endpoints_may_be_bytes_as_zeromq_tells_them():
    with oz.Publisher(b"tcp://127.0.0.1:*") as pub, oz.Subscriber() as sub:
        sub.connect(pub.endpoint.encode())
        assert sub.endpoint == pub.endpoint
        sub.disconnect(pub.endpoint.encode())
        assert sub.endpoint is None
        sub.connect(pub.endpoint.encode() + b"\0")
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        with oz.Subscriber([pub.endpoint.encode(), pub.endpoint]) as other:
            assert len(other.publishers) == 1
        pub.unbind(pub.endpoint.encode())
        assert pub.endpoint is None


@each(
    "endpoint",
    [
        "tcp://", "nonsense", "", "tcp://127.0.0.1:65536", b"\xff", b"nonsense", "epgm://lo;10.1.2.3:1"
    ],
)  # fmt: skip
@each("how", ["bind", "connect"])
def test_what_is_no_endpoint_is_refused_as_pyzmq_does_and_as_a_value(endpoint, how):
    with oz.Subscriber() as sub:
        with pytest.raises(zmq.ZMQError) as caught:
            getattr(sub, how)(endpoint)
        error = caught.value
        assert isinstance(error, oz.OzError)
        assert isinstance(error, oz.EndpointError)
        assert isinstance(error, ValueError)
        assert error.errno in (zmq.EINVAL, zmq.EPROTONOSUPPORT)
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.errno) == (str(error), error.errno)
        assert endpoint in (b"nonsense", b"\xff") or repr(endpoint) in str(error)


@each(
    ("endpoint", "needs"),
    [
        ("tcp://[::1]:*", True),
        ("tcp://[::]:5555", True),
        ("tcp://[fe80::1%eth0]:5555", True),
        ("tcp://::1:5555", True),
        ("tcp://[::1]:0;[::1]:5555", True),
        ("tcp://127.0.0.1:5555", False),
        ("tcp://*:*", False),
        ("tcp://localhost:5555", False),
        ("tcp://127.0.0.1:0;127.0.0.1:5555", False),
        ("ipc:///tmp/a:b:c", False),
        ("inproc://a:b:c", False),
    ],
)
def test_ipv6_is_needed_for_its_addresses_only(endpoint, needs):
    assert endpoints.needs_ipv6(endpoint) is needs


@pytest.mark.skipif(os.name != "posix", reason="names of files are bytes")
def test_a_path_that_is_not_utf8_is_refused_with_a_reason():
    odd = os.fsdecode(b"\xff")
    with oz.Publisher() as pub, oz.Subscriber() as sub:
        for way in (pub.bind, pub.connect, sub.bind, sub.connect):
            with pytest.raises(oz.EndpointError, match="needs UTF-8"):
                way(f"ipc:///tmp/{odd}")
    directory = tempfile.TemporaryDirectory(prefix="oz", dir="/tmp")
    with directory, pytest.raises(oz.EndpointError, match="not UTF-8"):
        oz.Node(options=oz.NodeOptions(directory=os.path.join(directory.name, odd)))
