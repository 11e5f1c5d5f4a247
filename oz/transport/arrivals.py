"""Callers of a listener that do not prove a trusted key: they are counted and logged.

The authenticator never learns of a caller without a key. Only the monitor of the socket reports the failed
handshake. A trusted caller that searches for the key of the listener fails too, and connects with the right key a
moment later. So failures are reported if no caller is admitted within `SEARCH_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable

import zmq

from oz.transport.monitors import Event, Outcome

SEARCH_SECONDS = 3.0
"""Seconds in which a caller finds the key of a listener."""
_MAX_FAILURES = 1_024
"""Maximum number of kept failures. Further failures are reported at once."""


class Arrivals:
    """Handshakes of the callers of one socket."""

    __slots__ = ("_due_at", "_failures", "_report")

    def __init__(self, report: Callable[[str, str], object]) -> None:
        """Start without callers.

        Args:
            report: called with the endpoint and the reason of a refusal; see `Credentials.turn_away`.
        """
        self._report = report
        self._failures: list[Event] = []
        self._due_at = 0.0

    def add(self, event: Event, now: float) -> None:
        """Record an event of the monitor.

        Args:
            event: of any connection.
            now: in seconds of `time.monotonic`.
        """
        if event.outcome is Outcome.ADMITTED:
            self._failures.clear()
        elif event.outcome not in (Outcome.FAILED, Outcome.BROKEN):
            # The authenticator has refused a key, and reports that.
            return
        elif _has_no_key(event) or len(self._failures) >= _MAX_FAILURES:
            self._report(event.endpoint, _reason(event))
        else:
            if not self._failures:
                self._due_at = now + SEARCH_SECONDS
            self._failures.append(event)

    def report_failures(self, now: float) -> None:
        """Report failures after which no caller was admitted.

        Args:
            now: in seconds of `time.monotonic`.
        """
        if self._failures and now >= self._due_at:
            failures, self._failures = self._failures, []
            for event in failures:
                self._report(event.endpoint, _reason(event))


def _has_no_key(event: Event) -> bool:
    """Return whether a caller has no key, so that it is no caller that searches for the key of the listener."""
    return event.outcome is Outcome.BROKEN and event.value != zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


def _reason(event: Event) -> str:
    if event.outcome is not Outcome.BROKEN:
        return "the caller closed the connection before it proved a key"
    if event.value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return "the caller has no key, and this side demands CURVE"
    if event.value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return "the caller has no key, or expects another key of this side"
    return f"the handshake of the caller violates the protocol (error 0x{event.value:x} of ZeroMQ)"
