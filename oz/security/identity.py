"""Identities: public keys, and the uuid of a node that is made from one, so that all can tell whose it is.

docs/decisions/080-keys-on-links.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

UUID_SIZE = 16

KEY_SIZE = 40
"""Characters of a key in Z85. Source: ZeroMQ RFC 32."""

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_Z85)}
_GROUP, _MOST = 5, 0xFFFFFFFF
"""Characters that are four bytes together, and the largest number that they may spell."""

_HASH_SIZE = 10
"""Bytes of a uuid that come from the key: nobody finds another key that has the same."""

_REMEMBERED = 1_024
"""Keys whose hashes are remembered: a node looks at all its peers whenever links come or go."""


def is_key(text: str) -> bool:
    """Tell whether a text can be a key: 40 characters of Z85 that spell 32 bytes."""
    if len(text) != KEY_SIZE or not _VALUES.keys() >= set(text):
        return False
    for at in range(0, KEY_SIZE, _GROUP):
        number = 0
        for character in text[at : at + _GROUP]:
            number = number * len(_Z85) + _VALUES[character]
        if number > _MOST:
            return False
    return True


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


def is_same_key(uuid: bytes | None, other: bytes | None) -> bool:
    """Return whether the ids of two nodes were made from one key."""
    return uuid is not None and other is not None and uuid[:_HASH_SIZE] == other[:_HASH_SIZE]


@lru_cache(_REMEMBERED)
def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=_HASH_SIZE).digest()
