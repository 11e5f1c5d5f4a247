"""Removals of one mechanism each, to show that the simulation can fail: `python -m links.removals NAME
[--count N]`.

A removal patches the machines in the harness. The product has no such switch.
"""

import argparse
import time
from contextlib import ExitStack
from unittest.mock import patch

from links.simulation import run_seed
from oz.publisher.direct import DirectStream
from oz.publisher.session import Batch, Session, Stream
from oz.publisher.sessions import Sessions
from oz.subscriber.link import Link
from oz.wire.links import HELLO, UNKNOWN_EPOCH, decode_control

_welcome, _assign, _on_frame = Link._on_welcome, Stream.assign, Sessions.on_frame


def _resumes_any_epoch(session, hello):
    return not session.has_ended and session.acked <= hello.expected <= session.following


def _accept_any_epoch(link, welcome, listened, effects):
    if link.epoch != UNKNOWN_EPOCH:
        welcome = welcome._replace(epoch=link.epoch)
    _welcome(link, welcome, listened, effects)


def _accept_any_attempt(link, welcome, listened, effects):
    _welcome(link, welcome._replace(attempt=link.attempt), listened, effects)


def _read_any_route(sessions, route, frame, now, user=None):
    """Read frames of every route that ever sent a HELLO of the session."""
    known = sessions.__dict__.setdefault("known_routes", {})
    if frame and frame[0] == HELLO:
        known[route] = decode_control(frame).session
        _on_frame(sessions, route, frame, now, user)
        return
    session = sessions.by_id.get(known.get(route))
    if session is None or sessions._by_route.get(route) is not None:
        _on_frame(sessions, route, frame, now, user)
        return
    sessions._by_route[route] = session
    _on_frame(sessions, route, frame, now, user)
    sessions._by_route.pop(route, None)


def _withdraw_without_flag(batch):
    batch.body, batch.size = None, 0


def _assign_without_drops(stream, body, drops, flags):
    batch = _assign(stream, body, drops, flags)
    batch.drops = 0
    return batch


REMOVALS = {
    "epoch": [(Session, "resumes", _resumes_any_epoch), (Link, "_on_welcome", _accept_any_epoch)],
    "attempt": [
        (Sessions, "_is_stale", staticmethod(lambda session, hello, route: False)),
        (Link, "_on_welcome", _accept_any_attempt),
    ],
    "route": [(Sessions, "on_frame", _read_any_route)],
    "ACK on PING": [(Link, "_acknowledge_ping", lambda link: None)],
    "withdrawn flag": [(Batch, "withdraw", _withdraw_without_flag)],
    "drop counts of the backlog": [(Stream, "assign", _assign_without_drops)],
    "direct messages stay": [(DirectStream, "drop_oldest", Stream.drop_oldest)],
    "direct messages are refused": [(DirectStream, "has_space", lambda stream, size: True)],
}


def find(name, first=0, count=2_000):
    """Return the first seed that fails without a mechanism, and its error; None if none does."""
    with ExitStack() as stack:
        for owner, attribute, replacement in REMOVALS[name]:
            stack.enter_context(patch.object(owner, attribute, replacement))
        for seed in range(first, first + count):
            try:
                run_seed(seed)
            except Exception as error:
                return seed, f"{type(error).__name__}: {error}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(REMOVALS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    for name in options.names:
        began = time.process_time()
        print(
            name, find(name, options.first, options.count), f"{time.process_time() - began:.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
