"""Account of one subscriber: received messages and reported gaps, compared with the published messages.

The oracle knows only the numbers in the payloads and the lines of the log; see `faults.subscribing`.
"""

import itertools
from pathlib import Path


def read_log(path):
    """Return the events of a log, in order: tuples of kind and fields."""
    events = []
    for line in Path(path).read_text().splitlines():
        kind, *fields = line.split()
        if kind in "mr":
            run, number, *when = fields
            events.append((kind, int(run), int(number), float(when[0]) if when else None))
        elif kind == "g":
            events.append((kind, None if fields[0] == "?" else int(fields[0]), fields[1]))
        else:
            events.append((kind, *fields))
    return events


def messages(events):
    return [(event[1], event[2]) for event in events if event[0] in "mr"]


def gaps(events):
    return [event[1:] for event in events if event[0] == "g"]


def check_order(events):
    """Check that the messages are in order, that none came twice and that each was wanted."""
    assert not [event for event in events if event[0] == "u"], "messages that no pattern matches"
    found = messages(events)
    for before, after in itertools.pairwise(found):
        assert before < after, f"{after} came after {before}"


def check_complete(events, published, run=1):
    """Check that each message of one publisher came once, in order, and that no gap was reported."""
    check_order(events)
    assert gaps(events) == []
    found = messages(events)
    missing = sorted({(run, item) for item in range(published)} - set(found))
    assert not missing, f"{len(missing)} of {published} missing without a gap: {missing[:10]}"
    assert len(found) == published


def check_group(logs, published, run=1):
    """Check that the members of a group received each message, and that repeats are marked.

    Args:
        logs: events of each member, also of members that were killed.
        published: messages that match.
        run: of the publisher.
    """
    unmarked, marked = [], set()
    for events in logs:
        unmarked += [event[2] for event in events if event[0] == "m"]
        marked.update(event[2] for event in events if event[0] == "r")
    twice = (
        sorted({item for item in unmarked if unmarked.count(item) > 1})
        if len(unmarked) > len(set(unmarked))
        else []
    )
    assert not twice, f"{len(twice)} came twice without a mark: {twice[:10]}"
    missing = sorted(set(range(published)) - set(unmarked) - marked)
    assert not missing, f"{len(missing)} of {published} are missing: {missing[:10]}"


def check_holes(events, *, reports_changes=True):
    """Check that messages are missing only where a gap of unknown size or of this size was reported.

    Args:
        events: of the log.
        reports_changes: whether a gap is due between two runs of the publisher.
    """
    check_order(events)
    before, reported = None, []
    for event in events:
        if event[0] == "g":
            reported.append(event[1])
            continue
        here = event[1:3]
        is_change = before is not None and before[0] != here[0] and not reports_changes
        if before is not None and None not in reported and not is_change:
            assert before[0] == here[0], f"{here} follows {before} without a gap of unknown size"
            missing = here[1] - before[1] - 1
            assert missing == sum(reported), f"{reported} reported between {before} and {here}"
        before, reported = here, []
