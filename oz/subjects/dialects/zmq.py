"""Plain prefixes, as in a ZeroMQ subscription.

Source: zmq_setsockopt(3), ZMQ_SUBSCRIBE.
"""

from __future__ import annotations

from typing import Any

import regex

from oz.subjects.dialects import globs
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form
from oz.subjects.expressions import ANY_BYTE, Expression, Repeat, Seq, Text


class Zmq(Dialect):
    """Dialect of prefixes: a pattern is any byte string, and matches the subjects that begin with this string."""

    name = "zmq"
    form = Form.PREFIX
    is_bytes = True
    wildcards = ""

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Compile a prefix; see `Dialect.compile`."""
        assert isinstance(text, bytes)
        return CompiledPattern(regex=None, prefixes=(text,))

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a prefix; see `Dialect.make_regex`."""
        return globs.compile_prefix(compiled.prefixes[0])

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a prefix; see `Dialect.expression`."""
        return Seq((Text(compiled.prefixes[0]), Repeat(ANY_BYTE, 0, None)))
