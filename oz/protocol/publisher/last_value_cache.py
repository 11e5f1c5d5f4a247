"""The last-value cache: the newest message of each subject, for subscribers that join later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from oz.protocol.node.reserved_subjects import MARK
from oz.subjects.pattern import Pattern
from oz.wire.extras import Rich

LIMIT = 65_536
"""Subjects whose newest message a publisher keeps; those published longest ago go first."""


class LastValueCache:
    """Subjects and the payloads last published on them."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        """Start empty."""
        self._newest: OrderedDict[bytes, Any] = OrderedDict()

    def put(self, subject: bytes, payload: Any) -> None:
        """Keep a message in place of the one before."""
        newest = self._newest
        newest[subject] = payload
        newest.move_to_end(subject)  # the order is that of publishing
        if len(newest) > LIMIT:
            newest.popitem(last=False)

    def match(self, patterns: Iterable[Pattern]) -> list[Any]:
        """Return subject and payload in turn of all that some pattern matches, in the order of publishing."""
        tests = [pattern.matches for pattern in patterns]
        items: list[Any] = []
        for subject, payload in self._newest.items():
            if any(_try(matches, subject) for matches in tests):
                items += (subject, payload)
        return items


class NodeLastValueCache(LastValueCache):
    """As `LastValueCache`, but only what nodes say to all: no reserved subject, and no request."""

    __slots__ = ()

    def put(self, subject: bytes, payload: Any) -> None:
        """Keep a message, unless it is a request, or its subject is a reserved one."""
        is_request = type(payload) is Rich and payload.extras.reply_to is not None
        if not is_request and not subject.startswith(MARK):
            super().put(subject, payload)


def _try(matches: Any, subject: bytes) -> bool:
    try:
        return bool(matches(subject))
    except (ValueError, TimeoutError):
        # Not UTF-8 and so none of a text dialect's, or a pattern that takes too long.
        return False
