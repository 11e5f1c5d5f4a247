"""Regular expressions as subjects, the way of the original OZ.

Source: OZ, "Publish/Subscribe": "a prefix (the non-wildcarded portion of the subject) … and a regex".
Matched from start to end; `$` is the very end, never before a last newline. The syntax is that of the
`regex` package, which is also the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import regex

from oz.errors import PatternError
from oz.subjects.dialects.base import Compiled, Dialect, Form
from oz.subjects.expressions import Expression, Text
from oz.subjects.prefix import literal_prefixes
from oz.subjects.regexes import read_regex, regex_text
from oz.subjects.rewrite import for_engine

# These have one number in both packages; re.A and re.DEBUG mean V1 and A to regex.
_SHARED_FLAGS = int(regex.I | regex.L | regex.M | regex.S | regex.U | regex.X)


def flags_of(pattern: re.Pattern[str] | regex.Pattern[str]) -> int:
    """Return the flags of a compiled pattern as `regex` counts them."""
    if isinstance(pattern, regex.Pattern):
        return pattern.flags
    return (pattern.flags & _SHARED_FLAGS) | (int(regex.A) if pattern.flags & re.A else 0)


class Regular(Dialect):
    """The regex dialect."""

    name = "regex"
    number = 8
    form = Form.REGEX
    wildcards = "*+?[(|"

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a regex without flags; see `Dialect.compile`."""
        assert isinstance(text, str)
        return self.compile_flags(text, 0)

    def expression(self, text: str | bytes, compiled: Compiled) -> Expression:
        """Read the regex; see `Dialect.expression`."""
        assert isinstance(text, str)
        assert compiled.regex is not None
        return read_regex(text, compiled.regex.flags)

    def literal_text(self, text: bytes) -> str:
        """Escape what means something in a regex."""
        return regex_text(Text(text)).removeprefix("(?s)")

    def compile_flags(self, text: str, flags: int, named_lists: Mapping[str, Any] | None = None) -> Compiled:
        r"""Compile a regex with flags of `regex` (not of `re`: some have other numbers there).

        Args:
            text: the regex.
            flags: such as `regex.I`.
            named_lists: the words behind each `\L<name>`.

        Raises:
            PatternError: the `regex` package does not take it, or its meaning cannot be had exactly.
        """
        try:
            exact = self._for_engine(text, flags, named_lists)
            self._refuse_unbounded_lookbehind(text, flags)
            compiled = regex.compile(exact, flags, **(named_lists or {}))
        except regex.error as error:
            raise PatternError(self.name, text, getattr(error, "pos", None) or 0, str(error)) from None
        except (RecursionError, OverflowError, ValueError, MemoryError) as error:
            if isinstance(error, PatternError):
                raise
            raise PatternError(self.name, text, 0, f"the regex engine refuses it: {error}") from None
        found = literal_prefixes(exact, flags)
        return Compiled(
            regex=compiled, prefixes=found.heads, literal=found.literal, timed=found.literal is None
        )

    def _for_engine(self, text: str, flags: int, named_lists: Mapping[str, Any] | None) -> str:
        try:
            return for_engine(text, flags, named_lists)
        except ValueError as error:
            raise PatternError(self.name, text, 0, str(error)) from None

    def _refuse_unbounded_lookbehind(self, text: str, flags: int) -> None:
        """Refuse a look-behind of no fixed width: only this engine knows it, not re, POSIX or Java.

        The same pattern must mean the same in a Spark query, and the vectors call it invalid.
        """
        if "(?<=" not in text and "(?<!" not in text:
            return
        try:
            re.compile(text, flags & _SHARED_FLAGS)
        except re.error as error:
            if "look-behind" in error.msg:
                raise PatternError(self.name, text, error.pos or 0, error.msg) from None
        except (ValueError, RecursionError, OverflowError):
            return
