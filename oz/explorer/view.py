"""Data that the explorer sends to its page: subjects, a pattern's matches, a payload, and the nodes of the bus.

If no page is open, the explorer only counts messages. All open pages share one sample per second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from oz.errors import PatternError
from oz.escaping import printable
from oz.explorer import payload as payloads
from oz.explorer.pattern_filter import PatternFilter
from oz.explorer.subject_table import BRANCH_ROWS, MAX_ROWS, Entry, SubjectTable
from oz.node.bus_view import MAX_SUBJECTS, Sample, tables
from oz.node.observation import observe, take_sample
from oz.node.sync import Node
from oz.subjects.pattern import PatternLike
from oz.subjects.pattern import compile as compile_pattern

TICK_SECONDS = 1.0
"""Minimum number of seconds between two samples of the subjects, and between two samples of the nodes."""
ANSWER_SECONDS = 1.0
"""Maximum seconds for which a sample waits for the answers of the nodes."""
_FILTER_SECONDS = 0.1  # Maximum time for which one request of the page tests subjects.
_FILTERS = 8  # Maximum number of patterns whose matches are kept.
_TABLE_ROWS = 200
_LINKS = 1_000


class BusView:
    """Samples of a bus. Several threads may call the methods of one view."""

    def __init__(self, node: Node, patterns: Sequence[PatternLike], separator: str = ".") -> None:
        """Subscribe to the messages of the bus. If the explorer is slow, it drops messages, and publishers never wait.

        Args:
            node: node without a codec, so that payloads are bytes.
            patterns: patterns of the subjects to show.
            separator: text between two levels of a subject.
        """
        self.node = node
        self._id = node.snapshot().id
        self._table = SubjectTable(separator)
        self._lock = threading.Lock()
        self._ticked = time.monotonic()
        self._filters: dict[tuple[str, str | None], PatternFilter] = {}
        self._filter_lock = threading.Lock()
        self._bus_lock = threading.Lock()
        self._sample: Sample | None = None
        self._bus: dict[str, Any] = {}
        self._subscription = observe(node, patterns, self._put)

    def _put(self, message: Any) -> None:
        with self._lock:
            self._table.put(message.subject, message.payload, message.time_ns)

    def subjects(
        self, opened: Collection[str], pattern: str, dialect: str | None, selected: str | None, form: str
    ) -> dict[str, Any]:
        """Return the visible part of the tree, the pattern, and the selected message.

        Args:
            opened: paths of the open branches.
            pattern: text of a pattern whose matching subjects are returned; empty for the tree.
            dialect: dialect of the pattern. With None, the text may name its dialect; otherwise "nats" is used.
            selected: subject whose payload is shown, or None.
            form: form in which the payload is shown; one of `payload.FORMS`.
        """
        found: dict[str, Any] = {}
        matches: list[dict[str, Any]] = []
        if pattern:
            found["pattern"], matches = self._matches(pattern, dialect)
        with self._lock:
            now = time.monotonic()
            if now - self._ticked >= TICK_SECONDS:
                self._table.tick(now - self._ticked)
                self._ticked = now
            rows = [] if pattern else self._table.rows(opened)
            entry = None if selected is None else self._table.find(selected)
            message = None if entry is None else (entry.payload, entry.payload_bytes, entry.time_ns)
        root = self._table.root
        found["rows"] = matches or [
            _row(row.entry, row.path, row.entry.label, row.level, row.shown) for row in rows
        ]
        found["sampling"] = {
            "subjects": len(self._table.subjects),
            "max_subjects": MAX_SUBJECTS,
            "messages": root.messages,
            "rate": root.rate,
            "others": self._table.others,
            "dropped": self.node.stats.lost + self.node.stats.overflowed,
            "branch_rows": BRANCH_ROWS,
            "max_rows": MAX_ROWS,
            "first_level": len(root.children),
        }
        if message is not None and selected is not None:
            name, text = payloads.decode(message[0], form)
            found["message"] = {
                "subject": printable(selected),
                "form": name,
                "text": text,
                "shown_bytes": len(message[0]),
                "bytes": message[1],
                "time": message[2] / 1e9,
            }
        return found

    def _matches(self, text: str, dialect: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        with self._filter_lock:
            key = text, dialect
            found = self._filters.pop(key, None)
            if found is None:
                try:
                    found = PatternFilter(compile_pattern(text, dialect), self._table)
                except (PatternError, ValueError) as error:
                    return {"error": printable(str(error))}, []
            self._filters[key] = found
            if len(self._filters) > _FILTERS:
                del self._filters[next(iter(self._filters))]
            found.advance(time.monotonic, _FILTER_SECONDS)
            busiest = [(entry, entry.subject or "") for entry in found.busiest(BRANCH_ROWS)]
            return found.summary(), [_row(entry, subject, subject, 1, 0) for entry, subject in busiest]

    def bus(self) -> dict[str, Any]:
        """Return the nodes, links, subscribers, groups and losses of the bus.

        Raises:
            PermissionDenied: this node has no permission to read the statistics of the nodes.
        """
        with self._bus_lock:
            now = time.monotonic()
            if self._sample is None or now - self._sample.at >= TICK_SECONDS:
                sample = take_sample(self.node, ANSWER_SECONDS)
                self._bus = self._describe(sample, self._sample)
                self._sample = sample
            return self._bus

    def _describe(self, sample: Sample, before: Sample | None) -> dict[str, Any]:
        links: list[dict[str, Any]] = [
            {
                "from": snapshot.id,
                "to": link.member,
                "to_name": printable(link.peer or link.member),
                "state": link.state,
                "pending": link.pending,
                "dropped": sum(link.dropped.values()),
            }
            for snapshot in sample.snapshots
            for link in snapshot.links
            if link.member != self._id and (link.patterns or link.pending)
        ]
        links.sort(key=lambda link: (link["state"] == "up", -link["pending"]))
        found = {
            view: [_printable_row(row) for row in rows[:_TABLE_ROWS]]
            for view, rows in tables(sample, before, self._id).items()
        }
        return {
            "bus": printable(self.node.bus),
            "unanswered": [printable(name) for name in sample.unanswered[:_TABLE_ROWS]],
            "links": links[:_LINKS],
            "omitted_links": max(0, len(links) - _LINKS),
            **found,
        }


def _row(entry: Entry, path: str, label: str, level: int, shown: int) -> dict[str, Any]:
    return {
        "path": path,
        "label": printable(label) or "(empty)",
        "level": level,
        "children": len(entry.children),
        "shown": shown,
        "is_subject": entry.subject is not None,
        "messages": entry.messages,
        "rate": entry.rate,
        "preview": "" if entry.subject is None else payloads.preview(entry.payload),
    }


def _printable_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _printable_value(value) for name, value in row.items()}


def _printable_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_printable_value(element) for element in value[:20]]
    return printable(value) if isinstance(value, str) else value
