"""What is remembered of ids, held against the ids themselves: which came before, in how many spans."""

from __future__ import annotations

from itertools import pairwise

from oz.protocol.subscriber import dedupe
from oz.protocol.subscriber.dedupe import Repeats
from simulation.changing import changed
from simulation.ledger import check

SINGLES, SERIES, SPANS = 6, 3, 12
"""So few that they matter."""

IDS = 150


def _count_spans(numbers):
    """Count the runs of numbers one behind the other."""
    known = sorted(numbers)
    return sum(after != before + 1 for before, after in pairwise(known)) + bool(known)


def _newest(numbers):
    """Leave out the lowest run of numbers, where there are too many."""
    if _count_spans(numbers) <= SPANS:
        return numbers
    above = min(number for number in numbers if number + 1 not in numbers)
    return {number for number in numbers if number > above}


def check_repeats(random):
    """An id is new once, as long as it is remembered; what was used last is remembered for longest."""
    with changed((dedupe, "SINGLES", SINGLES), (dedupe, "SERIES", SERIES), (dedupe, "SPANS", SPANS)):
        repeats, singles, series = Repeats(), {}, {}
        for _ in range(IDS):
            if random.random() < 0.3:
                one = b"%d" % random.randrange(3 * SINGLES)
                is_new = one not in singles
                singles[one] = None
                if len(singles) > SINGLES:
                    del singles[next(iter(singles))]
            else:
                one = name, number = b"%d" % random.randrange(SERIES + 1), random.randrange(60)
                numbers = series.pop(name, set())
                is_new = number not in numbers
                series[name] = _newest(numbers | {number})
                while len(series) > SERIES or (
                    len(series) > 1 and sum(map(_count_spans, series.values())) > SPANS
                ):
                    del series[next(iter(series))]
            check(repeats.add(one) == is_new, "{} is new: {}", one, is_new)
            spans = sum(map(_count_spans, series.values()))
            check(len(repeats) == len(singles) + spans, "{} are remembered", len(repeats))
