"""Counts of mechanisms in a run. A simulation proves nothing about a mechanism that never fires."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps

from oz.node.replies import WaitingReplies
from oz.node.requests import Requests, Send
from oz.node.roster import Roster
from oz.publisher.session import Session, Stream
from oz.subscriber.fallback import Fallback
from oz.subscriber.link import Link


def _always(name):
    return lambda result, *_: name


def _if_result(name):
    return lambda result, *_: name if result else None


def _is_send(effect):
    return isinstance(effect, Send)


_COUNTED = [
    (Session, "resume", _always("session resumed")),
    (Session, "end", _always("session ended")),
    (Session, "unreachable", _always("session without a connection")),
    (Stream, "moved", _always("messages of a group moved")),
    (Stream, "drop_oldest", _if_result("oldest messages dropped by a publisher")),
    (Stream, "_conflate", _always("messages conflated by a publisher")),
    (Stream, "count_lost", _always("stream with an unknown loss")),
    (Link, "_replace", _always("connection of a link replaced")),
    (Link, "_on_bye", _always("BYE")),
    (Link, "_greet", _always("HELLO")),
    (Fallback, "move", _always("moved from a plain connection to a link")),
    (Roster, "_gone", lambda result, roster, peer, reason, now: f"peer {reason}"),
    (Roster, "_unlink", _always("link of a peer lost")),
    (Roster, "introduced", _always("peers introduced")),
    (Requests, "_retry", lambda result, *_: "request retried" if any(map(_is_send, result)) else None),
    (WaitingReplies, "add", _always("reply that waits for a session")),
]

EXPECTED = (
    "session resumed",
    "session ended",
    "session without a connection",
    "messages of a group moved",
    "dropped: full",
    "dropped: conflated",
    "oldest messages dropped by a publisher",
    "messages conflated by a publisher",
    "connection of a link replaced",
    "BYE",
    "peer closed",
    "peer lost",
    "peer restarted",
    "peers introduced",
    "gap with a count",
    "gap without a count",
    "redelivered",
    "job redelivered",
    "plain message",
    "request: reply",
    "request: Timeout",
    "request: PeerLost",
    "request: NoResponders",
    "request retried",
    "replies of request_many",
)
"""Mechanisms that fire in a few hundred runs."""


@contextmanager
def counting(counter):
    """Count the mechanisms in a `with` block."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in _COUNTED]
    for owner, name, describe in _COUNTED:
        setattr(owner, name, _counted(getattr(owner, name), describe, counter))
    try:
        yield counter
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _counted(original, describe, counter):
    @wraps(original)
    def call(self, *arguments, **options):
        result = original(self, *arguments, **options)
        name = describe(result, self, *arguments)
        if name is not None:
            counter[name] += 1
        return result

    return call
