"""How often each mechanism fired: a simulation in which one never does says nothing about it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps

from oz.protocol.bridge.forwarding import Forwarding
from oz.protocol.bridge.leg import ForwardedInterest
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.send_buffer import ConflatingSendBuffer, DropOldestSendBuffer, Passing
from oz.protocol.subscriber.declarations import Declarations
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Stream
from oz.services.leg import Leg

EXPECTED = (
    "gap with a count",
    "gap without a count",
    "redelivered",
    "forwarder took over",
    "forwarder stood by",
    "forwarder stood still",
    "forwarder told of a loss",
    "message came back to a forwarder",
    "tree of buses changed",
    "interest asked for across",
    "interest dropped across",
    "request answered",
    "request: Timeout",
    *(
        f"node member: {what}"
        for what in (
            "answers",
            "ask",
            "calm",
            "forge",
            "got something",
            "introduce",
            "join",
            "listen",
            "pretend",
            "refused",
            "say_what_is_denied",
            "say_what_is_granted",
            "speak_for_others",
            "spoil",
            "want",
        )
    ),
)
"""What fires in every few hundred runs."""


def _renewed(self, before, result, *_):
    return "declaration renewed", bool(result.wanted)


def _greeted(self, before, result, *_):
    return "stream greeted", bool(result.wanted)


def _handed_over(self, before, result, *_):
    return "group handed over", True


def _conflated(self, before, result, stream, items, _):
    taken = (before or 0) + len(items) // 2 - result
    return "conflated at the publisher", taken > len(self.take(stream, taken)[1]) // 2


def _dropped_oldest(self, before, result, *_):
    return "oldest dropped at the publisher", result > 0


def _left_out(self, before, result, *_):
    return "connection left out", result


def _returned(self, before, result, stream, *_):
    return "came back in its time of grace", before


def _forgotten(self, before, result, *_):
    return "stream forgotten", True


def _goodbye(self, before, result, *_):
    return "goodbye heard", True


def _took_over(self, before, result, *_):
    return "forwarder took over", True


def _stood_by(self, before, result, *_):
    return "forwarder stood by", any(
        was and not leg.is_open for was, leg in zip(before, self.legs, strict=True)
    )


def _stood_still(self, before, result, *_):
    return "forwarder stood still", True


def _told_loss(self, before, result, *_):
    return "forwarder told of a loss", True


def _came_back(self, before, result, leg, *_):
    return "message came back to a forwarder", leg.stats.looped > before


def _tree_changed(self, before, result, offer):
    return "tree of buses changed", offer.serial > 1


def _asked(self, before, result):
    is_asked = result is not None and result[1] is not None
    return f"interest {'asked for' if is_asked else 'dropped'} across", result is not None


_WATCHED = [
    (Forwarding, "_take_over", _took_over, None),
    (Forwarding, "_settle", _stood_by, lambda self, _: [leg.is_open for leg in self.legs]),
    (Forwarding, "_stand_by", _stood_still, None),
    (Forwarding, "pass_between", _came_back, lambda self, leg, *_: leg.stats.looped),
    (Leg, "report_loss", _told_loss, None),
    (Leg, "tell", _tree_changed, None),
    (ForwardedInterest, "next_change", _asked, None),
    (Declarations, "renew", _renewed, None),
    (Declarations, "greet", _greeted, None),
    (Passing, "share", _handed_over, None),
    (
        ConflatingSendBuffer,
        "put",
        _conflated,
        lambda self, stream, *_: len(self.take(stream, 1 << 30)[1]) // 2,
    ),
    (DropOldestSendBuffer, "put", _dropped_oldest, None),
    (Batches, "leave_out", _left_out, None),
    (Lifetimes, "returned", _returned, lambda _, stream, *__: stream.vanished_at is not None),
    (Lifetimes, "forget", _forgotten, None),
    (Stream, "end", _goodbye, None),
]


@contextmanager
def watched(counter):
    """Count what fires, as long as this lasts."""
    originals = []
    for owner, name, tell, look in _WATCHED:
        original = getattr(owner, name)
        originals.append((owner, name, original))
        setattr(owner, name, _counting(original, tell, look, counter))
    for owner, name, watch in ((Source, "advance", _watch_advance), (Records, "beat", _watch_beat)):
        original = getattr(owner, name)
        originals.append((owner, name, original))
        setattr(owner, name, watch(original, counter))
    try:
        yield counter
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _counting(original, tell, look, counter):
    @wraps(original)
    def call(self, *args, **kwargs):
        before = None if look is None else look(self, *args)
        result = original(self, *args, **kwargs)
        name, fires = tell(self, before, result, *args)
        if fires:
            counter[name] += 1
        return result

    return call


def _watch_advance(advance, counter):
    @wraps(advance)
    def call(self, head, time_ns, *, is_shared):
        before = self.epoch
        lost, is_new = advance(self, head, time_ns, is_shared=is_shared)
        if before is not None and self.epoch != before:
            counter["epoch changed"] += 1
        if lost and not head.count:
            counter["tail reported"] += 1
        if head.count and not is_new:
            counter["passed over as seen before"] += 1
        return lost, is_new

    return call


def _watch_beat(beat, counter):
    @wraps(beat)
    def call(self, now):
        beat(self, now)
        if self.is_halfway:
            counter["heartbeat starved"] += 1

    return call
