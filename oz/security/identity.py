"""Identities: the uuid of a node with keys is made from its public key, so that all can tell whose it is.

docs/decisions/064-keys-of-nodes.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

UUID_SIZE = 16

_HASH_SIZE = 10
"""Bytes of a uuid that come from the key: nobody finds another key that has the same."""


def make_uuid_of(key: str, random_bytes: Callable[[int], bytes]) -> bytes:
    """Name a node that has a key: the last byte is even, so that both its publishers have names.

    Args:
        key: its public key, in Z85.
        random_bytes: gives so many.
    """
    drawn = random_bytes(UUID_SIZE - _HASH_SIZE)
    return _hash(key) + drawn[:-1] + bytes((drawn[-1] & 0xFE,))


def is_of(uuid: bytes, key: str) -> bool:
    """Tell whether a node, or one of its publishers, is of somebody who has a public key."""
    return len(uuid) == UUID_SIZE and uuid.startswith(_hash(key))


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=_HASH_SIZE).digest()
