"""Regular expressions as subjects, the way of the original OZ.

Source: OZ, "Publish/Subscribe": "a prefix (the non-wildcarded portion of the subject) … and a regex".
Matched from start to end; `$` is the very end, never before a last newline. The syntax is that of the
`regex` package, which is also the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import regex

from oz.errors import PatternError
from oz.subjects.dialects.base import Compiled, Dialect
from oz.subjects.dollar import dollar_means_end
from oz.subjects.prefix import literal_prefixes


class Regular(Dialect):
    """The regex dialect."""

    name = "regex"

    def compile(self, text: str | bytes, *, lenient: bool = False) -> Compiled:
        """Compile a regex without flags; see `Dialect.compile`."""
        assert isinstance(text, str)
        return self.compile_flags(text, 0)

    def compile_flags(self, text: str, flags: int, named_lists: Mapping[str, Any] | None = None) -> Compiled:
        r"""Compile a regex with the flags of `re` or `regex` (`re.I`, …) and the words behind each `\L<name>`.

        Raises:
            PatternError: the `regex` package does not take it.
        """
        try:
            compiled = regex.compile(dollar_means_end(text, flags), flags, **(named_lists or {}))
        except regex.error as error:
            raise PatternError(self.name, text, error.pos or 0, error.msg) from None
        except (RecursionError, OverflowError, ValueError) as error:
            raise PatternError(self.name, text, 0, f"the regex engine refuses it: {error}") from None
        found = literal_prefixes(text, flags)
        return Compiled(regex=compiled, prefixes=found.heads, literal=found.literal, timed=found.literal is None)
