"""A publisher's memory of its subjects: their bytes, and who wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.protocol.node.reserved_subjects import INBOX
from oz.protocol.publisher.interest import NOBODY, PLAIN, ROUTED, Recipients
from oz.protocol.publisher.router import Router
from oz.transport.guard import Guard

SUBJECTS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 1_024
"""How many subjects a publisher remembers as valid, and the bytes of the longest."""

LONGEST_INBOX = 100
"""Characters of the longest inbox, without what numbers its requests, that is remembered as valid."""

Route = tuple[Recipients, bytes, bytes]
"""Of a subject: who wants it, the bytes before a plain payload, and the subject's own bytes."""


class Routes:
    """The subjects that were published lately, but for inboxes, each of which is a subject of one answer.

    Attributes:
        known: the route of each, by how it was given; forgotten whenever an interest changes.
        quick: what of that the short way needs: recipients and bytes where all who want it have the publisher
            filter, the bytes before a plain payload where none has, None where nobody wants it, else False.
    """

    __slots__ = (
        "_answered",
        "_check",
        "_check_open",
        "_guard",
        "_inboxes",
        "_router",
        "_valid",
        "known",
        "quick",
    )

    def __init__(
        self,
        guard: Guard,
        router: Router,
        check: Callable[[Any], tuple[bytes, bytes]],
        check_open: Callable[[], None],
    ) -> None:
        """Remember nothing.

        Args:
            guard: of the publisher.
            router: knows who wants what.
            check: gives the bytes of a subject, with the delimiter and without, or raises.
            check_open: raises when the publisher is closed.
        """
        self._guard = guard
        self._router = router
        self._check = check
        self._check_open = check_open
        self._valid: dict[str | bytes, tuple[bytes, bytes]] = {}
        self._inboxes: set[str] = set()
        self._answered: tuple[str, Route] | None = None
        self.known: dict[str | bytes, Route] = {}
        self.quick: dict[str | bytes, Any] = {}

    def find(self, subject: Any) -> Route:
        """Return what is known of a subject; one that is not remembered is checked first.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            ClosedError: the publisher is closed.
        """
        try:
            return self.known[subject]
        except (KeyError, TypeError):
            # Not hashable: no text, or a bytearray.
            pass
        self._check_open()
        if isinstance(subject, str) and subject.startswith(INBOX):
            return self._find_inbox(subject)
        can_remember = isinstance(subject, (str, bytes))
        forms = self._valid.get(subject) if can_remember else None
        if forms is None:
            forms = self._check(subject)
            if can_remember:
                self._remember_valid(subject, forms)
        # At once, or an interest that another thread takes in between would stay unknown here.
        with self._guard:
            route = self.look_up(*forms)
            if can_remember:
                self._remember(subject, route)
        return route

    def _find_inbox(self, subject: str) -> Route:
        """Do as `find` does for an inbox: only the last one is remembered, and whose inboxes are valid."""
        answered = self._answered
        if answered is not None and answered[0] == subject:
            return answered[1]
        owner, _, number = subject.rpartition(".")
        is_numbered = len(number) < 20 and subject.isascii() and number.isdecimal()
        if is_numbered and owner in self._inboxes:
            raw = subject.encode()
            forms = (raw, raw)
        else:
            forms = self._check(subject)
            if is_numbered and forms[0] is forms[1] and len(owner) <= LONGEST_INBOX:
                if len(self._inboxes) >= SUBJECTS_REMEMBERED:
                    self._inboxes.clear()
                self._inboxes.add(owner)
        with self._guard:
            route = self.look_up(*forms)
            self._answered = subject, route
        return route

    def look_up(self, wire: bytes, raw: bytes) -> Route:
        """Find out who wants a subject that is valid."""
        # Under the guard: another thread may be taking in an interest.
        with self._guard:
            return self._router.find(raw, wire), wire, raw

    def count(self, subject: Any) -> int:
        """Count the subscriptions that let a subject through; None counts all.

        Raises:
            SubjectError, ProtocolError, TypeError, ClosedError: as `find`.
        """
        with self._guard:
            if subject is None:
                return self._router.count(None, None)
            recipients, wire, raw = self.find(subject)
            return self._router.count(raw, wire, recipients)

    def _remember_valid(self, subject: str | bytes, forms: tuple[bytes, bytes]) -> None:
        if len(subject) > LONGEST_REMEMBERED:
            return
        if len(self._valid) >= SUBJECTS_REMEMBERED:
            self._valid.clear()
        self._valid[subject] = forms

    def _remember(self, subject: str | bytes, route: Route) -> None:
        recipients, wire, raw = route
        if len(raw) > LONGEST_REMEMBERED:
            return
        if len(self.known) >= SUBJECTS_REMEMBERED:
            self.forget()
        self.known[subject] = route
        ways = {NOBODY: None, ROUTED: (recipients, raw), PLAIN: wire}
        self.quick[subject] = ways.get(recipients.kind, False)

    def forget(self) -> None:
        """Forget who wants what."""
        # All at once: finding the oldest again and again would walk over the slots of those gone before.
        self.known.clear()
        self.quick.clear()
        self._answered = None

    def forget_valid(self) -> None:
        """Forget all, also which subjects may be published."""
        self._valid.clear()
        self._inboxes.clear()
        self.forget()
