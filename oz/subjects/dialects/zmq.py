"""ZeroMQ's own filter: a plain prefix.

Source: zmq_setsockopt(3), ZMQ_SUBSCRIBE.
"""

from __future__ import annotations

from oz.subjects.dialects import globs
from oz.subjects.dialects.base import Compiled, Dialect


class Zmq(Dialect):
    """Any bytes; what begins with them matches."""

    name = "zmq"
    is_bytes = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a prefix; see `Dialect.compile`."""
        assert isinstance(text, bytes)
        return Compiled(regex=globs.compile_prefix(text), prefixes=(text,))
