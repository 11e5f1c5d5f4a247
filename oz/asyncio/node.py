"""The node for asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Self, overload

from oz.asyncio.node_engine import LoopNode
from oz.asyncio.subscriptions import NodeSubscription, ReceivedSubscription
from oz.asyncio.waiting import Handler
from oz.message import Extras, Message
from oz.numbers import check_count
from oz.options import Limits
from oz.protocol.node.subscription import NodeStats
from oz.subjects.pattern import Patterns
from oz.transport.node.opening import NodeSettings, OnPeer, node_settings
from oz.transport.node.subscriptions import SubscribeArguments
from oz.transport.option_checks import Overflow, Policy
from oz.transport.publisher.options import OnFull
from oz.transport.security import Security, resolve_security
from oz.wire.discovery import Announcement


class Node:
    """Joins a bus, as `oz.Node` does; for one loop.

    Handlers are plain or async functions. They run in tasks, in order for each subscription.
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
        """Prepare to join a bus: `start` does, or entering `async with`. The arguments are as of `oz.Node`.

        Raises:
            ConfigurationError: a setting makes no sense; says where it came from.
            ValueError: `on_full`, `full_timeout` or `high_water_mark` is out of bounds.
            TypeError: one of these is no number, or `on_peer` cannot be called.
            zmq.ZMQError: file descriptors are used up.
        """
        settings = node_settings(
            name=name, bus=bus, nameserver=nameserver, bind=bind, peers=peers, advertise=advertise,
            dialect=dialect, codec=codec, echo=echo, directory=directory, join_timeout=join_timeout,
            lost_after=lost_after, threads=threads, on_full=on_full, full_timeout=full_timeout,
            high_water_mark=high_water_mark, last_value=last_value, limits=limits,
            error_replies=error_replies, on_peer=on_peer, security=self._find_security(security),
        )  # fmt: skip
        self.configuration = settings.configuration
        self.bus = settings.configuration.bus
        self.name = settings.name
        self._shell = self._make_shell(settings)
        self._engine = self._shell.engine
        self.uuid = self._engine.settings.uuid
        self._publisher_for = self._engine.publishing.publisher_for

    def _find_security(self, given: Security | None) -> Security | None:
        return resolve_security() if given is None else given

    def _make_shell(self, settings: NodeSettings) -> LoopNode:
        return LoopNode(settings)

    async def start(self) -> Self:
        """Join the bus; `async with` does it. A second call does nothing.

        Raises:
            NameserverUnavailable: no name server has answered in `join_timeout`.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        await self._shell.start()
        return self

    @property
    def announcement(self) -> Announcement:
        """The announcement of this node to others, once it has joined.

        Raises:
            ClosedError: it has not joined.
        """
        if not self._engine.has_joined:
            self._engine.check_open()
        return self._engine.sockets.announcement

    @property
    def endpoint(self) -> str | None:
        """The endpoint for the `peers=` of other nodes, with its port; see `oz.Node.endpoint`."""
        return self._engine.endpoint

    # publishing ------------------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message; see `oz.Node.publish`."""
        publisher: Any = self._publisher_for(subject)
        extras = None if headers is None is key is message_id else Extras(headers, None, message_id, key)
        await publisher.engine.publish(subject, payload, extras)

    async def flush(self) -> None:
        """Send now what waits for others to make a batch."""
        self._engine.publishing.flush()

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any node has asked for what a subject begins with; see `oz.Node.interest`."""
        return self._publisher_for(subject).interest(subject)

    async def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Node.wait_for_subscribers`."""
        publisher: Any = self._publisher_for(subject)
        await publisher.engine.wait_for_subscribers(n, subject, timeout)

    # asking ----------------------------------------------------------------------------------------------

    async def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer; see `oz.Node.request`."""
        return await self._shell.requester.ask(subject, payload, timeout, headers, key)

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Ask, and give the answers as they come; see `oz.Node.request_many`. For `async for`."""
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
        """Ask for the messages whose subject matches; see `oz.Node.subscribe`. Nothing is awaited.

        A handler is a plain or an async function; without one messages are had by the subscription's
        `receive` and by `async for`. An inline one has no task of its own, and may await only what is done at
        once, as `publish` and `message.reply` are.
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
        engine = self._engine
        return engine.membership.up if engine.has_joined and not engine.is_closed else []

    async def wait_for_peers(
        self, wanted: int | str | Iterable[str] = 1, timeout: float | None = None
    ) -> None:
        """Wait until peers are up; see `oz.Node.wait_for_peers`."""
        self._engine.check_open()
        await self._shell.wait(self._engine.readiness.missing_peers(wanted), timeout)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every peer that is known can be spoken with both ways; see `oz.Node.wait_ready`."""
        self._engine.check_open()
        await self._shell.wait(self._engine.readiness.unready(), timeout)

    @property
    def stats(self) -> NodeStats:
        """The counts of this node so far; see `NodeStats`."""
        return self._engine.count()

    # closing ---------------------------------------------------------------------------------------------

    async def close(self, drain: bool = True, timeout: float | None = 5.0) -> None:
        """Leave the bus; see `oz.Node.close`.

        Another loop may close it too. Once its own has ended nobody is there to handle what has come, and it
        leaves at once.
        """
        await self._shell.close(drain=drain, timeout=timeout)

    def __repr__(self) -> str:
        """Show name, bus and state."""
        return self._engine.described()

    async def __aenter__(self) -> Self:
        """Join."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Leave."""
        await self.close()
