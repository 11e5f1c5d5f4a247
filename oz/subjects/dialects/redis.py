"""Channel patterns of the Redis command PSUBSCRIBE.

Source: Redis documentation, PSUBSCRIBE; Redis 7.0, util.c, stringmatchlen.
"""

from __future__ import annotations

from oz.subjects.dialects.globs import ANY_BYTE, GlobDialect


class Redis(GlobDialect):
    """Redis dialect.

    `*` matches any bytes, `?` one byte, `[..]` and `[^..]` one byte of a class. A backslash escapes.
    """

    name = "redis"
    question = ANY_BYTE
