"""Checks that the id of a node, a publisher or an inbox belongs to a key.

With keys, the first bytes of the id of a node are a hash of its public key (`oz.security.identity`). The listening node
checks the id in a HELLO, the dialling node checks the id in a WELCOME, and a responder checks the inbox of each
request. `oz.node.roster` explains cards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from oz.errors import ProtocolError
from oz.node.requests import inbox_node
from oz.security.identity import is_of
from oz.wire import links
from oz.wire.links import Card, Hello

if TYPE_CHECKING:
    from oz.subscriber.keys import SubscriberKeys
    from oz.subscriber.link import Link


@lru_cache(maxsize=256)
def decode_card(card: bytes) -> Card | None:
    """Return a decoded card; None if the encoded card is empty or malformed.

    Results are cached, because a node decodes the card of a peer about eight times while the peer joins.
    """
    try:
        return links.decode_card(card) if card else None
    except ProtocolError:
        return None


def refuse_hello(hello: Hello, user: str | None, own: Card, *, is_own: bool) -> int | None:
    """Return the reason for which this node answers a HELLO with BYE; None if the peer may have a session.

    Args:
        hello: HELLO of the peer. The HELLO of an ordinary subscriber has no card.
        user: public key of the sender; None without keys.
        own: card of this node.
        is_own: whether the session belongs to the link of the node to itself.
    """
    if not hello.card:
        return None
    card = decode_card(hello.card)
    if card is None:
        return links.MALFORMED
    if not card.shares_bus(own):
        return links.OTHER_BUS
    if card.node != hello.member:
        return links.MALFORMED
    if user is not None and not is_of(card.node, user):
        return links.KEY_REFUSED
    return links.OWN_ID if card.node == own.node and not is_own else None


def card_of_link(link: Link, keys: SubscriberKeys | None, endpoint: str) -> Card | None:
    """Return the card in the WELCOME of a link. Return None without a card, or if the id of the card is false.

    The id must be the origin of the link. With keys, it must also belong to the key of the publisher.

    Args:
        link: link that has received a WELCOME.
        keys: keys of the publishers; None without security.
        endpoint: endpoint that the link dials.
    """
    card = decode_card(link.card)
    if card is None or card.node != link.origin:
        return None
    if keys is not None:
        key = keys.key_of(endpoint)
        if key is None or not is_of(card.node, key):
            return None
    return card


class NodeRules:
    """Rules that a node applies to peers with keys, even without a file of permissions; see `PublisherRules`."""

    @staticmethod
    def owns(key: str, origin: bytes) -> bool:
        """Return whether the id of a node was made from a key."""
        return is_of(origin, key)

    @staticmethod
    def may_ask(key: str, reply_to: str) -> bool:
        """Return whether an inbox belongs to a key."""
        node = inbox_node(reply_to)
        return node is not None and is_of(node, key)
