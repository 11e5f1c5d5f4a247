"""The options of a subscriber, checked, and the engine that comes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import zmq

from oz.protocol.multicast.options import Multicast
from oz.protocol.multicast.receiver import MulticastReceiver
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.publish_access import PublishAccess
from oz.protocol.subscriber.receiver import PrefixReceiver, SplittingReceiver
from oz.protocol.subscriber.streams import Streams
from oz.security.limits import DEFAULT_LIMITS, Limits, check_limits
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.frames import FrameReader, frame_reader
from oz.transport.guard import Guard
from oz.transport.multicast.group import MulticastGroup, group_for
from oz.transport.multicast.receiver import Listening, OnAdvisory
from oz.transport.option_checks import Filtering, check_advisory, check_filtering, check_multicast
from oz.transport.peer_keys import KeyedReader, PeerKeys
from oz.transport.socket import (
    CLOSE_TIMEOUT,
    check_delimiter,
    keep_tcp_alive,
    limit_peers,
    set_high_water_mark,
)
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.engine import SubscriberEngine
from oz.transport.subscriber.links import CAN_TELL, PublisherLinks
from oz.transport.subscriber.receiver import ReceivePath
from oz.transport.subscriber.routed import RoutedReceivePath
from oz.wire.codec import Codec, find_codec

ROUTED_HIGH_WATER_MARK = 1_000
"""Batches, of 64 KiB mostly, that may wait at a subscriber for each publisher, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    """The options that a subscriber was made with; see `oz.Subscriber`.

    Attributes:
        codec: decodes payloads.
        delimiter: what stands between subject and payload of messages of one frame.
        group: the endpoints and options of multicast.
        is_routed: publishers filter.
        shared: patterns have keys that subscribers have in common.
        dedupe: repeats are dropped.
        on_gap: called with each `oz.Gap`.
        on_advisory: called with each `oz.Advisory`.
        limits: how much publishers may send.
    """

    codec: Codec | None
    delimiter: bytes | None
    group: MulticastGroup | None
    is_routed: bool
    shared: bool
    dedupe: bool
    on_gap: OnGap | None
    on_advisory: OnAdvisory | None
    limits: Limits = DEFAULT_LIMITS

    @property
    def filtering(self) -> str:
        """The way it filters: as `Subscriber(filtering=…)` says, or `multicast`."""
        if self.group is not None:
            return "multicast"
        return "publisher" if self.is_routed else "prefix"

    @property
    def is_plain(self) -> bool:
        """Whether messages come as any ZeroMQ publisher sends them."""
        return not self.is_routed and (self.group is None or self.group.is_plain)

    def configure(self, socket: zmq.Socket[Any], high_water_mark: int | None, *, own_context: bool) -> None:
        """Set the options of a SUB before it has an endpoint.

        Args:
            socket: the socket.
            high_water_mark: what may wait for each publisher; None for the default.
            own_context: whether its context is oz's own.

        Raises:
            ValueError: the mark is out of bounds.
        """
        if own_context:
            socket.set(zmq.LINGER, round(CLOSE_TIMEOUT * 1000))
        keep_tcp_alive(socket)
        limit_peers(socket, self.limits)
        if self.is_routed and high_water_mark is None and own_context:
            high_water_mark = ROUTED_HIGH_WATER_MARK
        set_high_water_mark(socket, high_water_mark, own_context=own_context)
        # A SUB forwards only so many subscriptions in a burst, and silently drops the rest.
        socket.set(zmq.SNDHWM, 0)
        if self.group is not None:
            self.group.configure(socket)

    def make_engine(
        self, socket: zmq.Socket[Any], guard: Guard, attachments: Attachments
    ) -> SubscriberEngine:
        """Make the engine.

        Args:
            socket: a SUB.
            guard: its guard.
            attachments: its endpoints, and its keys.
        """
        if self.is_routed:
            streams = Streams(backend_of(socket).random_bytes, dedupe=self.dedupe)
            return make_routed_engine(
                socket, guard, self.codec, streams, self.on_gap, attachments=attachments, limits=self.limits
            )
        if self.group is not None and not self.is_plain:
            return self._make_multicast_engine(socket, guard, self.group)
        receiver = (
            PrefixReceiver(self.codec)
            if self.delimiter is None
            else SplittingReceiver(self.delimiter, self.codec)
        )
        reader, declarer = reader_for(socket, receiver, attachments), Declarer(socket, guard, receiver)
        if isinstance(reader, KeyedReader):
            reader.seconds_left = declarer.seconds_left
        return SubscriberEngine(declarer, ReceivePath(guard, backend_of(socket), reader, receiver))

    def _make_multicast_engine(
        self, socket: zmq.Socket[Any], guard: Guard, group: MulticastGroup
    ) -> SubscriberEngine:
        receiver = MulticastReceiver(
            Streams(backend_of(socket).random_bytes, dedupe=self.dedupe),
            self.codec,
            self.on_gap,
            self.limits,
        )
        listening = Listening(group, receiver, self.on_advisory)
        declarer = Declarer(socket, guard, receiver, listening=listening)
        path = RoutedReceivePath(guard, backend_of(socket), frame_reader(socket), receiver, declarer)
        return SubscriberEngine(declarer, path)


def check_options(
    endpoints: tuple[Any, Any],
    *,
    codec: str | Codec | None,
    delimiter: bytes | None,
    filtering: Filtering,
    shared: bool,
    dedupe: bool,
    on_gap: OnGap | None,
    multicast: Multicast | None,
    plain: bool,
    on_advisory: OnAdvisory | None,
    limits: Limits = DEFAULT_LIMITS,
) -> SubscriberOptions:
    """Check the options of a subscriber; see `oz.Subscriber`.

    Args:
        endpoints: what to connect to, and what to bind to.
        codec: decodes payloads, or its name.
        delimiter: what stands between subject and payload of messages of one frame.
        filtering: `"prefix"` or `"publisher"`.
        shared: patterns have keys that subscribers have in common.
        dedupe: repeats are dropped.
        on_gap: called with each `oz.Gap`.
        multicast: how to listen to multicast.
        plain: messages that are multicast are ordinary ones of ZeroMQ.
        on_advisory: called with each `oz.Advisory`.
        limits: how much publishers may send.

    Raises:
        TypeError: the limits are none.
        ValueError: one of them is no such thing, or does not go with another.
    """
    check_limits(limits)
    found, ends = find_codec(codec), check_delimiter(delimiter)
    group = group_for(endpoints, multicast, is_plain=plain, is_publisher=False)
    is_framed = group is not None and not group.is_plain
    check_advisory(on_advisory, is_framed=is_framed, is_plain=plain)
    if is_framed:
        check_multicast(filtering, shared=shared, on_gap=on_gap, delimiter=ends)
    is_routed = not is_framed and check_filtering(
        filtering, shared=shared, dedupe=dedupe, on_gap=on_gap, delimiter=ends
    )
    if is_routed and group is not None:
        raise ValueError('multicast has no way back to the publisher: no filtering="publisher"')
    return SubscriberOptions(found, ends, group, is_routed, shared, dedupe, on_gap, on_advisory, limits)


def make_routed_engine(
    socket: zmq.Socket[Any],
    guard: Guard,
    codec: Codec | None,
    streams: Streams,
    on_gap: OnGap | None,
    *,
    attachments: Attachments,
    watches_links: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> SubscriberEngine:
    """Make the engine of a subscriber with publisher-side filtering.

    Args:
        socket: a SUB.
        guard: its guard.
        codec: decodes payloads.
        streams: without subscriptions.
        on_gap: called with each `oz.Gap`.
        attachments: its endpoints, and its keys.
        watches_links: whether to look after connections; False where others do.
        limits: how many publishers are kept in mind.
    """
    decoder = BatchDecoder(streams, codec, on_gap, limits)
    links = PublisherLinks(decoder, backend_of(socket).inode) if watches_links and CAN_TELL else None
    declarer = Declarer(socket, guard, decoder, streams=streams, links=links)
    reader = reader_for(socket, decoder, attachments)
    return SubscriberEngine(
        declarer, RoutedReceivePath(guard, backend_of(socket), reader, decoder, declarer, links)
    )


def reader_for(
    socket: zmq.Socket[Any], receiver: PrefixReceiver | BatchDecoder, attachments: Attachments
) -> FrameReader:
    """Make what reads the messages of a subscriber; with keys, the receiver asks who may publish what.

    Args:
        socket: a SUB.
        receiver: takes the messages in.
        attachments: its endpoints, and its keys.
    """
    credentials = attachments.credentials
    if credentials is None:
        return frame_reader(socket)
    receiver.access = PublishAccess(credentials.rights, receiver.stats)
    backend = backend_of(socket)
    return KeyedReader(PeerKeys(attachments, backend), receiver.access, backend)
