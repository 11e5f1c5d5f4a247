"""Counts and log lines for callers of a listener that do not prove a trusted key.

libzmq does not report a caller without a key to the authenticator. Only the monitor of the socket reports the failed
handshake. A caller with a trusted key also causes failed handshakes if it does not know the key of the listener. Such a
caller tries each key that it trusts, several keys at once. Therefore a failure is logged only if no caller is admitted
within `SEARCH_SECONDS`. A wrong key within `SEARCH_SECONDS` after an admission is ignored too, because the admitted
caller's handshakes with wrong keys may end later. A connection that ends without an error is reported even in this
time, because a caller without a key may cause only this event. The event is ignored within `SEARCH_SECONDS` before and
after the BYE of an admitted caller, which may close while it tries keys.

If the authenticator refuses the key of a caller, the authenticator logs the refusal. The failed handshakes of the
caller's search are then ignored for `SEARCH_SECONDS`. A refused caller connects again without end, but searches only at
the beginning. Therefore a later refusal has this effect only if `REFUSAL_SECONDS` have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import zmq

from oz.transport.monitors import Event, Outcome

SEARCH_SECONDS = 3.0
"""Seconds that a caller's search for the key of a listener may take."""
REFUSAL_SECONDS = 60.0
"""After a refused key, failures are ignored for `SEARCH_SECONDS`. At most one refusal in this number of seconds has
this effect, so that the failures of other callers are reported."""
_MAX_FAILURES = 1_024
"""Maximum number of failures that wait for `SEARCH_SECONDS` to pass. Further failures are reported at once."""


class Arrivals:
    """Outcomes of the handshakes with callers of one socket."""

    __slots__ = ("_admitted_at", "_due_at", "_failures", "_left_at", "_refused_at", "_report")

    def __init__(self, report: Callable[[str, str], object]) -> None:
        """Start without callers.

        Args:
            report: function that is called with the endpoint and the reason of a refusal; see `Credentials.turn_away`.
        """
        self._report = report
        self._failures: list[Event] = []
        self._due_at = 0.0
        self._admitted_at = self._refused_at = self._left_at = -inf

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
            # The authenticator reports the refusal.
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

    def leave(self, now: float) -> None:
        """Record that an admitted caller has sent BYE.

        Args:
            now: current time, in seconds of `time.monotonic`.
        """
        self._left_at = now
        self._failures.clear()

    def _is_explained(self, event: Event, now: float) -> bool:
        known_at = max(self._refused_at, self._left_at)
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
    # A caller without a key does not search for the key of the listener.
    return event.outcome is Outcome.BROKEN and not _has_wrong_key(event)


def _has_wrong_key(event: Event) -> bool:
    return event.outcome is Outcome.BROKEN and event.value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


def _reason(failures: Sequence[Event]) -> str:
    """Return the reason of the first violation of the protocol. Without a violation, the reason is a missing key."""
    for event in failures:
        if _has_wrong_key(event):
            return "the caller does not trust the key of this side, and expects another one"
        if event.outcome is Outcome.BROKEN and event.value != zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return f"the handshake of the caller violates the protocol (error 0x{event.value:x} of ZeroMQ)"
    # libzmq reports the same event for a caller without keys, and for a caller with keys that has closed the
    # connection.
    return "the caller proved no key before the connection ended, and this side demands CURVE"
