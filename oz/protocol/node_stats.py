"""What a node counts, beside what its sockets do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NodeStats:
    """What a node did and what became of its messages. Plain integers; a copy as of when it was asked for."""

    published: int = 0
    """Messages given to `publish`, requests and replies included."""
    unwanted: int = 0
    """Those that nobody had asked for."""
    missed: int = 0
    """Messages for which a peer had no room, counted for each: it learns of them by a gap."""
    received: int = 0
    """Messages that came in, those of the node itself included."""
    lost: int = 0
    """Messages known to have been lost on the way here."""
    handled: int = 0
    """Messages that handlers have handled, or that were received of subscriptions without one."""
    failed: int = 0
    """Messages at which a handler raised."""
    dropped: int = 0
    """Messages dropped because too many waited for a handler."""
    waiting: int = 0
    """Messages that wait for a handler now."""
    requests: int = 0
    """Requests made."""
    replies: int = 0
    """Replies given."""
    late_replies: int = 0
    """Replies that came when nobody waited for them any more; they are dropped."""
    replies_dropped: int = 0
    """Replies given to requesters who could not be reached."""
    no_responders: int = 0
    """Requests that nobody would have answered."""
    advisories: int = 0
    """Advisories published."""
    malformed: int = 0
    """Frames that meant nothing."""
