"""Rai MS subjects: subscribing and pattern subscribing are different operators.

Source: Rai MS, "Subject Schema".
"""

from __future__ import annotations

from typing import Any

import regex

from oz.subjects.dialects import literals
from oz.subjects.dialects.base import Compiled, Dialect, Form, Token
from oz.subjects.dialects.globs import Glob, GlobDialect
from oz.subjects.dialects.tokens import TokenDialect
from oz.subjects.expressions import Expression, Text


class RaimsSub(Dialect):
    """Subscribing: any bytes, never a wildcard."""

    name = "raims.sub"
    form = Form.LITERAL
    is_bytes = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a literal; see `Dialect.compile`."""
        assert isinstance(text, bytes)
        return Compiled(regex=None, prefixes=(text,), literal=text)

    def make_regex(self, compiled: Compiled) -> regex.Pattern[Any]:
        """Write the regex of a literal; see `Dialect.make_regex`."""
        return regex.compile(literals.literal(compiled.literal or b""))

    def expression(self, text: str | bytes, compiled: Compiled) -> Expression:
        """Return the literal; see `Dialect.expression`."""
        return Text(compiled.literal or b"")


class RaimsRv(TokenDialect):
    """Pattern subscribing in Rendezvous style; a wildcard inside a longer segment is literal."""

    name = "raims.rv"

    def partial(self, token: str, position: int, text: str) -> Token:
        """Take it literally: a wildcard substitutes for whole segments only (rule 2)."""
        return token.encode()

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse empty segments (RV rule 1); a wildcard is sent as a normal subject (rule 3)."""
        assert isinstance(subject, str)
        self.check_tokens(subject)


class RaimsGlob(GlobDialect):
    """Pattern subscribing in Redis style, but that `?` stands for zero bytes or one."""

    name = "raims.glob"
    question = Glob.MAYBE
