"""What a subscriber reads together with the connection that it came by."""

import pytest

import oz
from oz.transport.backend import PYZMQ
from support.backends import call_instead
from support.inside import engine_of


def test_no_frame_is_made_where_there_is_no_message(monkeypatch):
    """As pyzmq frees a frame it looks for signals, and what their handlers raise there is dropped."""
    made = []
    call_instead(monkeypatch, recv=lambda *how: made.append(how) or PYZMQ.recv(*how))
    with oz.Subscriber(bind="tcp://127.0.0.1:*", filtering="publisher") as sub:
        sub.subscribe("a")
        assert engine_of(sub).declarer.links.is_curious
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0)
    assert made == []
