"""Wildcard subjects for ZeroMQ, without a broker."""

from oz.errors import (
    ClosedError,
    OwnershipError,
    OzError,
    PatternError,
    PatternTimeout,
    ProtocolError,
    SubjectError,
    SubjectWarning,
    Timeout,
    TransportUnavailable,
    WouldBlock,
)
from oz.subjects.dialects import DIALECTS
from oz.subjects.index import PatternIndex
from oz.subjects.pattern import Pattern, compile, parse, validate_subject

__all__ = [
    "DIALECTS",
    "ClosedError",
    "OwnershipError",
    "OzError",
    "Pattern",
    "PatternError",
    "PatternIndex",
    "PatternTimeout",
    "ProtocolError",
    "SubjectError",
    "SubjectWarning",
    "Timeout",
    "TransportUnavailable",
    "WouldBlock",
    "compile",
    "parse",
    "validate_subject",
]
