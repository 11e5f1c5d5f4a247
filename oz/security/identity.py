"""Public keys, and ids of nodes that begin with the hash of a key.

See docs/decisions/063-keys-of-connections.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

UUID_SIZE = 16

KEY_SIZE = 40
"""Number of characters of a Z85 key. Source: ZeroMQ RFC 32."""

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_Z85)}
_GROUP, _MAX_VALUE = (
    5,
    0xFFFFFFFF,
)  # Characters that encode four bytes, and the largest number that they may encode.

_HASH_SIZE = 10
"""Number of bytes of the hash at the start of an id. An attacker cannot find two keys with the same hash."""

_CACHED = (
    1_024  # Number of keys whose hash is cached. Each first message of a node and each request needs a hash.
)


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key: 40 characters of Z85 that encode 32 bytes."""
    if len(text) != KEY_SIZE or not _VALUES.keys() >= set(text):
        return False
    for at in range(0, KEY_SIZE, _GROUP):
        number = 0
        for character in text[at : at + _GROUP]:
            number = number * len(_Z85) + _VALUES[character]
        if number > _MAX_VALUE:
            return False
    return True


def make_uuid_of(key: str, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a new id for a node or a session. The id belongs to a key.

    Args:
        key: public key in Z85.
        random_bytes: function that returns a given number of random bytes.
    """
    return _hash(key) + random_bytes(UUID_SIZE - _HASH_SIZE)


def is_of(uuid: bytes, key: str) -> bool:
    """Return whether an id belongs to a public key."""
    return len(uuid) == UUID_SIZE and uuid.startswith(_hash(key))


def is_same_key(uuid: bytes | None, other: bytes | None) -> bool:
    """Return whether two ids belong to the same key."""
    return uuid is not None and other is not None and uuid[:_HASH_SIZE] == other[:_HASH_SIZE]


@lru_cache(_CACHED)
def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=_HASH_SIZE).digest()
