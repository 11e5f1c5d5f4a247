"""Every error that oz raises, in one tree.

::

    OzError
    ├── PatternError (ValueError)        a pattern that its dialect does not allow
    ├── SubjectError (ValueError)        a subject that its dialect does not allow
    ├── PatternTimeout (TimeoutError)    a pattern ran out of time on one subject
    ├── ProtocolError (ValueError)       bytes from a peer that mean nothing here
    ├── Timeout (TimeoutError)           nothing came in the time given
    ├── NoResponders                     a request that no node on the bus would answer
    ├── PeerLost                         the node that held a request is lost
    ├── ReplyError                       the handler of whoever was asked raised
    │   └── NoRequest (ValueError)       a reply to what is no request
    ├── WouldBlock (BlockingIOError)     a publisher's high-water mark is reached
    ├── OwnershipError (RuntimeError)    a socket used by two threads at once, or after a fork
    ├── ConfigurationError (ValueError)  a setting, or the file it stands in, that makes no sense
    ├── PermissionDenied (PermissionError) what a key may not do, or a key that is not trusted
    ├── TransportUnavailable             this installation lacks the transport
    ├── EndpointError (ValueError)       no endpoint, or none for this socket, or an ipc path in use
    ├── NameserverUnavailable            no name server answers
    ├── JournalError                     a journal that cannot be read or written as asked
    │   └── JournalFull                  no room for what was to be appended
    ├── JournalMissing (ImportError)     pyarrow is not installed
    ├── SparkMissing (ImportError)       PySpark is not installed
    ├── JavaMissing                      Spark finds no Java, or one that is too old
    ├── OptionError (ValueError)         an option of the Spark source or sink that makes no sense
    ├── SinkError                        rows that the Spark sink cannot publish as asked
    ├── Undecidable                      how two patterns relate cannot be told
    └── ClosedError                      the socket is closed
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import oz.version  # noqa: F401 - first of all it sees whose package this is

KEYS_HINT = (
    "A listener that demands keys does not answer a side without keys: give security=; nodes and commands "
    "also read OZ_SECURITY"
)
"""Possible cause of a timeout, for the errors of a side without keys."""


class OzError(Exception):
    """The base of every error that oz raises."""


def _shown(text: str | bytes) -> str:
    """Write a text as Python would, but never more than a line of it."""
    shown = repr(text)
    return shown if len(shown) <= 120 else f"{shown[:100]}… ({len(text)} long)"


class _InvalidText(OzError, ValueError):
    """Says what text broke which rule of which dialect, and where."""

    kind = "text"

    def __init__(self, dialect: str, text: str | bytes, position: int, rule: str) -> None:
        super().__init__(dialect, text, position, rule)
        self.dialect = dialect
        self.text = text
        self.position = position
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.dialect} {self.kind} {_shown(self.text)}, position {self.position}: {self.rule}"


class PatternError(_InvalidText):
    """A pattern that its dialect does not allow.

    Attributes:
        dialect: the dialect's name.
        text: the pattern as it was given.
        position: where in the text the rule is broken, counted from 0.
        rule: the rule, in words.
    """

    kind = "pattern"


class SubjectError(_InvalidText):
    """A subject that its dialect does not allow; the attributes are those of `PatternError`."""

    kind = "subject"


class SubjectWarning(UserWarning):
    """A subject that is legal but unwise, such as an rv subject that holds a wildcard."""


class PatternTimeout(OzError, TimeoutError):
    """A pattern ran out of time on one subject; it may match, but nobody waits to know.

    Attributes:
        pattern: the text of the pattern.
        subject: the subject that it was tried on.
        limit: the time limit in seconds.
    """

    def __init__(self, pattern: str | bytes, subject: str | bytes, limit: float) -> None:
        super().__init__(pattern, subject, limit)
        self.pattern = pattern
        self.subject = subject
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"pattern {_shown(self.pattern)} took longer than {self.limit:g} s "
            f"on subject {_shown(self.subject)}; write it without a repeat inside a repeat"
        )


class ProtocolError(OzError, ValueError):
    """Bytes from a peer that mean nothing in the protocol, or that claim oz's own keys."""


class Timeout(OzError, TimeoutError):
    """Nothing came in the time given."""


class NoResponders(OzError):
    """A request that no node on the bus has a subscription for, so that nobody would answer."""


class PeerLost(OzError):
    """The node that held a request is lost, or has closed. The request may have run.

    Attributes:
        subject: of the request.
        peer: name of the node.
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
    """The handler that was to answer a request raised.

    Attributes:
        subject: what was asked on.
        kind: the name of the class of what the handler raised.
        text: what that said.
        node: the name of the node whose handler it was.
    """

    def __init__(
        self, message: str, *, subject: str = "", kind: str = "", text: str = "", node: str = ""
    ) -> None:
        super().__init__(message)
        self.subject = subject
        self.kind = kind
        self.text = text
        self.node = node


class NoRequest(ReplyError, ValueError):
    """A reply to a message that is no request, or that did not come through a node."""


class WouldBlock(OzError, BlockingIOError):
    """A subscriber is at its high-water mark and the publisher was told not to drop."""


class OwnershipError(OzError, RuntimeError):
    """A socket is used by two threads at once, or in a process that did not make it."""


class PermissionDenied(OzError, PermissionError):
    """Somebody may not do what they asked for, or a peer does not trust their key.

    Attributes:
        rule: the rule that decided, and where it is written; None where none did.
        subject: the witness: a subject that was asked for and must not be had; None where none can be named.
    """

    def __init__(self, message: str, *, rule: str | None = None, subject: str | None = None) -> None:
        """Say who may not do what, and why."""
        super().__init__(message)
        self.rule = rule
        self.subject = subject

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the rule and the subject when it travels between processes."""
        return _denied_again, (str(self), self.rule, self.subject)


def _denied_again(message: str, rule: str | None, subject: str | None) -> PermissionDenied:
    return PermissionDenied(message, rule=rule, subject=subject)


class TransportUnavailable(OzError):
    """This installation of ZeroMQ lacks the transport that an endpoint names."""


class ConfigurationError(OzError, ValueError):
    """A setting of a node, or the file it stands in, that makes no sense.

    Attributes:
        setting: its name; None when the file as a whole is wrong.
        value: what was given.
        source: where: "argument", "environment variable OZ_BUS", "file /x/oz.toml" or "default".
        rule: what is wrong with it, and what to do.
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


class NameserverUnavailable(OzError):
    """No name server answers: a node announced itself, and did not hear itself.

    Attributes:
        endpoints: the name servers that were tried.
        seconds: for how long.
    """

    def __init__(self, endpoints: Iterable[str], seconds: float) -> None:
        self.endpoints = tuple(endpoints)
        self.seconds = seconds
        super().__init__(self.endpoints, seconds)

    def __str__(self) -> str:
        tried = ", ".join(self.endpoints) or "none at all"
        return (
            f"no name server answered within {self.seconds:g} s; tried {tried}. Start one there with "
            "`oz nameserver --bind`, or see whether its host and port can be reached from here. "
            f"{KEYS_HINT}"
        )


class Undecidable(OzError):
    """The relation of two patterns cannot be decided for certain, and oz does not guess.

    Either a regex uses what only its engine understands, such as a look-around, or the patterns are so
    involved that the comparison would take too long.
    """


class JournalError(OzError):
    """A journal that cannot be read or written as asked: damaged, in use, or of another format version."""


class JournalFull(JournalError):
    """There is no room for what was to be appended; nothing of it is in the journal.

    Attributes:
        directory: the journal's directory.
        end_offset: how far the journal goes, and what the next record's offset will be.
        reason: what the system said.
    """

    def __init__(self, directory: str, end_offset: int, reason: str) -> None:
        super().__init__(directory, end_offset, reason)
        self.directory = directory
        self.end_offset = end_offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.directory}: {self.reason}; the journal is whole up to offset {self.end_offset} and "
            "nothing of this append was kept; make room, or keep less with retain_bytes, and append again"
        )


class _ExtraMissing(OzError, ImportError):
    """Says which module an extra of oz needs, and how to install it."""

    extra = ""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module

    def __str__(self) -> str:
        return (
            f"oz.{self.extra} needs {self.module}, which is not installed; "
            f"in a checkout: pip install '.[{self.extra}]'"
        )


class JournalMissing(_ExtraMissing):
    """pyarrow, which the journal needs, is not installed."""

    extra = "journal"


class SparkMissing(_ExtraMissing):
    """PySpark, or what it needs, is not installed."""

    extra = "spark"


class JavaMissing(OzError):
    """Spark finds no Java, or one that is too old."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.found}: Spark needs Java 17 or newer; in a checkout `pip install '.[spark-java]'` brings "
            "one, or install one as with `apt-get install openjdk-17-jre-headless`, and set JAVA_HOME if it "
            "is not the first in PATH"
        )


class SinkError(OzError):
    """Rows that the Spark sink cannot publish as asked: wrong columns or rows, or nobody to send to."""


class OptionError(OzError, ValueError):
    """An option of the Spark source or sink that is unknown or makes no sense.

    Attributes:
        option: its name.
        value: what was given; None when the name alone is wrong.
        rule: what is wrong with it, and what to do.
    """

    def __init__(self, option: str, value: object, rule: str) -> None:
        super().__init__(option, value, rule)
        self.option = option
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        given = "" if self.value is None else f"={self.value!r}"
        return f"option {self.option}{given}: {self.rule}"


class ClosedError(OzError):
    """The socket is closed."""
