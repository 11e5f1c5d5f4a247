"""The figures of a report computed by plain Python, row by row, to compare Spark's with."""

from collections import Counter, defaultdict
from itertools import pairwise

HOUR, SECOND = 3600 * 10**9, 10**9


def shown(subject):
    return subject if isinstance(subject, str) else subject.decode(errors="backslashreplace")


class PlainReport:
    def __init__(self, records):
        self.messages = [one for one in records if one.kind == 0]
        self.gaps = [one for one in records if one.kind == 1]
        self.records = records
        self.by_subject = defaultdict(list)
        for one in self.messages:
            self.by_subject[shown(one.subject)].append(one)

    def total(self):
        times = [one.time_ns for one in self.messages]
        return {
            "messages": len(self.messages),
            "payload_bytes": sum(len(one.payload) for one in self.messages),
            "first_ns": min(times),
            "last_ns": max(times),
            "subjects": len(self.by_subject),
            "seconds": (max(times) - min(times)) / SECOND,
        }

    def timeline(self, steps):
        length = steps[1]["time_ns"] - steps[0]["time_ns"] if len(steps) > 1 else 10**18
        counts = Counter((one.time_ns - steps[0]["time_ns"]) // length for one in self.messages)
        return [counts[at] for at in range(len(steps))]

    def amounts(self, subject):
        found = self.by_subject[subject]
        return {
            "subject": subject,
            "messages": len(found),
            "payload_bytes": sum(len(one.payload) for one in found),
            "first_ns": min(one.time_ns for one in found),
            "last_ns": max(one.time_ns for one in found),
        }

    def level(self, beginning, separator="."):
        depth = len(beginning.split(separator))
        found = [
            one
            for one in self.messages
            if (tokens := _text(one.subject).split(separator))[:depth] == beginning.split(separator)
            and len(tokens) >= depth
        ]
        return (
            len(found),
            sum(len(one.payload) for one in found),
            len({shown(one.subject) for one in found}),
        )

    def silent(self, since_ns):
        return {name for name, found in self.by_subject.items() if max(o.time_ns for o in found) < since_ns}

    def pauses(self):
        longest = {}
        for name, found in self.by_subject.items():
            times = sorted(one.time_ns for one in found)
            steps = [(after - before, before) for before, after in pairwise(times)]
            if steps:
                longest[name] = max(steps)[0]
        return longest

    def losses(self):
        """By publisher and hour: lost, unknown, missing and restarts."""
        found = defaultdict(Counter)
        last = {}
        for one in self.records:
            key = (None if one.origin is None else one.origin.hex(), one.time_ns // HOUR * HOUR)
            if one.kind == 1:
                found[key].update(lost=one.lost or 0, unknown=int(one.lost is None), gaps=1)
            elif one.kind == 2:
                found[key].update(damaged=1)
            elif one.origin is not None and one.sequence is not None:
                if one.origin in last:
                    step = one.sequence - last[one.origin] - 1
                    found[key].update({"missing": step} if step >= 0 else {"restarts": 1})
                last[one.origin] = one.sequence
        return {key: +counts for key, counts in found.items() if +counts}

    def quantile(self, share):
        sizes = sorted(len(one.payload) for one in self.messages)
        return next(size for at, size in enumerate(sizes, 1) if at >= share * len(sizes))


def _text(subject):
    return subject if isinstance(subject, str) else subject.decode(errors="replace")
