"""Log of refused connections: at most one line a minute for each reason, with the number of connections."""

from __future__ import annotations

from dataclasses import dataclass

LOG_INTERVAL = 60.0
"""Minimum seconds between two log lines about the same reason."""


@dataclass(slots=True)
class _Refusals:
    """Connections that were refused for one reason since the last log line about the reason.

    Attributes:
        logged_at: time of the last log line about the reason, in seconds.
        count: number of connections that were refused since the last log line.
        text: description of the last refused connection.
    """

    logged_at: float
    count: int = 0
    text: str = ""


class RefusalLog:
    """Log lines about refused connections.

    The first connection with a reason gives a line at once. Each later line contains the number of connections since
    the previous line.
    """

    def __init__(self) -> None:
        """Start without connections."""
        self._by_reason: dict[str, _Refusals] = {}

    def add(self, reason: str, text: str, now: float) -> list[str]:
        """Record a refused connection; return the log lines that are due.

        Args:
            reason: reason of the refusal, from a fixed set of texts. Connections are counted for each reason.
            text: description of this connection, for the log.
            now: current time, in seconds.
        """
        found = self._by_reason.get(reason)
        if found is None:
            self._by_reason[reason] = _Refusals(now)
            return [text]
        found.count += 1
        found.text = text
        return self.lines(now)

    def lines(self, now: float) -> list[str]:
        """Return the log lines that are due. A reason without refusals for `LOG_INTERVAL` seconds is forgotten."""
        lines = []
        for reason, found in list(self._by_reason.items()):
            seconds = now - found.logged_at
            if seconds < LOG_INTERVAL:
                continue
            if not found.count:
                del self._by_reason[reason]
                continue
            lines.append(f"{found.count} connections were refused in {seconds:.0f} s. The last: {found.text}")
            self._by_reason[reason] = _Refusals(now)
        return lines
