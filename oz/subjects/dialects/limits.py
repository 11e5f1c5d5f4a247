"""The limit of a text that has to fit a length field of a wire protocol."""

from __future__ import annotations

from oz.errors import PatternError, SubjectError


def check_bytes(dialect: str, text: str, most: int, error: type[PatternError | SubjectError]) -> None:
    """Refuse text whose UTF-8 is longer than a dialect allows.

    Raises:
        PatternError, SubjectError: it is; `error` says which. Its position is the first character too many.
    """
    encoded = text.encode()
    if len(encoded) > most:
        position = len(encoded[:most].decode("utf-8", "ignore"))
        raise error(dialect, text, position, f"{len(encoded)} bytes; at most {most} are allowed")
