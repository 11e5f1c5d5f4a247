"""Rai MS subjects.

There is one dialect for plain subscriptions, and one for each of the two kinds of pattern subscriptions.

Source: Rai MS, "Subject Schema".
"""

from __future__ import annotations

from typing import Any

import regex

from oz.subjects.dialects import literals
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form, Token
from oz.subjects.dialects.globs import Glob, GlobDialect
from oz.subjects.dialects.tokens import TokenDialect
from oz.subjects.expressions import Expression, Text


class RaimsSub(Dialect):
    """Dialect of plain subscriptions: any bytes, without wildcards."""

    name = "raims.sub"
    form = Form.LITERAL
    is_bytes = True

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Compile a literal; see `Dialect.compile`."""
        assert isinstance(text, bytes)
        return CompiledPattern(regex=None, prefixes=(text,), literal=text)

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a literal; see `Dialect.make_regex`."""
        return regex.compile(literals.literal_regex(compiled.literal or b""))

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a literal; see `Dialect.expression`."""
        return Text(compiled.literal or b"")


class RaimsRv(TokenDialect):
    """Dialect of pattern subscriptions in Rendezvous style. A wildcard inside a longer segment is a literal."""

    name = "raims.rv"

    def partial(self, token: str, position: int, text: str) -> Token:
        """Return the text as a literal, because a wildcard must be a whole segment (rule 2)."""
        return token.encode()

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse empty segments (RV rule 1). A wildcard is allowed (rule 3)."""
        assert isinstance(subject, str)
        self.check_tokens(subject)


class RaimsGlob(GlobDialect):
    """Dialect of pattern subscriptions in Redis style. Unlike in Redis, `?` matches zero bytes or one byte."""

    name = "raims.glob"
    question = Glob.MAYBE
