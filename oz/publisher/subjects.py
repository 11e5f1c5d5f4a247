"""Check of a publisher's subjects by the rules of its dialect, with a cache of valid subjects."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from oz.errors import SubjectError, SubjectWarning
from oz.subjects import dialects
from oz.transport.endpoints import is_local
from oz.transport.warning_level import callers_level

CACHED_SUBJECTS = 65_536
_LONGEST_CACHED = 1_024
_LOCAL = b"_LOCAL."


class SubjectCheck:
    """Check of subjects. Valid subjects are cached."""

    def __init__(
        self, dialect: str, endpoints: Callable[[], Iterable[str]], delimiter: bytes | None = None
    ) -> None:
        """Start with an empty cache.

        Args:
            dialect: name of the publisher's dialect.
            endpoints: function that returns the publisher's endpoints. If another host can reach one of these
                endpoints, subjects that begin with `_LOCAL.` are refused.
            delimiter: bytes that separate subject and payload in messages of one frame; None for messages of two
                frames. No subject may contain the delimiter.

        Raises:
            ConfigurationError: no dialect has this name.
        """
        self._rules = dialects.find(dialect)
        self._endpoints, self._delimiter = endpoints, delimiter
        self._valid: dict[Any, tuple[str, bytes]] = {}

    def forget(self) -> None:
        """Clear the cache, because the endpoints have changed."""
        self._valid.clear()

    def check(self, subject: Any) -> tuple[str, bytes]:
        """Return a subject as text and as bytes.

        Raises:
            SubjectError: the dialect does not allow the subject, or a `_LOCAL.` subject would leave this host.
            TypeError: the subject is neither str nor bytes.
        """
        try:
            return self._valid[subject]
        except (KeyError, TypeError):
            pass
        rules = self._rules
        own = rules.decode(subject, SubjectError)
        rules.check_subject(own)
        raw = own if isinstance(own, bytes) else own.encode()
        delimiter = self._delimiter
        if delimiter is not None and delimiter in raw:
            rule = f"the delimiter {delimiter!r} ends a subject, so that no subject can contain it"
            raise SubjectError(rules.name, subject, raw.index(delimiter), rule)
        if raw.startswith(_LOCAL):
            remote = [endpoint for endpoint in self._endpoints() if not is_local(endpoint)]
            if remote:
                rule = f"_LOCAL subjects stay on this host, and {', '.join(remote)} does not"
                raise SubjectError(rules.name, subject, 0, rule)
        advice = rules.subject_advice(own)
        if advice is not None:
            warnings.warn(advice, SubjectWarning, stacklevel=callers_level())
        found = raw.decode("utf-8", "surrogateescape"), raw
        if isinstance(subject, (str, bytes)) and len(subject) <= _LONGEST_CACHED:
            if len(self._valid) >= CACHED_SUBJECTS:
                self._valid.clear()
            self._valid[subject] = found
        return found
