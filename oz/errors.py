"""Errors of oz, in one tree.

::

    OzError
    ├── PatternError (ValueError)        a pattern that its dialect does not allow
    ├── SubjectError (ValueError)        a subject that its dialect does not allow
    ├── PatternTimeout (TimeoutError)    the match of a pattern took longer than its time limit
    ├── ProtocolError (ValueError)       malformed bytes from a peer
    ├── Timeout (TimeoutError)           the timeout of a call has passed
    ├── NoResponders                     no node of the bus has a subscription for a request
    ├── PeerLost                         the node that received a request is lost, or has closed
    ├── ReplyError                       the handler of the responder raised, or `reply` had no request
    ├── WouldBlock (BlockingIOError)     a subscriber has reached the high-water mark
    ├── OwnershipError (RuntimeError)    an object used after a fork, or in another event loop
    ├── ConfigurationError (ValueError)  a wrong value of a setting or option, or a wrong file
    ├── PermissionDenied (PermissionError) permissions deny an action, or a key is not trusted
    ├── EndpointError (ValueError)       a malformed endpoint, or one that this object or system cannot use
    ├── JournalError                     a journal cannot be read or written
    │   └── JournalFull                  no disk space for an append
    ├── MissingDependency (ImportError)  a library, or a feature of libzmq, is not installed
    ├── SinkError                        rows that the Spark sink cannot publish
    ├── Undecidable                      the relation of two patterns cannot be decided
    └── ClosedError                      the object is closed
"""

from __future__ import annotations

from typing import Any

import oz.version  # noqa: F401 - first, because it checks that no other package has replaced this one

KEYS_HINT = "if the other side has keys, give security= (nodes and commands also read OZ_SECURITY)"
"""Hint for the text of a timeout error, if this program has no keys."""


class OzError(Exception):
    """Base class of all errors that oz raises."""


def one_line(text: str | bytes) -> str:
    """Return the repr of a text. A long repr is shortened."""
    shown = repr(text)
    return shown if len(shown) <= 120 else f"{shown[:100]}… ({len(text)} long)"


class _InvalidText(OzError, ValueError):
    kind = "text"

    def __init__(self, dialect: str, text: str | bytes, position: int, rule: str) -> None:
        super().__init__(dialect, text, position, rule)
        self.dialect = dialect
        self.text = text
        self.position = position
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.dialect} {self.kind} {one_line(self.text)}, position {self.position}: {self.rule}"


class PatternError(_InvalidText):
    """A pattern that its dialect does not allow.

    Attributes:
        dialect: name of the dialect.
        text: text of the pattern.
        position: index of the error in `text`. The first index is 0.
        rule: rule that the text breaks.
    """

    kind = "pattern"


class SubjectError(_InvalidText):
    """A subject that its dialect does not allow; see `PatternError` for the attributes."""

    kind = "subject"


class SubjectWarning(UserWarning):
    """A subject or pattern that is legal but unwise, such as an rv subject with a wildcard."""


class PatternTimeout(OzError, TimeoutError):
    """The match of a pattern with a subject took longer than the time limit of the pattern.

    Attributes:
        pattern: text of the pattern.
        subject: subject that was matched.
        limit: time limit in seconds.
    """

    def __init__(self, pattern: str | bytes, subject: str | bytes, limit: float) -> None:
        super().__init__(pattern, subject, limit)
        self.pattern = pattern
        self.subject = subject
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"pattern {one_line(self.pattern)} took longer than {self.limit:g} s "
            f"on subject {one_line(self.subject)}; write it without a repeat inside a repeat"
        )


class ProtocolError(OzError, ValueError):
    """A peer has sent malformed bytes, or a publisher refuses a subscription."""


class Timeout(OzError, TimeoutError):
    """The timeout of a call has passed."""


class NoResponders(OzError):
    """No node of the bus has a subscription for the subject of a request."""


class PeerLost(OzError):
    """The node that received a request is lost, or has closed. Its handler may have run.

    Attributes:
        subject: subject of the request.
        peer: name of the lost node.
    """

    def __init__(self, subject: str, peer: str) -> None:
        super().__init__(subject, peer)
        self.subject, self.peer = subject, peer

    def __str__(self) -> str:
        return (
            f"node {self.peer!r} was lost before it answered the request to {self.subject!r}, which may have run: "
            "retries=1 sends it to another node"
        )


class ReplyError(OzError):
    """The handler of a request raised an exception, or `message.reply` was called for a message that is no request.

    Attributes:
        subject: subject of the request; empty if the message is no request.
        kind: class name of the handler's exception; empty if no handler raised.
        text: text of the handler's exception; empty if no handler raised.
        node: name of the node whose handler raised.
    """

    def __init__(
        self, message: str, *, subject: str = "", kind: str = "", text: str = "", node: str = ""
    ) -> None:
        super().__init__(message)
        self.subject = subject
        self.kind = kind
        self.text = text
        self.node = node


class WouldBlock(OzError, BlockingIOError):
    """A subscriber has reached its high-water mark, and the publisher's `on_full` is "block" or "raise"."""


class OwnershipError(OzError, RuntimeError):
    """An object was used outside of its process, thread or event loop.

    Possible causes:

    - The object is used in the child of a fork, or in a second event loop.
    - An inline handler calls a function that waits.
    - A blocking call would stop the running event loop of a test bus.
    """


class PermissionDenied(OzError, PermissionError):
    """Permissions deny an action, or a peer does not trust a key.

    Attributes:
        rule: text and position of the rule that denies the action, or `default = "deny"`; None if a key is not trusted.
        subject: example of a denied subject; None if a key is not trusted, or if no example is known.
    """

    def __init__(self, message: str, *, rule: str | None = None, subject: str | None = None) -> None:
        """Create the error."""
        super().__init__(message)
        self.rule = rule
        self.subject = subject

    def __reduce__(self) -> tuple[Any, ...]:
        return _denied_again, (str(self), self.rule, self.subject)


def _denied_again(message: str, rule: str | None, subject: str | None) -> PermissionDenied:
    return PermissionDenied(message, rule=rule, subject=subject)


class ConfigurationError(OzError, ValueError):
    """A wrong value of an argument, a setting or an option of Spark, or a wrong configuration file.

    Attributes:
        setting: name of the setting; None if a whole file is wrong, or if an option is unknown or absent.
        value: wrong value.
        source: origin of the value, such as "argument", "environment variable OZ_BUS", "file /x/oz.toml", "option of
            Spark" or "default".
        rule: rule that the value breaks, and a remedy.
    """

    def __init__(self, setting: str | None, value: object, source: str, rule: str) -> None:
        super().__init__(setting, value, source, rule)
        self.setting = setting
        self.value = value
        self.source = source
        self.rule = rule

    def __str__(self) -> str:
        if self.setting is None:
            return f"{self.source}: {self.rule}"
        shown = repr(self.value)
        if len(shown) > 120:
            shown = f"{shown[:100]}…"
        return f"{self.source}: {self.setting} = {shown}: {self.rule}"


class Undecidable(OzError):
    """The relation of two patterns cannot be decided.

    One pattern is a regex with a feature that oz cannot compare, such as a look-around. Or the comparison would take
    too long.
    """


class JournalError(OzError):
    """A journal cannot be read or written: it is damaged, in use, or of another format version."""


class JournalFull(JournalError):
    """The disk has no space for an append. No record of the append is in the journal.

    Attributes:
        directory: directory of the journal.
        end_offset: offset that the next record will have.
        reason: error text of the operating system.
    """

    def __init__(self, directory: str, end_offset: int, reason: str) -> None:
        super().__init__(directory, end_offset, reason)
        self.directory = directory
        self.end_offset = end_offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.directory}: {self.reason}; the journal is complete up to offset {self.end_offset} and "
            "contains nothing of this append; free space, or lower retain_bytes, and append again"
        )


class MissingDependency(OzError, ImportError):
    """A library, or a feature of libzmq, is not installed. The error text contains the remedy.

    Attributes:
        name: name of the missing Python module; None for Java and libzmq.
    """


def missing_module(module: str, extra: str) -> MissingDependency:
    """Return the error for a Python module that an extra of oz installs."""
    text = f"oz.{extra} needs {module}, which is not installed; in a checkout: pip install '.[{extra}]'"
    return MissingDependency(text, name=module)


class SinkError(OzError):
    """The Spark sink cannot publish rows, because columns or rows are wrong, or because there is no subscriber."""


class ClosedError(OzError):
    """The object is closed."""
