"""The blocking node."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, overload

from oz.message import Extras, Message
from oz.numbers import check_count
from oz.options import Limits
from oz.protocol.node.subscription import NodeStats
from oz.subjects.pattern import Patterns
from oz.sync.node_engine import ThreadedNode
from oz.sync.subscriptions import NodeSubscription, ReceivedSubscription
from oz.sync.waiting import Handler
from oz.transport.node.opening import OnPeer, node_settings
from oz.transport.node.subscriptions import SubscribeArguments
from oz.transport.option_checks import Overflow, Policy
from oz.transport.publisher.options import OnFull
from oz.transport.security import Security, resolve_security
from oz.wire.discovery import Announcement


class Node:
    """Joins a bus, and publishes, subscribes, asks and answers there by subject alone.

    Every method may be called from any thread. Handlers run on a pool of threads, in order for each
    subscription. The node has one thread for what comes in, and one for each of its publishers.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        bus: str | None = None,
        nameserver: str | bytes | Sequence[str | bytes] | None = None,
        bind: str | bytes | Sequence[str | bytes] | None = None,
        peers: str | bytes | Sequence[str | bytes] | None = None,
        advertise: str | None = None,
        dialect: str | None = None,
        codec: Any = None,
        echo: bool = True,
        directory: str | os.PathLike[str] | None = None,
        join_timeout: float | None = None,
        lost_after: float | None = None,
        threads: int | None = None,
        on_full: OnFull = "drop",
        full_timeout: float | None = None,
        high_water_mark: int | None = None,
        last_value: bool = False,
        limits: Limits | None = None,
        error_replies: bool = True,
        on_peer: OnPeer | None = None,
        security: Security | None = None,
    ) -> None:
        """Join a bus.

        What is None is taken from `OZ_*` environment variables, a TOML file, or a default:
        docs/configuration.md.

        Args:
            name: what it is called; default the program's name and its process id.
            bus: the bus; nodes of others never hear of it.
            nameserver: the endpoint of a name server, or of several. One that answers is enough.
            bind: where nodes of other hosts connect to it; default a free port at the address of this host
                that name servers and peers see, or none without either.
            peers: endpoints of nodes to connect to, in place of a name server; one is enough to find all.
                With neither, the nodes of this host find each other in a directory.
            advertise: the address that others are told in place of that it is bound to, as behind a NAT.
            dialect: that of patterns and subjects.
            codec: `"msgpack"`, `"json"`, or an object with `encode` and `decode`.
            echo: whether its own subscriptions get what it publishes itself.
            directory: where nodes of one host find each other; only its owner may enter it.
            join_timeout: seconds to wait for a name server; 0 does not wait, and goes on trying.
            lost_after: seconds without a link after which a peer counts as lost.
            threads: the most handlers that run at once.
            on_full: what to do when a peer has no room: see `oz.Publisher`.
            full_timeout: seconds that `"block"` waits at most.
            high_water_mark: messages or batches that may wait for each peer; default 100,000, 0 is no limit.
            last_value: keep the newest message of each subject that it publishes, up to 65,536 of them, for
                subscriptions that ask for it; not requests, nor what begins with `_`.
            limits: how much of this node a peer may use; default the file's table `[limits]`, docs/limits.md.
            error_replies: whether those who ask are told when a handler of this node raises, with the name of
                the exception's class and its text, which may hold what a stranger is not to know.
            on_peer: called with a peer and `"up"`, `"left"` or `"lost"`, one after the other, on the pool.
            security: its key, the keys that it trusts and what their holders may do; default what
                `OZ_SECURITY` or the file's table `[security]` says, docs/security.md.

        Raises:
            NameserverUnavailable: no name server has answered in that time.
            PermissionDenied: with keys, no name server trusts that of this node, or has one that it trusts.
            ConfigurationError: a setting makes no sense; says where it came from.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
            zmq.ZMQError: file descriptors are used up.
        """
        settings = node_settings(
            name=name, bus=bus, nameserver=nameserver, bind=bind, peers=peers, advertise=advertise,
            dialect=dialect, codec=codec, echo=echo, directory=directory, join_timeout=join_timeout,
            lost_after=lost_after, threads=threads, on_full=on_full, full_timeout=full_timeout,
            high_water_mark=high_water_mark, last_value=last_value, limits=limits,
            error_replies=error_replies, on_peer=on_peer,
            security=resolve_security() if security is None else security,
        )  # fmt: skip
        self.configuration = settings.configuration
        self.bus = settings.configuration.bus
        self.name, self.uuid = settings.name, settings.uuid
        self._shell = ThreadedNode(settings)
        try:
            self._engine = self._shell.open().engine
            self._publisher_for = self._engine.publishing.publisher_for
        except BaseException:
            # Ctrl-C, when it had joined: nobody else could close it.
            self._shell.give_up()
            raise

    @property
    def announcement(self) -> Announcement:
        """The announcement of this node to others."""
        return self._engine.sockets.announcement

    @property
    def endpoint(self) -> str | None:
        """The endpoint for the `peers=` of other nodes, with its port; the first of several.

        None for a node that binds no endpoint, as those that meet in a directory, before it has joined, and
        once it is closed. Not the bound address where that is all of the host's: then one that others see.
        """
        return self._engine.endpoint

    # publishing ------------------------------------------------------------------------------------------

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message to all that have a subscription for it.

        Args:
            subject: a full subject, valid in the node's dialect. `_LOCAL.` subjects stay on this host.
            payload: what the codec encodes.
            headers: text to text, bytes, numbers, truth values or None.
            key: what sticky queue groups go by, in place of the subject.
            message_id: what a repeat is known by to those who drop repeats.

        Raises:
            SubjectError: the dialect does not allow the subject, or it is one of oz's own.
            WouldBlock: a peer has no room, unless `on_full` is `"drop"`.
            ClosedError: the node is closed.
            OwnershipError: it was made before a fork.
        """
        extras = None if headers is None is key is message_id else Extras(headers, None, message_id, key)
        publisher: Any = self._publisher_for(subject)
        publisher.engine.publish(subject, payload, extras)

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the node is closed.
        """
        self._engine.publishing.flush()

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any node has asked for what a subject begins with; see `oz.Publisher.interest`.

        Args:
            subject: a valid subject of the dialect.

        Raises:
            SubjectError: it is not, or is one of oz's own.
            ClosedError: the node is closed.
        """
        return self._publisher_for(subject).interest(subject)

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`.

        Args:
            n: how many nodes to wait for. Where this one hears itself, it is one of them.
            subject: count only those that let this subject through.
            timeout: seconds; None waits for ever, 0 only looks.

        Raises:
            Timeout: there were fewer in that time.
            SubjectError: the dialect does not allow the subject, or it is one of oz's own.
            ClosedError: the node is closed.
        """
        publisher: Any = self._publisher_for(subject)
        self._shell.check_may_wait()
        publisher.engine.wait_for_subscribers(n, subject, timeout)

    # asking ----------------------------------------------------------------------------------------------

    def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds to wait; None waits for ever.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            NoResponders: nobody on the bus has a subscription for the subject; known at once.
            ReplyError: a handler raised, and had not answered; known at once.
            Timeout: nobody has answered in that time.
            ValueError: `timeout` is nan.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        return self._shell.requester.ask(subject, payload, timeout, headers, key)

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Iterator[Message]:
        """Ask, and give the answers as they come, until the time is over or there are so many.

        That a handler raised counts as its answer, and is told when all others have come.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds from now on; None waits for ever.
            limit: answers to wait for, at least 1; None takes all that come in that time.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            ValueError, TypeError: `limit` is no such number, or `timeout` is nan.
            NoResponders, ReplyError, Timeout: as `request`; Timeout only when nobody has answered at all.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        if limit is not None:
            check_count("limit", limit, 1, 2**63)
        return self._shell.requester.ask_many(subject, payload, timeout, limit, headers, key)

    # subscribing -----------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self, pattern: Patterns, *, handler: None = None, dialect: str | None = None,
        group: str | None = None, policy: Policy = "round_robin", overflow: Overflow = None,
        max_pending: int | None = None, last_value: bool = False, max_messages: int | None = None,
        concurrency: int = 1, order_by: str | None = None,
    ) -> ReceivedSubscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, pattern: Patterns, *, handler: Handler, dialect: str | None = None, group: str | None = None,
        policy: Policy = "round_robin", overflow: Overflow = None, max_pending: int | None = None,
        last_value: bool = False, max_messages: int | None = None, concurrency: int = 1,
        order_by: str | None = None, inline: bool = False,
    ) -> NodeSubscription: ...  # fmt: skip

    def subscribe(
        self, pattern: Patterns, *, handler: Handler | None = None, dialect: str | None = None,
        group: str | None = None, policy: Policy = "round_robin", overflow: Overflow = None,
        max_pending: int | None = None, last_value: bool = False, max_messages: int | None = None,
        concurrency: int = 1, order_by: str | None = None, inline: bool = False,
    ) -> Any:  # fmt: skip
        """Ask for the messages whose subject matches.

        Wildcards at the start of a pattern pass by subjects that begin with `_`; advisories are had by
        `"_OZ.ADVISORY.>"`.

        Args:
            pattern: text or bytes in the dialect, an `oz.Pattern`, or a list of them; "" is everything. Text
                may name its dialect before a colon, as in `rv:Foo.*`, unless the node's dialect is zmq.
            handler: is called with each message, on the pool; without it messages are had by the
                subscription's `receive` and by iterating over it.
            dialect: that of the pattern, if it is another than the node's; no name is read then.
            group: a queue group: of its members on the bus one gets each message.
            policy: which one: `"round_robin"`, `"sticky"` or `"failover"`.
            overflow: what happens to messages beyond `max_pending`, which come faster than they are handled:
                `"drop_newest"`, as with None, `"drop_oldest"`, or `"conflate"`: the newest of each subject
                stays.
            max_pending: messages, or subjects with `overflow="conflate"`, that may wait for the handler, and
                with an `overflow` at each publisher; from 1 to 2**32 - 1, 65,536 unless said otherwise.
            last_value: first give the newest message of each subject that matches, of the nodes that are made
                with `last_value=True`.
            max_messages: end the subscription after so many.
            concurrency: messages that may be handled at the same time.
            order_by: `"subject"` keeps those of one subject in order.
            inline: call the handler where the message arrives, on the node's own thread, and not on the pool:
                for one that takes a few microseconds and waits for nothing, as all else that the node does
                waits for it. What would wait for an answer or for peers raises `OwnershipError` in there.

        Returns:
            The subscription: `unsubscribe()` ends it. Without a handler it is an `oz.ReceivedSubscription`.

        Raises:
            PatternError: the dialect does not allow the pattern, or applications may not have it.
            ValueError, TypeError: an argument makes no sense.
            ClosedError: the node is closed.
        """
        self._engine.check_open()
        arguments = SubscribeArguments(
            pattern=pattern, dialect=dialect, default=self.configuration.dialect,
            handler=handler, group=group, policy=policy, overflow=overflow, max_pending=max_pending,
            last_value=last_value,
            max_messages=max_messages, concurrency=concurrency, order_by=order_by, inline=inline,
        )  # fmt: skip
        return self._engine.subscriptions.subscribe(arguments, self._shell.drain)

    # presence --------------------------------------------------------------------------------------------

    @property
    def peers(self) -> list[Announcement]:
        """The nodes that are up and connected, this one not among them."""
        return [] if self._engine.is_closed else self._shell.call(lambda: self._engine.membership.up)

    def wait_for_peers(self, wanted: int | str | Iterable[str] = 1, timeout: float | None = None) -> None:
        """Wait until peers are up.

        Args:
            wanted: how many, or the name of one, or several names.
            timeout: seconds; None waits for ever.

        Raises:
            Timeout: they were not in that time; says who is missing.
            PermissionDenied: somebody that `peers=` names refuses this node, or is refused by it.
            ClosedError: the node is closed.
        """
        self._shell.wait(self._engine.readiness.missing_peers(wanted), timeout)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every peer that is known can be spoken with both ways.

        Then all that they had subscribed to when this was called is known here, so that what this node
        publishes reaches them and `request` finds who answers; and they know what this node has subscribed
        to.

        A peer that `peers=` names is waited for until it has answered, for one second at most after this node
        was made.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            Timeout: something is missing after that time; says what.
            PermissionDenied: with keys, a peer that `peers=` names does not trust the key of this node.
            ClosedError: the node is closed.
        """
        self._shell.wait(self._engine.readiness.unready(), timeout)

    @property
    def stats(self) -> NodeStats:
        """The counts of this node so far; see `NodeStats`."""
        return self._engine.count()

    # closing ---------------------------------------------------------------------------------------------

    def close(self, drain: bool = True, timeout: float | None = 5.0) -> None:
        """Leave the bus. A second call does nothing. It never takes much longer than it may.

        Args:
            drain: first stop asking, have handlers handle what has come, and send what they publish.
            timeout: seconds for all of it; None waits for as long as it takes.

        In a signal handler that interrupts `publish` it returns at once, and a thread goes on with it.
        """
        self._shell.close(drain=drain, timeout=timeout)

    def __repr__(self) -> str:
        """Show name, bus and state."""
        return self._engine.described()

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close; cut short by Ctrl-C, at once, as nobody else would."""
        try:
            self.close()
        except BaseException:
            self._shell.give_up()
            raise
