"""Tree of the subjects of a bus, with rates and last payloads.

Theory of operation
-------------------
`put` counts a message only in the entry of its subject. Once a second, `tick` adds the new messages to the branches
above the subjects, and computes rates. The time of `put` and `tick` depends only on the number of subjects with new
messages. `rows` returns the busiest entries of each open branch.

The table is bounded: it has at most `MAX_SUBJECTS` subjects, `MAX_LEVELS` levels, `PAYLOAD_BYTES` of each payload, and
about `TOTAL_BYTES` of all payloads. `others` counts the messages of subjects that do not fit.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import nlargest
from typing import NamedTuple

from oz.node.bus_view import MAX_SUBJECTS

MAX_SUBJECT_LENGTH = 1_000  # characters
MAX_LEVELS = 16
MAX_ROWS = 500
"""Maximum number of rows of the tree."""
BRANCH_ROWS = 50
"""Maximum number of rows of one branch. If a branch has more entries, the page shows only the busiest."""
PAYLOAD_BYTES = 64 << 10
TOTAL_BYTES = 64 << 20
SHORT_BYTES = 256
"""Maximum number of bytes that are kept of a new payload if all payloads together would exceed `TOTAL_BYTES`."""


class Entry:
    """Entry of the tree: a branch, a subject, or both.

    Attributes:
        label: part of the subject at the level of the entry.
        parent: entry of the level above; None for the root.
        children: entries of the next level, by their labels.
        subject: full subject; None for a branch that is not a subject itself.
        messages: number of messages of this entry and of all entries below it, counted up to the last tick.
        rate: messages per second between the last two ticks.
        payload: first bytes of the last payload.
        payload_bytes: size of the whole last payload in bytes.
        time_ns: time of the last message, in nanoseconds since 1970.
    """

    __slots__ = (
        "_new", "_step", "children", "label", "messages", "parent", "payload", "payload_bytes", "rate", "subject",
        "time_ns",
    )  # fmt: skip

    def __init__(self, label: str, parent: Entry | None) -> None:
        """Create an entry without messages."""
        self.label, self.parent = label, parent
        self.children: dict[str, Entry] = {}
        self.subject: str | None = None
        self.messages, self.rate, self.time_ns = 0, 0.0, 0
        self.payload, self.payload_bytes = b"", 0
        self._new = 0  # Number of messages of the subject since the last tick.
        self._step = 0  # Number of messages that `tick` adds to this entry; 0 between two ticks.


class Row(NamedTuple):
    """Visible row of the tree.

    Attributes:
        path: labels from the first level to this entry, joined by the separator.
        level: level in the tree, from 1.
        shown: number of children of this entry that have rows; 0 for a closed branch.
        entry: entry of the table that the row shows.
    """

    path: str
    level: int
    shown: int
    entry: Entry


class SubjectTable:
    """Subjects, rates and last payloads.

    Attributes:
        root: entry above the entries of the first level.
        subjects: entries of the subjects, in the order of their first messages.
        others: number of messages whose subjects did not fit into the table, counted up to the last tick.
    """

    def __init__(self, separator: str = ".", max_subjects: int = MAX_SUBJECTS) -> None:
        """Create an empty table.

        Args:
            separator: text between two levels of a subject.
            max_subjects: maximum number of subjects in the table.
        """
        self.root = Entry("", None)
        self.subjects: list[Entry] = []
        self._by_subject: dict[str, Entry] = {}
        self._separator, self._max_subjects = separator, max_subjects
        self._others = Entry("", self.root)
        self._touched: list[Entry] = []
        self._moving: list[Entry] = []
        self._busiest: dict[Entry, list[Entry]] = {}
        self._kept_bytes = 0

    @property
    def others(self) -> int:
        """Number of messages whose subjects did not fit into the table, counted up to the last tick."""
        return self._others.messages

    def put(self, subject: str, payload: bytes, time_ns: int) -> None:
        """Count a message and keep the first bytes of its payload."""
        entry = self._by_subject.get(subject)
        if entry is None:
            entry = self._add(subject)
        if not entry._new:
            self._touched.append(entry)
        entry._new += 1
        if entry.subject is None:
            return
        size = len(payload)
        kept = self._kept_bytes - len(entry.payload)
        limit = PAYLOAD_BYTES if kept + size <= TOTAL_BYTES else SHORT_BYTES
        entry.payload = payload if size <= limit else payload[:limit]
        entry.payload_bytes, entry.time_ns = size, time_ns
        self._kept_bytes = kept + min(size, limit)

    def _add(self, subject: str) -> Entry:
        if len(self.subjects) >= self._max_subjects or len(subject) > MAX_SUBJECT_LENGTH:
            return self._others
        entry = self.root
        for label in subject.split(self._separator, MAX_LEVELS - 1):
            child = entry.children.get(label)
            if child is None:
                child = entry.children[label] = Entry(label, entry)
            entry = child
        entry.subject = subject
        self._by_subject[subject] = entry
        self.subjects.append(entry)
        return entry

    def find(self, subject: str) -> Entry | None:
        """Return the entry of a subject, or None."""
        return self._by_subject.get(subject)

    def tick(self, seconds: float) -> None:
        """Add the messages since the last call to the counts of the branches, and compute rates.

        Args:
            seconds: seconds since the last call.
        """
        for entry in self._moving:
            entry.rate = 0.0
        touched, self._touched = self._touched, []
        self._moving = moving = []
        for entry in touched:
            count, entry._new = entry._new, 0
            above: Entry | None = entry
            while above is not None:
                if not above._step:
                    moving.append(above)
                above._step += count
                above = above.parent
        for entry in moving:
            entry.messages += entry._step
            entry.rate = entry._step / seconds
            entry._step = 0
        self._busiest.clear()

    def rows(self, opened: Collection[str]) -> list[Row]:
        """Return the visible rows of the tree, from top to bottom.

        Args:
            opened: paths of the open branches.
        """
        rows: list[Row] = []
        self._append_rows(rows, self.root, "", 1, opened)
        return rows

    def _append_rows(
        self, rows: list[Row], branch: Entry, prefix: str, level: int, opened: Collection[str]
    ) -> None:
        for entry in self._busiest_of(branch):
            if len(rows) >= MAX_ROWS:
                return
            path = prefix + entry.label
            if path not in opened:
                rows.append(Row(path, level, 0, entry))
                continue
            rows.append(Row(path, level, min(len(entry.children), BRANCH_ROWS), entry))
            self._append_rows(rows, entry, path + self._separator, level + 1, opened)

    def _busiest_of(self, branch: Entry) -> list[Entry]:
        """Return the busiest entries of a branch, sorted by name, so that rows do not move on the page."""
        found = self._busiest.get(branch)
        if found is None:
            found = self._busiest[branch] = busiest(branch.children.values(), BRANCH_ROWS)
            found.sort(key=lambda entry: entry.label)
        return found


def busiest(entries: Collection[Entry], count: int) -> list[Entry]:
    """Return the `count` entries with the highest rates. Among equal rates, the number of messages decides."""
    if len(entries) <= count:
        return list(entries)
    return nlargest(count, entries, key=lambda entry: (entry.rate, entry.messages))
