"""Account of one subscriber: received messages and reported gaps, compared with the published messages.

The oracle knows only the runs and numbers in the payloads, and the gaps that the subscriber reported.
"""

import itertools


def messages(events):
    return [event[1:] for event in events if event[0] == "m"]


def gaps(events):
    return [event[1:] for event in events if event[0] == "g"]


def check_holes(events, *, reports_changes=True):
    """Check that messages are in order, and missing only where a gap of unknown or of this size was reported.

    Args:
        events: of the subscriber.
        reports_changes: whether a gap is due between two runs of the publisher.
    """
    for before, after in itertools.pairwise(messages(events)):
        assert before < after, f"{after} came after {before}"
    before, reported = None, []
    for event in events:
        if event[0] == "g":
            reported.append(event[1])
            continue
        here = event[1:]
        is_change = before is not None and before[0] != here[0] and not reports_changes
        if before is not None and None not in reported and not is_change:
            assert before[0] == here[0], f"{here} follows {before} without a gap of unknown size"
            missing = here[1] - before[1] - 1
            assert missing == sum(reported), f"{reported} reported between {before} and {here}"
        before, reported = here, []
