"""The subjects of a publisher: which may be published, their bytes, and who wants them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any

from oz.errors import ProtocolError, SubjectError, SubjectWarning
from oz.protocol.node.reserved_subjects import INBOX
from oz.protocol.prefix_counts import UNREACHABLE
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.router import Router
from oz.subjects import dialects
from oz.transport.dropin import callers_level
from oz.transport.endpoints import is_local
from oz.transport.guard import Guard
from oz.wire.keys import OWN

SUBJECTS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 1_024
"""How many subjects a publisher remembers as valid, and the bytes of the longest."""

LONGEST_INBOX, LONGEST_NUMBER = 100, 60
"""Characters of the longest inbox, without what numbers its requests, that is remembered as valid; and the
digits of the longest number."""

Route = tuple[Recipients, bytes]
"""Of a subject: who wants it, and its bytes."""


def subject_check(dialect: str, endpoints: Collection[str]) -> Callable[[Any], bytes]:
    """Make what checks the subjects of a publisher.

    Args:
        dialect: the publisher's.
        endpoints: where the publisher sends to; may change.

    Returns:
        A function that is called with a subject as it was given to `publish`, and gives its bytes. It raises
        SubjectError where the dialect does not allow it or it may not leave this host, ProtocolError where it
        begins as oz's own keys do, TypeError for no text.
    """
    rules = dialects.find(dialect)
    decode, check_own, advise = rules.decode, rules.check_subject, rules.subject_advice

    def check(subject: Any) -> bytes:
        own = decode(subject, SubjectError)
        check_own(own)
        raw = own if isinstance(own, bytes) else own.encode()
        if raw.startswith(OWN):
            raise ProtocolError(f"subject {subject!r} begins with {OWN!r}, which opens oz's own keys")
        if raw in UNREACHABLE:
            rule = "it would not reach subscribers to everything: docs/wire.md says why"
            raise SubjectError(dialect, subject, 0, rule)
        if raw.startswith(b"_LOCAL.") and not all(is_local(one) for one in endpoints):
            rule = f"_LOCAL subjects stay on this host, and {', '.join(endpoints)} does not"
            raise SubjectError(dialect, subject, 0, rule)
        advice = advise(own)
        if advice is not None:
            warnings.warn(advice, SubjectWarning, stacklevel=callers_level())
        return raw

    return check


class Routes:
    """The subjects that were published lately, but for inboxes, each of which is a subject of one answer.

    Attributes:
        known: the route of each, by how it was given; forgotten whenever an interest changes.
        is_closing: nothing more is published.
    """

    __slots__ = (
        "_answered",
        "_check",
        "_check_open",
        "_count",
        "_guard",
        "_inboxes",
        "_interest",
        "_look_up",
        "_valid",
        "is_closing",
        "known",
    )

    def __init__(
        self,
        guard: Guard,
        router: Router,
        check: Callable[[Any], bytes],
        check_open: Callable[[], None],
    ) -> None:
        """Remember nothing.

        Args:
            guard: of the publisher.
            router: knows who wants what.
            check: gives the bytes of a subject, or raises.
            check_open: raises when the publisher is closed, or closes.
        """
        self._guard = guard
        self._interest = router.interest
        self._look_up = router.find
        self._count = router.count
        self._check = check
        self._check_open = check_open
        self._valid: dict[str | bytes, bytes] = {}
        self._inboxes: set[str] = set()
        self._answered: tuple[str, Route] | None = None
        self.known: dict[str | bytes, Route] = {}
        self.is_closing = False

    def find(self, subject: Any) -> Route:
        """Return what is known of a subject; one that is not remembered is checked first.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            ClosedError: the publisher is closed.
        """
        try:
            known = self.known.get(subject)
        except TypeError:
            # Not hashable: no text, or a bytearray.
            known = None
        if known is not None:
            return known
        if self.is_closing:
            self._check_open()
        if isinstance(subject, str) and subject.startswith(INBOX):
            return self._find_inbox(subject)
        can_remember = isinstance(subject, (str, bytes))
        raw = self._valid.get(subject) if can_remember else None
        if raw is None:
            raw = self._check(subject)
            if can_remember:
                self._remember_valid(subject, raw)
        self._guard.is_wanted = True
        # At once, or an interest that another thread takes in between would stay unknown here.
        with self._guard:
            route = self.look_up(raw)
            # A pattern may have been passed over this time only.
            if can_remember and not self._interest.has_changed:
                self._remember(subject, route)
        return route

    def _find_inbox(self, subject: str) -> Route:
        """Do as `find` does for an inbox: only the last one is remembered, and whose inboxes are valid."""
        answered = self._answered
        if answered is not None and answered[0] == subject:
            return answered[1]
        owner, _, number = subject.rpartition(".")
        is_numbered = len(number) <= LONGEST_NUMBER and subject.isascii() and number.isdecimal()
        if is_numbered and owner in self._inboxes:
            raw = subject.encode()
        else:
            raw = self._check(subject)
            if is_numbered and len(owner) <= LONGEST_INBOX:
                if len(self._inboxes) >= SUBJECTS_REMEMBERED:
                    self._inboxes.clear()
                self._inboxes.add(owner)
        self._guard.is_wanted = True
        with self._guard:
            route = self._look_up(raw), raw
            self._answered = subject, route
        return route

    def look_up(self, raw: bytes) -> Route:
        """Find out who wants a subject that is valid."""
        # Under the guard: another thread may be taking in an interest.
        with self._guard:
            return self._look_up(raw), raw

    def count(self, subject: Any) -> int:
        """Count the subscriptions that let a subject through; None counts all.

        Raises:
            SubjectError, ProtocolError, TypeError, ClosedError: as `find`.
        """
        with self._guard:
            if subject is None:
                return self._count(None)
            recipients, raw = self.find(subject)
            return self._count(raw, recipients)

    def _remember_valid(self, subject: str | bytes, raw: bytes) -> None:
        if len(subject) > LONGEST_REMEMBERED:
            return
        if len(self._valid) >= SUBJECTS_REMEMBERED:
            self._valid.clear()
        self._valid[subject] = raw

    def _remember(self, subject: str | bytes, route: Route) -> None:
        if len(route[1]) > LONGEST_REMEMBERED:
            return
        if len(self.known) >= SUBJECTS_REMEMBERED:
            self.forget()
        self.known[subject] = route

    def forget(self) -> None:
        """Forget who wants what."""
        # All at once: finding the oldest again and again would walk over the slots of those gone before.
        self.known.clear()
        self._answered = None

    def forget_valid(self) -> None:
        """Forget all, also which subjects may be published."""
        self._valid.clear()
        self._inboxes.clear()
        self.forget()

    def close(self) -> None:
        """Publish nothing more: every subject is looked up again, and refused."""
        self.is_closing = True
        self.forget()
