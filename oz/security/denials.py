"""Denial: the reason why a key may not have a subscription."""

from __future__ import annotations

from oz.errors import PermissionDenied


class Denial(str):
    """Reason of a denial, in words.

    Attributes:
        rule: rule that decided, with its line in the permission file; None without a rule.
        subject: example of a denied subject that the subscription matches; None without an example.
    """

    __slots__ = ("rule", "subject")

    rule: str | None
    subject: str | None

    def __new__(cls, reason: str, rule: str | None = None, subject: str | None = None) -> Denial:
        """Create a denial."""
        made = super().__new__(cls, reason)
        made.rule, made.subject = rule, subject
        return made

    def error(self) -> PermissionDenied:
        """Return the error for the subscriber."""
        return PermissionDenied(f"a publisher refuses it: {self}", rule=self.rule, subject=self.subject)
