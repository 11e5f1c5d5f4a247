"""Whatever option of pyzmq's is set to whatever value: it is taken or refused as on a socket of pyzmq."""

import contextlib

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.looped import Looped

VALUES = [0, 1, -1, 2**31 - 1, 2**40, b"", b"abc", "text", None, 1.5, True, [1]]

LEFT_TO_OZ = {
    zmq.SUB: {zmq.SUBSCRIBE, zmq.UNSUBSCRIBE},
    # A publisher answers subscriptions itself: what would come between is refused.
    zmq.PUB: {zmq.SUBSCRIBE, zmq.UNSUBSCRIBE, zmq.XPUB_MANUAL, zmq.INVERT_MATCHING},
}
"""Options that mean something else here, or nothing."""


def outcome(socket, option, value):
    """Say what comes of setting an option: what it is then, or the error."""
    try:
        socket.set(option, value)
    except (TypeError, ValueError, OverflowError, zmq.ZMQError) as error:
        return type(error), str(error)
    with contextlib.suppress(zmq.ZMQError):
        return socket.get(option)
    return "cannot be read"


@pytest.mark.parametrize(
    ("make", "own", "kind"),
    [
        pytest.param(oz.Publisher, zmq.Context, zmq.PUB, id="Publisher"),
        pytest.param(oz.Subscriber, zmq.Context, zmq.SUB, id="Subscriber"),
        pytest.param(
            lambda: Looped(oz.asyncio.Subscriber, filtering="publisher"),
            zmq.asyncio.Context,
            zmq.SUB,
            id="asyncio.Subscriber of batches",
        ),
        pytest.param(
            lambda: Looped(oz.asyncio.Publisher), zmq.asyncio.Context, zmq.PUB, id="asyncio.Publisher"
        ),
        pytest.param(
            lambda: Looped(oz.asyncio.Subscriber), zmq.asyncio.Context, zmq.SUB, id="asyncio.Subscriber"
        ),
    ],
)
def test_options_are_taken_and_refused_as_by_pyzmq(make, own, kind):
    with own() as context:
        for option in set(zmq.SocketOption) - LEFT_TO_OZ[kind] - {zmq.CONFLATE}:
            with make() as socket, context.socket(kind) as other:
                for value in VALUES:
                    found, expected = outcome(socket, option, value), outcome(other, option, value)
                    assert found == expected, (option, value)


@pytest.mark.parametrize("value", VALUES)
def test_what_a_publisher_keeps_to_itself_is_refused(value):
    with oz.Publisher() as pub:
        for option in LEFT_TO_OZ[zmq.PUB]:
            with pytest.raises(zmq.ZMQError, match="Invalid argument"):
                pub.set(option, value)
