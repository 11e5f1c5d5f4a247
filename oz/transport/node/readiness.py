"""Readiness: what callers of a node wait for, such as peers that are up and can be spoken with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oz.protocol.node.inquiry import Inquiries, Inquiry
from oz.protocol.node.membership import Membership
from oz.transport.node.dialler import Dialler
from oz.transport.node.opening import NodeSockets
from oz.transport.node.subscriptions import Missing
from oz.wire.discovery import Announcement


class Readiness:
    """The peers of one node, as those see them who wait; what it makes is called on the I/O side."""

    __slots__ = ("_dialler", "_expect", "_inquiries", "_membership", "_monotonic", "_sockets")

    def __init__(
        self,
        sockets: NodeSockets,
        membership: Membership,
        dialler: Dialler,
        inquiries: Inquiries,
        expect: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Put together what says whether peers are there.

        Args:
            sockets: of the node.
            membership: who is up.
            dialler: which links stand.
            inquiries: what asks peers whether all their subscriptions have arrived.
            expect: wakes those who wait at a time of the monotonic clock.
            monotonic: that clock.
        """
        self._sockets = sockets
        self._membership = membership
        self._dialler = dialler
        self._inquiries = inquiries
        self._expect = expect
        self._monotonic = monotonic

    def missing_peers(self, wanted: int | str | Iterable[str]) -> Missing:
        """Make what says which peers are missing: one whose link is down is, also before it counts as lost.

        Raises:
            TypeError: it is neither a number nor names.
        """
        if isinstance(wanted, int):
            count = wanted

            def too_few() -> str | None:
                up = len(self._linked())
                return None if up >= count else f"{up} of {count} peers are up"

            return too_few
        if isinstance(wanted, str):
            wanted = [wanted]
        names = set(wanted) if isinstance(wanted, Iterable) else {wanted}
        if not all(isinstance(one, str) for one in names):
            raise TypeError(f"wait for a number of peers, for a name, or for several, not for {wanted!r}")

        def absent() -> str | None:
            missing = names - {one.name for one in self._linked()}
            return f"{', '.join(sorted(missing))} are not up" if missing else None

        return absent

    def unready(self) -> Missing:
        """Make what says what is missing until peers can be spoken with, and all they want now is known."""
        inquiry = Inquiry()

        def missing() -> str | None:
            now = self._monotonic()
            unknown = self._inquiries.unknown(inquiry, self._dialler.there(), now)
            if unknown:
                self._expect(self._inquiries.next_deadline(inquiry, now))
            return "; ".join(self._dialler.links.unready() + unknown) or None

        return missing

    def _linked(self) -> list[Announcement]:
        """Return the peers whose link stands as far as is known now; on the I/O side."""
        for publisher in self._sockets.publishers:
            publisher.engine.listen()
        self._dialler.look(self._monotonic())
        return [one for one in self._membership.up if self._membership.is_linked(one.uuid)]
