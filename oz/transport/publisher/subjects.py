"""A publisher's memory of its subjects: their bytes, and who wants them."""

from __future__ import annotations

from typing import Any

from oz.protocol.publisher.recipients import NOBODY, PLAIN, ROUTED, Recipients

SUBJECTS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 1_024
"""How many subjects a publisher remembers as valid, and the bytes of the longest."""

Route = tuple[Recipients, bytes, bytes]
"""Of a subject: who wants it, the bytes before a plain payload, and the subject's own bytes."""


class Routes:
    """The subjects that were published lately.

    Attributes:
        known: the route of each, by how it was given; forgotten whenever an interest changes.
        quick: what of that the short way needs: recipients and bytes where all who want it have the publisher
            filter, the bytes before a plain payload where none has, None where nobody wants it, else False.
    """

    __slots__ = ("_valid", "known", "quick")

    def __init__(self) -> None:
        """Remember nothing."""
        self._valid: dict[str | bytes, tuple[bytes, bytes]] = {}
        self.known: dict[str | bytes, Route] = {}
        self.quick: dict[str | bytes, Any] = {}

    def find(self, socket: Any, subject: Any) -> Route:
        """Return what is known of a subject; the socket checks one that is not remembered.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
        """
        try:
            return self.known[subject]
        except (KeyError, TypeError):
            # Not hashable: no text, or a bytearray.
            pass
        route: Route = socket._admit(subject)
        return route

    def valid(self, subject: str | bytes) -> tuple[bytes, bytes] | None:
        """Return the bytes of a subject that was found valid, with the delimiter and without."""
        return self._valid.get(subject)

    def remember_valid(self, subject: str | bytes, forms: tuple[bytes, bytes]) -> None:
        """Remember the bytes of a subject that is valid."""
        if len(subject) > LONGEST_REMEMBERED:
            return
        if len(self._valid) >= SUBJECTS_REMEMBERED:
            self._valid.clear()
        self._valid[subject] = forms

    def remember(self, subject: str | bytes, route: Route) -> None:
        """Remember who wants a subject."""
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

    def forget_valid(self) -> None:
        """Forget all, also which subjects may be published."""
        self._valid.clear()
        self.forget()
