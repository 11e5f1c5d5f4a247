"""KubeMQ channels. They have the wildcards of NATS, and `foo*` for a token that begins with `foo`.

Source: KubeMQ documentation, "Terminology: Channel". In its table, `foo*.>` matches `foo.bar` and `foo1.bar`.
"""

from __future__ import annotations

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects.base import Stem, Token
from oz.subjects.dialects.tokens import TokenDialect

_WHITE_SPACE = regex.compile(r"\p{White_Space}")


class Kubemq(TokenDialect):
    """Dialect with the wildcards of nats and `foo*`. A published subject has no wildcard."""

    name = "kubemq"

    def check_pattern_text(self, text: str) -> None:
        """Refuse white space, including Unicode white space."""
        self._check_white_space(text, PatternError)

    def partial(self, token: str, position: int, text: str) -> Token:
        """Return a `Stem` if the token ends with `*`. Other wildcard characters inside a token are literals."""
        return Stem(token[:-1].encode()) if token.endswith("*") else token.encode()

    def stem_text(self, text: str) -> str:
        """Return the text with a `*`."""
        return text + "*"

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse white space, empty tokens, and `*` or `>` anywhere (KubeMQ's error 107)."""
        assert isinstance(subject, str)
        self._check_white_space(subject, SubjectError)
        self.check_tokens(subject)
        for position, char in enumerate(subject):
            if char in "*>":
                rule = f"{char!r} is for receivers only; messages are sent to a full channel"
                raise SubjectError(self.name, subject, position, rule)

    def _check_white_space(self, text: str, error: type[PatternError | SubjectError]) -> None:
        found = _WHITE_SPACE.search(text)
        if found:
            raise error(self.name, text, found.start(), "white space is not allowed")
