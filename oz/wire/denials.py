"""The reason for which a key may not have what it asked for, as an answer carries it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oz.errors import PermissionDenied


class Denial(str):
    """The reason in words, and what it stands on.

    Attributes:
        rule: the rule that decided, and where it is written; None where none did.
        subject: one that was asked for and must not be had; None where none can be named.
    """

    __slots__ = ("rule", "subject")

    rule: str | None
    subject: str | None

    def __new__(cls, reason: str, rule: str | None = None, subject: str | None = None) -> Denial:
        """Make one of its parts."""
        made = super().__new__(cls, reason)
        made.rule, made.subject = rule, subject
        return made

    def error(self) -> PermissionDenied:
        """Make the error for the subscriber."""
        return PermissionDenied(f"a publisher refuses it: {self}", rule=self.rule, subject=self.subject)


def fields_of(refused: Mapping[int, str]) -> dict[int, tuple[str | None, str | None]]:
    """Return what an answer says of denials beside their reasons.

    Args:
        refused: reasons, by the number of a chunk.
    """
    return {
        number: (reason.rule, reason.subject)
        for number, reason in refused.items()
        if isinstance(reason, Denial)
    }


def are_fields(value: Any) -> bool:
    """Tell whether a value is what `fields_of` returns, after it has travelled."""
    return type(value) is dict and all(
        type(number) is int
        and type(pair) is list
        and len(pair) == 2
        and all(one is None or type(one) is str for one in pair)
        for number, pair in value.items()
    )


def restored(reason: str, number: int, denied: Mapping[int, Any]) -> str:
    """Return the reason of a chunk as what it was: a denial where the answer says so."""
    pair = denied.get(number)
    return reason if pair is None else Denial(reason, pair[0], pair[1])
