"""Reasons why permissions deny an action."""

from __future__ import annotations

from oz.errors import PermissionDenied


class Denial(str):
    """Text that states why permissions deny an action.

    Attributes:
        rule: rule that denies the action, with its line in the permission file; None if no rule does.
        subject: example of a denied subject; None if no example is known.
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
        """Return the error that the subscriber raises."""
        return PermissionDenied(
            f"a publisher refuses the subscription: {self}", rule=self.rule, subject=self.subject
        )
