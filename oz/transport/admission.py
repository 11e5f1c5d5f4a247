"""Checks of the subjects of a publisher, and warnings for a subscriber."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from oz.errors import PatternError, ProtocolError, SubjectError, SubjectWarning
from oz.protocol.prefix_counts import UNREACHABLE
from oz.subjects import dialects
from oz.subjects.advice import foreign_wildcard, said_of_foreign
from oz.subjects.pattern import Pattern, compile
from oz.transport.dropin import callers_level
from oz.transport.endpoints import is_local
from oz.wire.keys import OWN

EVERYTHING = compile(b"", "zmq")


def check_subject(
    subject: Any, dialect: str, delimiter: bytes, endpoints: Iterable[str]
) -> tuple[bytes, bytes]:
    """Check a subject.

    Args:
        subject: as it was given to `publish`.
        dialect: the publisher's.
        delimiter: what follows the subject within its frame, or nothing.
        endpoints: where the publisher sends to.

    Returns:
        The bytes before a plain payload, and the subject's own.

    Raises:
        SubjectError: the dialect does not allow it, or it may not leave this host.
        ProtocolError: it begins with the bytes that are oz's own.
        TypeError: it is no text.
    """
    rules = dialects.find(dialect)
    own = rules.decode(subject, SubjectError)
    rules.check_subject(own)
    raw = own if isinstance(own, bytes) else own.encode()
    if raw.startswith(OWN):
        raise ProtocolError(f"subject {subject!r} begins with {OWN!r}, which opens oz's own keys")
    if raw in UNREACHABLE:
        rule = "it would not reach subscribers to everything: docs/wire.md says why"
        raise SubjectError(dialect, subject, 0, rule)
    if raw.startswith(b"_LOCAL.") and not all(is_local(one) for one in endpoints):
        rule = f"_LOCAL subjects stay on this host, and {', '.join(endpoints)} does not"
        raise SubjectError(dialect, subject, 0, rule)
    advice = rules.subject_advice(own)
    if advice is not None:
        warnings.warn(advice, SubjectWarning, stacklevel=callers_level())
    if delimiter and delimiter in raw:
        rule = f"the delimiter {delimiter!r} ends the subject, so it cannot hold one"
        raise SubjectError(dialect, subject, raw.index(delimiter), rule)
    return raw + delimiter, raw


def compile_asked(pattern: Any, dialect: str) -> Pattern:
    """Compile what a subscriber asks for; text with a wildcard of another dialect gets a SubjectWarning.

    Raises:
        PatternError: the dialect does not allow it.
        TypeError: it is no pattern.
    """
    compiled = compile(pattern, dialect)
    found = foreign_wildcard(compiled) if isinstance(pattern, str) else None
    if found is not None:
        wildcard, owners = found
        text = (
            f"pattern {pattern!r}: {said_of_foreign(wildcard, owners)}: give dialect={owners[0]!r}, or "
            f"oz.compile({pattern!r}) if you mean the character"
        )
        warnings.warn(text, SubjectWarning, stacklevel=callers_level())
    return compiled


def compile_all(pattern: Any, dialect: str) -> list[Pattern]:
    """Compile what is given to `Subscriber.subscribe`: a pattern, a prefix, or a list of them.

    Args:
        pattern: text is a pattern, bytes a plain prefix; the empty text is everything.
        dialect: of text.

    Raises:
        PatternError: the dialect does not allow it.
        TypeError: it is no pattern.
    """
    if isinstance(pattern, (bytes, bytearray, memoryview)):
        return [compile(bytes(pattern), "zmq")]
    if isinstance(pattern, Iterable) and not isinstance(pattern, str):
        return [one for part in pattern for one in compile_all(part, dialect)]
    if pattern == "":
        return [EVERYTHING]
    try:
        return [compile_asked(pattern, dialect)]
    except PatternError as error:
        if isinstance(pattern, str):
            error.add_note(f"For a plain ZeroMQ prefix give bytes: {pattern.encode('utf-8', 'replace')!r}")
        raise
