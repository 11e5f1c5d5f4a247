"""Numbers of messages and bytes of each subject, for `oz top`."""

from __future__ import annotations

from heapq import nlargest
from typing import Any

import oz
from oz.node.bus_view import MAX_SUBJECTS
from oz.node.observation import observe

OTHERS = "(other subjects)"
"""Name of the row for all subjects beyond the first `MAX_SUBJECTS`."""


class SubjectCounts:
    """Numbers of messages and bytes of each subject since the last call of `take`."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def subscribe(self, node: oz.Node, pattern: str) -> oz.Subscription:
        """Subscribe to a pattern, and count its messages. Publishers never wait for this subscription."""
        return observe(node, [pattern], self._put)

    def _put(self, message: oz.Message) -> None:
        counts, subject = self._counts, message.subject
        count = counts.get(subject)
        if count is None:
            if len(counts) >= MAX_SUBJECTS:
                subject = OTHERS
            count = counts.setdefault(subject, [0, 0])
        count[0] += 1
        count[1] += len(message.payload)

    def take(self, seconds: float, limit: int) -> list[dict[str, Any]]:
        """Return the subjects with the most messages, and reset the counts.

        Args:
            seconds: seconds since the last call, from which the rates are computed.
            limit: maximum number of subjects to return.
        """
        counts, self._counts = self._counts, {}
        busiest = nlargest(limit, list(counts.items()), key=lambda item: item[1][0])
        return [
            {
                "subject": subject,
                "rate": round(count / seconds, 3),
                "bytes_rate": round(size / seconds, 3),
                "messages": count,
            }
            for subject, (count, size) in busiest
        ]
