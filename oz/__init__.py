r"""Wildcard subjects for ZeroMQ, without a broker.

The PUB and SUB sockets of ZeroMQ filter messages only by literal prefixes. A pattern of oz has prefixes for this
filter, and a regex for the messages that pass the filter. The following program shows all steps. Its comments name the
functions of oz that take them::

    import zmq, oz

    pattern = oz.compile("time.*.east")  # oz/subjects/pattern.py: compile
    sub = zmq.Context.instance().socket(zmq.SUB)
    sub.connect("tcp://127.0.0.1:5555")
    for prefix in pattern.prefixes:  # oz/subjects/dialects/tokens.py: prefix, here b"time."
        sub.setsockopt(zmq.SUBSCRIBE, prefix)  # the part that ZeroMQ can filter
    while True:
        subject, payload = sub.recv_multipart()
        if pattern.regex.fullmatch(subject.decode()):  # oz/subjects/dialects/tokens.py: to_regex
            print(subject, payload)  # the subject matches

`oz.Subscriber` and `oz.asyncio.Subscriber` take these steps for many patterns (oz/subscriber/plain.py). If the
publisher is an `oz.Publisher`, it also matches the regex, and sends only the matching messages.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from oz.compiled import HOT
from oz.errors import (
    ClosedError,
    ConfigurationError,
    JournalError,
    JournalFull,
    MissingDependency,
    NoResponders,
    OwnershipError,
    OzError,
    PatternError,
    PatternTimeout,
    PeerLost,
    PermissionDenied,
    ProtocolError,
    ReplyError,
    SubjectError,
    SubjectWarning,
    Timeout,
    Undecidable,
    WouldBlock,
)
from oz.version import VERSION, warn_of_other

if TYPE_CHECKING:
    from oz import asyncio as asyncio
    from oz.dropin.poller import Poller
    from oz.dropin.pub import PubSocket
    from oz.dropin.sub import SubSocket
    from oz.message import Gap, Message
    from oz.node.events import Event, Peer
    from oz.node.snapshot import HandlerTimes, LinkStatus, Snapshot, SubscriptionStatus
    from oz.node.stats import NodeStats
    from oz.node.sync import Node
    from oz.options import Delivery, Limits, Multicast, NodeOptions, Options
    from oz.publisher.stats import PublisherStats, SubscriberInfo
    from oz.publisher.sync import Publisher
    from oz.subjects.dialects import DIALECTS
    from oz.subjects.index.patterns import PatternIndex
    from oz.subjects.pattern import Pattern, validate_subject
    from oz.subjects.pattern import compile as compile
    from oz.subscriber.places import PublisherInfo
    from oz.subscriber.queue import SubscriberStats
    from oz.subscriber.sync import Subscriber, Subscription
    from oz.transport.errors import EndpointError
    from oz.transport.security import Security

__version__ = VERSION
__compiled__ = HOT is not None
"""Whether oz uses its compiled part. If it is False, `oz doctor` shows the reason."""
warn_of_other(__path__[0])

# `asyncio` and `compile` are also public. They are missing here, because `from oz import *` would replace Python's
# module and function.
__all__ = [
    "DIALECTS",
    "ClosedError",
    "ConfigurationError",
    "Delivery",
    "EndpointError",
    "Event",
    "Gap",
    "HandlerTimes",
    "JournalError",
    "JournalFull",
    "Limits",
    "LinkStatus",
    "Message",
    "MissingDependency",
    "Multicast",
    "NoResponders",
    "Node",
    "NodeOptions",
    "NodeStats",
    "Options",
    "OwnershipError",
    "OzError",
    "Pattern",
    "PatternError",
    "PatternIndex",
    "PatternTimeout",
    "Peer",
    "PeerLost",
    "PermissionDenied",
    "Poller",
    "ProtocolError",
    "PubSocket",
    "Publisher",
    "PublisherInfo",
    "PublisherStats",
    "ReplyError",
    "Security",
    "Snapshot",
    "SubSocket",
    "SubjectError",
    "SubjectWarning",
    "Subscriber",
    "SubscriberInfo",
    "SubscriberStats",
    "Subscription",
    "SubscriptionStatus",
    "Timeout",
    "Undecidable",
    "WouldBlock",
    "validate_subject",
]


_MODULES = {
    "Poller": "oz.dropin.poller",
    "PubSocket": "oz.dropin.pub",
    "SubSocket": "oz.dropin.sub",
    "Gap": "oz.message",
    "Message": "oz.message",
    "Multicast": "oz.options",
    "Event": "oz.node.events",
    "Node": "oz.node.sync",
    "NodeStats": "oz.node.stats",
    "Snapshot": "oz.node.snapshot",
    "LinkStatus": "oz.node.snapshot",
    "SubscriptionStatus": "oz.node.snapshot",
    "HandlerTimes": "oz.node.snapshot",
    "Peer": "oz.node.events",
    "Delivery": "oz.options",
    "Limits": "oz.options",
    "NodeOptions": "oz.options",
    "Options": "oz.options",
    "PublisherStats": "oz.publisher.stats",
    "SubscriberInfo": "oz.publisher.stats",
    "Publisher": "oz.publisher.sync",
    "PublisherInfo": "oz.subscriber.places",
    "SubscriberStats": "oz.subscriber.queue",
    "Subscriber": "oz.subscriber.sync",
    "Subscription": "oz.subscriber.sync",
    "DIALECTS": "oz.subjects.dialects",
    "PatternIndex": "oz.subjects.index.patterns",
    "Pattern": "oz.subjects.pattern",
    "validate_subject": "oz.subjects.pattern",
    "compile": "oz.subjects.pattern",
    "EndpointError": "oz.transport.errors",
    "Security": "oz.transport.security",
}
"""Module of each public name that is imported when a program first uses the name.

All of these imports together take 0.4 seconds of processor time. A program that only reads a journal does not need
them.
"""

_SUBPACKAGES = ("cli", "journal", "services", "spark", "testing")
"""Subpackages that a program must import itself, because some of them need packages of an extra."""


def __getattr__(name: str) -> Any:
    if name == "asyncio":
        return importlib.import_module("oz.asyncio")
    if (module := _MODULES.get(name)) is None:
        hint = f" until it is imported: import oz.{name}" if name in _SUBPACKAGES else ""
        # Given `obj`, Python adds a suggestion to the traceback.
        raise AttributeError(
            f"module 'oz' has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__]
        )
    found = getattr(importlib.import_module(module), name)
    return globals().setdefault(name, found)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, "asyncio"]
