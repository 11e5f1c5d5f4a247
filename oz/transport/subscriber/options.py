"""The engine of a subscriber with publisher-side filtering."""

from __future__ import annotations

from typing import Any

import zmq

from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.publish_access import PublishAccess
from oz.protocol.subscriber.streams import Streams
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.frames import FrameReader, frame_reader
from oz.transport.guard import Guard
from oz.transport.peer_keys import KeyedReader, PeerKeys
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.engine import SubscriberEngine
from oz.transport.subscriber.links import CAN_TELL, PublisherLinks
from oz.transport.subscriber.routed import RoutedReceivePath
from oz.wire.codec import Codec


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


def reader_for(socket: zmq.Socket[Any], receiver: BatchDecoder, attachments: Attachments) -> FrameReader:
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
