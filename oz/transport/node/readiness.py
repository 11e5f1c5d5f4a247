"""Readiness: what the callers of a node wait for: to have joined, for peers, and for what is on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import zmq

from oz.configuration import Configuration
from oz.errors import KEYS_HINT, ClosedError, NameserverUnavailable, PermissionDenied, Timeout
from oz.protocol.node.inquiry import Inquiries, Inquiry
from oz.protocol.node.links import Links
from oz.protocol.node.membership import Membership
from oz.protocol.node.seeds import Seeds
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.node.calling import KeyedCalls
from oz.transport.node.dialler import Dialler
from oz.transport.node.opening import NodeSockets
from oz.transport.node.subscriptions import Missing, NodeShell, NodeSubscriptions, Steps
from oz.wire.discovery import Announcement

TAKE_IN_SECONDS = 0.05
"""Seconds for what has come before a drain begins; the rest is still on its way."""


NEWS_EVERY, NEWS_EVERY_PER_PEER = 0.01, 0.001
"""Seconds between two looks of those who wait, while more and more comes."""


class Wait:
    """One call that waits for news, for as long as it does."""

    __slots__ = ("__weakref__",)


def seconds_between_news(peers: int) -> float:
    """Return the seconds between two looks of those who wait, where so many peers are up."""
    return max(NEWS_EVERY, NEWS_EVERY_PER_PEER * peers)


class Readiness:
    """Makes what tells those who wait which peers are missing; it is called on the I/O side."""

    __slots__ = (
        "_calls",
        "_dialler",
        "_expect",
        "_inquiries",
        "_is_absent",
        "_membership",
        "_monotonic",
        "_refusals",
        "_seeds",
        "_sockets",
    )

    def __init__(
        self,
        sockets: NodeSockets,
        membership: Membership,
        dialler: Dialler,
        inquiries: Inquiries,
        expect: Callable[[float], None],
        monotonic: Callable[[], float],
        calls: KeyedCalls | None,
        refusals: Mapping[str, str],
        seeds: Seeds,
        is_absent: Callable[[str], bool],
    ) -> None:
        """Put together what says whether peers are there.

        Args:
            sockets: of the node.
            membership: who is up.
            dialler: which links stand.
            inquiries: what asks peers whether all their subscriptions have arrived.
            expect: wakes those who wait at a time of the monotonic clock.
            monotonic: that clock.
            calls: what is called where nodes have keys; None where they have none.
            refusals: why there is no connection to what the user has named, by endpoint.
            seeds: the peers that the user has named.
            is_absent: tells whether nobody was at one of these.
        """
        self._calls, self._refusals = calls, refusals
        self._seeds, self._is_absent = seeds, is_absent
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
                return None if up >= count else self._or_refusal(f"{up} of {count} peers are up")

            return too_few
        if isinstance(wanted, str):
            wanted = [wanted]
        names = set(wanted) if isinstance(wanted, Iterable) else {wanted}
        if not all(isinstance(one, str) for one in names):
            raise TypeError(f"wait for a number of peers, for a name, or for several, not for {wanted!r}")

        def absent() -> str | None:
            missing = names - {one.name for one in self._linked()}
            return self._or_refusal(f"{', '.join(sorted(missing))} are not up") if missing else None

        return absent

    def unready(self) -> Missing:
        """Make what says what is missing until peers can be spoken with, and all they want now is known."""
        inquiry = Inquiry()

        def missing() -> str | None:
            if self._calls is not None and (denials := self._sockets.sub.denials()):
                raise denials[0].error()
            self._or_refusal("")
            now = self._monotonic()
            unknown = self._inquiries.unknown(inquiry, self._dialler.there(), now)
            if unknown:
                self._expect(self._inquiries.next_deadline(inquiry, now))
            if self._calls is not None:
                unknown += self._calls.unknown()
            return "; ".join(self._dialler.links.unready() + unknown + self._unsettled(now)) or None

        return missing

    def _unsettled(self, now: float) -> list[str]:
        """Say of which peers that the user has named it is not known yet whether they come."""
        unsure = () if self._calls is None else self._calls.unsure
        unsettled = self._seeds.unsettled(self._membership.expected, now, self._is_absent, unsure)
        if (at := self._seeds.next_deadline(unsettled)) is not None:
            self._expect(at)
        unanswered = [f"{one} has not answered yet" for one in unsettled if one not in unsure]
        return [self._with_hint("; ".join(unanswered))] if unanswered else []

    def _or_refusal(self, missing: str) -> str:
        """Return what is missing, unless it is known that it does not come.

        Raises:
            PermissionDenied: somebody that the user has named refuses this node, or is refused by it.
        """
        if self._refusals:
            raise PermissionDenied("; ".join(self._refusals.values()))
        unknown = [] if self._calls is None or not missing else self._calls.unknown()
        return self._with_hint("; ".join([missing, *unknown]))

    def _with_hint(self, missing: str) -> str:
        """Add a possible cause, where a node without keys connects to peers or name servers."""
        may_lack_keys = self._calls is None and (self._sockets.servers or self._seeds.endpoints)
        return f"{missing}. {KEYS_HINT}" if missing and may_lack_keys else missing

    def _linked(self) -> list[Announcement]:
        """Return the peers whose link stands as far as is known now; on the I/O side."""
        for publisher in self._sockets.publishers:
            publisher.engine.listen()
        self._dialler.look(self._monotonic())
        return [one for one in self._membership.up if self._membership.is_linked(one.uuid)]


class Lifecycle:
    """The beginning and the end of one node: it joins, and drains what it has before it leaves."""

    __slots__ = (
        "_configuration",
        "_links",
        "_monotonic",
        "_refusals",
        "_say",
        "_shell",
        "_sockets",
        "_subscriptions",
        "_tell_own",
    )

    def __init__(
        self,
        configuration: Configuration,
        shell: NodeShell,
        sockets: NodeSockets,
        links: Links,
        subscriptions: NodeSubscriptions,
        tell_own: Callable[[], None],
        say: Callable[[str, bytes], None],
        monotonic: Callable[[], float],
        refusals: Mapping[str, str],
    ) -> None:
        """Put together what waits, and what is waited for.

        Args:
            configuration: of the node.
            shell: its threads or loop.
            sockets: its sockets.
            links: who is there.
            subscriptions: what it has subscribed to.
            tell_own: tells its publishers its own subscriptions.
            say: sends a frame to a name server.
            monotonic: the clock.
            refusals: why there is no connection to what the user has named, by endpoint.
        """
        self._refusals = refusals
        self._configuration = configuration
        self._shell = shell
        self._sockets = sockets
        self._links = links
        self._subscriptions = subscriptions
        self._tell_own = tell_own
        self._say = say
        self._monotonic = monotonic

    def join(self) -> Steps[None]:
        """Wait for a name server, or for the nodes of this host.

        Raises:
            NameserverUnavailable: no name server has answered in time.
            PermissionDenied: all of them refuse this node, or are refused by it.
        """
        config, wait = self._configuration, self._shell.wait
        ends = self._monotonic() + config.join_timeout
        try:
            yield wait(self._unregistered, config.join_timeout)
            # Nodes of this host are found at once, if they are there.
            with suppress(Timeout):
                left = max(0.0, min(1.0, ends - self._monotonic()))
                yield wait(lambda: "looking around" if self._links.unsettled() else None, left)
        except Timeout:
            if config.join_timeout:
                raise NameserverUnavailable(config.nameserver, config.join_timeout) from None

    def _unregistered(self) -> str | None:
        """Say that no name server has answered; None if one has, or none is needed."""
        if self._links.is_registered:
            return None
        if self._sockets.servers.keys() <= self._refusals.keys():
            raise PermissionDenied("; ".join(self._refusals[one] for one in self._sockets.servers))
        return "no name server"

    def drain(self, ends: float) -> Steps[None]:
        """Stop asking, have handlers handle what has come, and send what they publish.

        Args:
            ends: the time of the monotonic clock until which it may take.
        """
        sub, shell = self._sockets.sub, self._shell
        standing = [one for one in self._subscriptions.standing if one.active]

        def still_draining() -> str | None:
            heard = self._links.heard()
            return None if all(sub.has_drained(one, heard) for one in standing) else "publishers"

        with suppress(ClosedError, Timeout):
            self._take_in()
            shell.call(lambda: sub.begin_part(*standing))
            yield shell.wait(still_draining, max(0.0, ends - self._monotonic()))
        for queue in self._subscriptions.queues():
            yield queue.drain(max(0.0, ends - self._monotonic()))
        # Not before: handlers that ask in their turn get their answers.
        with suppress(ClosedError, Timeout):
            shell.call(sub.begin_drain)
            yield shell.wait(self._still_closing, max(0.0, ends - self._monotonic()))
        for publisher in self._sockets.publishers:
            with suppress(ClosedError):
                publisher.engine.flush_now()

    def drain_subscription(self, subscription: Subscribed, timeout: float) -> Steps[bool]:
        """End a subscription when it has handled what is on its way; see `Subscription.drain`."""
        self._take_in()
        return (
            yield from self._subscriptions.drain(
                subscription, timeout, lambda: self._still_draining(subscription)
            )
        )

    def take_leave(self) -> None:
        """Say goodbye to name servers; on the I/O side."""
        for endpoint, one in self._links.discovery_clients.items():
            with suppress(zmq.ZMQError):
                self._say(endpoint, one.goodbye())

    def _take_in(self) -> None:
        """Take in what has come, so that all publishers are known that may have sent something."""
        self._tell_own()
        self._shell.call(lambda: self._sockets.sub.take_in(TAKE_IN_SECONDS))

    def _still_closing(self) -> str | None:
        """Say whose answer to this node's goodbye is still to come; None when nothing is on its way."""
        # Those who have left meanwhile do not answer.
        return None if self._sockets.sub.has_left(self._links.heard()) else "publishers"

    def _still_draining(self, subscription: Subscribed) -> str | None:
        """Say whose answer to the end of a subscription is still to come; None when nothing is on its way."""
        return None if self._sockets.sub.has_drained(subscription, self._links.heard()) else "publishers"
