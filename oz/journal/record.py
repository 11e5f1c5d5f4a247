"""The records of a journal, most of them messages."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The kind of a record."""

    MESSAGE = 0
    GAP = 1
    """Messages that never reached the recorder: `lost` of them, from `sequence` on, of publisher `origin`."""
    DAMAGED = 2
    """A record that the journal had and lost to damage; a repair puts it there so that offsets stay dense."""


class Record(NamedTuple):
    """One record of a journal.

    Attributes:
        subject: text; `bytes` when a record is read whose subject is not UTF-8. To be appended, it may also
            be an `oz.Message.subject`. For a gap, the pattern that was listened to, as `oz.compile` takes it.
        payload: the message's payload.
        time_ns: when it was received, in nanoseconds since 1970; None before it is appended means "now".
        origin: the publisher's id.
        sequence: the publisher's number for the message, among those for whoever recorded it.
        reply_to: the subject to reply to, text or bytes as `subject` is.
        headers: bytes that the journal keeps and does not look into.
        kind: a `Kind`.
        lost: how many messages a gap stands for, None when unknown; None for a message.
        offset: its place in the journal, from 0; the writer gives it, whatever it was before.
        position: the publisher's number for the message among all, the same for all who got it; None where it
            gave none, and in what was recorded before there were any.
    """

    subject: str | bytes
    payload: bytes = b""
    time_ns: int | None = None
    origin: bytes | None = None
    sequence: int | None = None
    reply_to: str | bytes | None = None
    headers: bytes | None = None
    kind: int = Kind.MESSAGE
    lost: int | None = None
    offset: int | None = None
    position: int | None = None

    @classmethod
    def of_gap(
        cls,
        pattern: str,
        lost: int | None,
        *,
        origin: bytes | None = None,
        sequence: int | None = None,
        time_ns: int | None = None,
    ) -> Record:
        """Record a loss.

        Args:
            pattern: what was listened to, as `oz.compile` takes it; what was lost matched it.
            lost: how many messages are missing; None when that cannot be known.
            origin: the publisher's id.
            sequence: the first number that is missing.
            time_ns: when the loss was noticed, in nanoseconds since 1970; None means now.

        Returns:
            A record to append where the messages would have been.
        """
        return cls(pattern, time_ns=time_ns, origin=origin, sequence=sequence, kind=int(Kind.GAP), lost=lost)

    @property
    def subject_bytes(self) -> bytes:
        """The subject as bytes."""
        subject = self.subject
        return subject if isinstance(subject, bytes) else subject.encode(errors="surrogateescape")

    @property
    def is_message(self) -> bool:
        """Whether it is a message, not a gap or damage."""
        return self.kind == Kind.MESSAGE
