"""Log of refused connections: at most one line a minute for each reason, with the number of connections."""

from __future__ import annotations

from dataclasses import dataclass

LOG_INTERVAL = 60.0
"""Seconds between two lines with one reason."""


@dataclass(slots=True)
class _Refusals:
    """Connections that were refused for one reason since the last line.

    Attributes:
        logged_at: time of the last line, in seconds.
        count: connections since then.
        text: of the last connection.
    """

    logged_at: float
    count: int = 0
    text: str = ""


class RefusalLog:
    """Lines about refused connections. The first connection is logged at once, later connections with their number."""

    def __init__(self) -> None:
        """Start without connections."""
        self._by_reason: dict[str, _Refusals] = {}

    def add(self, reason: str, text: str, now: float) -> list[str]:
        """Record a connection; return the lines that are due.

        Args:
            reason: one of a fixed set of reasons.
            text: about this connection.
            now: in seconds.
        """
        found = self._by_reason.get(reason)
        if found is None:
            self._by_reason[reason] = _Refusals(now)
            return [text]
        found.count += 1
        found.text = text
        return self.lines(now)

    def lines(self, now: float) -> list[str]:
        """Return the lines that are due. A reason without connections for `LOG_INTERVAL` begins anew."""
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
