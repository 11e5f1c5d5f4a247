"""Each enforcement of keys and permissions is taken away, and a member with few rights is found to profit."""

import logging

import pytest
import zmq

from oz.protocol.node.ownership import Ownership
from oz.security.access import Access
from oz.security.publish_access import PublishAccess
from simulation.members import MemberWorld
from simulation.running import run
from support.sizes import in_suite

MOST = 30
"""Seeds in which each is to be found; the first of them finds it, until a run changes."""

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="keys are made by libzmq, and this has no CURVE")


@pytest.fixture(autouse=True)
def nobody_reads_warnings(caplog):
    caplog.set_level(logging.CRITICAL)


def speak_in_any_name(monkeypatch):
    """Believe whoever speaks that the publisher's name is its own."""

    def owns(self, origin, count=1):
        self.has_denied = False
        return True

    monkeypatch.setattr(PublishAccess, "owns", owns)


def publish_anything(monkeypatch):
    """Take whatever a key publishes."""
    monkeypatch.setattr(PublishAccess, "denied", lambda self, subjects, extras=None: [])


def have_any_inbox_answered(monkeypatch):
    """Answer to whatever inbox somebody wants an answer in."""
    monkeypatch.setattr(Ownership, "may_ask", lambda *_: True)


def say_anything_to_nodes(monkeypatch):
    """Take replies, and what nodes say to each other, of whoever says it."""
    monkeypatch.setattr(Ownership, "may_say", lambda *_: True)


def declare_anything(monkeypatch):
    """Grant whatever streams ask for."""
    monkeypatch.setattr(Access, "denial", lambda *_: None)


def join_any_group(monkeypatch):
    """Let whoever may read a subject join its queue groups."""
    denial = Access.denial
    monkeypatch.setattr(Access, "denial", lambda self, key, patterns, group="": denial(self, key, patterns))


def be_anybody(monkeypatch):
    """Grant inboxes, announcements and what is said to one node alone to whoever asks."""
    monkeypatch.setattr(Ownership, "denial", lambda *_: None)


def subscribe_plainly(monkeypatch):
    """Grant whatever is asked for without a declaration."""
    monkeypatch.setattr(Access, "denial_of_key", lambda *_: None)


def count_no_messages(monkeypatch):
    """Drop what is denied, and do not count it."""
    deny = PublishAccess._deny

    def deny_and_forget(self, what, count=1):
        deny(self, what, 0)

    monkeypatch.setattr(PublishAccess, "_deny", deny_and_forget)


@pytest.mark.parametrize(
    ("defect", "first"),
    in_suite(
        [
            (say_anything_to_nodes, 0),
            (publish_anything, 0),
        ],
        [
            (speak_in_any_name, 2),
            (have_any_inbox_answered, 0),
            (declare_anything, 0),
            (join_any_group, 3),
            (be_anybody, 0),
            (subscribe_plainly, 0),
            (count_no_messages, 2),
        ],
    ),
)
def test_enforcement_that_is_taken_away_is_missed(defect, first, monkeypatch):
    defect(monkeypatch)
    assert any(run(seed, kind=MemberWorld) is not None for seed in range(first, first + MOST))
