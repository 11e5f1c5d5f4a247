"""Redis channel patterns, as PSUBSCRIBE reads them.

Source: Redis documentation, PSUBSCRIBE; Redis 7.0, util.c, stringmatchlen.
"""

from __future__ import annotations

from oz.subjects.dialects.globs import ANY_BYTE, GlobDialect


class Redis(GlobDialect):
    """Dialect of globs with `*` for any bytes, `?` for one byte, `[..]`, `[^..]`, ranges, and backslash as escape."""

    name = "redis"
    question = ANY_BYTE
