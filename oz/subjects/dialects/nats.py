"""NATS subjects: the default dialect.

Source: NATS documentation, "Subject-Based Messaging"; answers of a nats-server in tests/vectors.
"""

from __future__ import annotations

import re

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects.base import Token
from oz.subjects.dialects.tokens import TokenDialect

# The NATS documentation forbids white space. IsValidSubject of nats-server refuses these five characters, and allows a
# vertical tab. A running server (2.15.1, plain and pedantic) accepts a form feed nevertheless; see docs/subjects.md.
WHITE_SPACE = frozenset(" \t\n\r\f")

_is_ordinary = re.compile(r"(?:[^ \t\n\r\f.*>]++\.)*+[^ \t\n\r\f.*>]++").fullmatch
"""Match a subject without white space, `*`, `>` and empty tokens. This check is fast, and most subjects pass it."""


class Nats(TokenDialect):
    """NATS dialect.

    `*` matches one token, and a last `>` one or more tokens. Inside a longer token, both are literals.
    """

    name = "nats"

    def check_pattern_text(self, text: str) -> None:
        """Refuse white space, which the NATS protocol uses as a separator."""
        for position, char in enumerate(text):
            if char in WHITE_SPACE:
                raise PatternError(self.name, text, position, "white space is not allowed")

    def partial(self, token: str, position: int, text: str) -> Token:
        """Return the text as a literal, as nats-server reads it."""
        return token.encode()

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse white space, empty tokens and wildcard tokens."""
        assert isinstance(subject, str)
        if _is_ordinary(subject):
            return
        for position, char in enumerate(subject):
            if char in WHITE_SPACE:
                raise SubjectError(self.name, subject, position, "white space is not allowed")
        self.check_tokens(subject)
        self.check_no_wildcard(subject)
