"""Redis channel patterns, as PSUBSCRIBE reads them.

Source: Redis documentation, PSUBSCRIBE; Redis 7.0, util.c, stringmatchlen.
"""

from __future__ import annotations

from oz.subjects.dialects import globs
from oz.subjects.dialects.base import Compiled, Dialect


class Redis(Dialect):
    """Bytes; `*` zero or more, `?` exactly one byte, `[..]`, `[^..]`, ranges, and a backslash escapes."""

    name = "redis"
    is_bytes = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a glob; every byte string is a valid one. See `Dialect.compile`."""
        assert isinstance(text, bytes)
        return globs.compile_glob(globs.parse(text, question=globs.ANY_BYTE))
