"""Callers of a listener that do not prove a trusted key: they are counted and logged.

libzmq does not report a caller without a key to the authenticator. Only the monitor of the socket reports the failed
handshake. Handshakes also fail while a caller searches for the key of the listener: the caller tries each key that it
trusts, and closes these connections when one key is right. Therefore failures are reported, all with one reason, only
if no caller is admitted within `SEARCH_SECONDS`. The caller may leave as soon as it knows the key, and no other caller
may be admitted later. So an admission also explains the wrong keys of the next `SEARCH_SECONDS`. It does not explain
connections that only end, because a caller without a key may cause nothing else.

If the authenticator refuses the key of a caller, the failed handshakes of this caller's search are not reported. A
refused caller connects again without end, but searches only at the beginning. Therefore failures within
`SEARCH_SECONDS` after a refusal are ignored. Further refusals hide failures only after `REFUSAL_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import zmq

from oz.transport.monitors import Event, Outcome

SEARCH_SECONDS = 3.0
"""Seconds within which a caller finds the key of a listener, or gives the search up."""
REFUSAL_SECONDS = 60.0
"""Seconds after a refused key. In this time further refusals do not hide the failures of other callers."""
_MAX_FAILURES = 1_024
"""Maximum number of kept failures. Further failures are reported at once."""


class Arrivals:
    """Handshakes of the callers of one socket."""

    __slots__ = ("_admitted_at", "_due_at", "_failures", "_refused_at", "_report")

    def __init__(self, report: Callable[[str, str], object]) -> None:
        """Start without callers.

        Args:
            report: called with the endpoint and the reason of a refusal; see `Credentials.turn_away`.
        """
        self._report = report
        self._failures: list[Event] = []
        self._due_at = 0.0
        self._admitted_at = self._refused_at = -inf

    def add(self, event: Event, now: float) -> None:
        """Record an event of the monitor.

        Args:
            event: event of any connection of the socket.
            now: current time, in seconds of `time.monotonic`.
        """
        if event.outcome is Outcome.ADMITTED:
            self._admitted_at = now
            self._failures.clear()
        elif event.outcome is Outcome.REFUSED:
            # The authenticator reports it.
            if now >= self._refused_at + REFUSAL_SECONDS:
                self._refused_at = now
                self._failures.clear()
        elif event.outcome is None:
            return
        elif _has_no_key(event) or len(self._failures) >= _MAX_FAILURES:
            self._report(event.endpoint, _reason([event]))
        elif not self._is_explained(event, now):
            if not self._failures:
                self._due_at = now + SEARCH_SECONDS
            self._failures.append(event)

    def _is_explained(self, event: Event, now: float) -> bool:
        """Return whether a failure belongs to a search whose outcome is known."""
        known_at = self._refused_at
        if _has_wrong_key(event):
            known_at = max(known_at, self._admitted_at)
        return now < known_at + SEARCH_SECONDS

    def report_failures(self, now: float) -> None:
        """Report failures after which no caller was admitted.

        Args:
            now: current time, in seconds of `time.monotonic`.
        """
        if self._failures and now >= self._due_at:
            failures, self._failures = self._failures, []
            for event in failures:
                self._report(event.endpoint, _reason(failures))


def _has_no_key(event: Event) -> bool:
    """Return whether a caller has no key. Such a caller does not search for the key of the listener."""
    return event.outcome is Outcome.BROKEN and not _has_wrong_key(event)


def _has_wrong_key(event: Event) -> bool:
    """Return whether a caller expects another key of the listener."""
    return event.outcome is Outcome.BROKEN and event.value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


def _reason(failures: Sequence[Event]) -> str:
    """Return one reason for all failures: the first violation of the protocol, or else that the key is missing."""
    for event in failures:
        if _has_wrong_key(event):
            return "the caller does not trust the key of this side, and expects another one"
        if event.outcome is Outcome.BROKEN and event.value != zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return f"the handshake of the caller violates the protocol (error 0x{event.value:x} of ZeroMQ)"
    # A caller without keys may close the connection before libzmq sees the other mechanism. A caller with keys may
    # close too, so that the text does not call it a caller without keys.
    return "the caller proved no key before the connection ended, and this side demands CURVE"
