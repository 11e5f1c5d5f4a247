"""What happens in a run, made from a seed: the traffic, the faults, and who is there."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import NamedTuple

MESSAGES, FAULTS = 500, 20
BUSY = 5.0
"""Virtual seconds of traffic and faults; a run with a long cut has more."""

LONG_CUTS = 0.1
"""The share of runs in which somebody is cut off for so long that publishers forget who it is."""

TOPICS = [f"{area}.{name}" for area in "ab" for name in ("x", "y", "z")] + ["a.x.deep"]


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class Burst(NamedTuple):
    """Messages that one publisher sends at once, or one by one."""

    at: float
    publisher: str
    subjects: tuple[str, ...]
    at_once: bool


FORMS = {"plain": 78, "rich": 6, "request": 2, "large": 5, "frames": 2, "with id": 6, "again": 3}
"""Forms of messages, and how often each comes."""
FORM_NAMES, FORM_WEIGHTS = tuple(FORMS), tuple(accumulate(FORMS.values()))

KINDS = {
    "reset": 4, "cut": 5, "half_open": 2, "stall": 3, "throttle": 2, "busy": 5, "freeze": 3, "kill": 3,
    "close": 2, "more": 3, "less": 2, "drain": 3,
}  # fmt: skip


def make_faults(random: Random, pairs, publishers, subscribers, proxies) -> list[Fault]:
    """Choose what goes wrong, when, with whom and for how long."""
    faults = []
    kinds, weights = zip(*KINDS.items(), strict=True)
    for _ in range(FAULTS):
        kind = random.choices(kinds, weights)[0]
        at, lasts = random.uniform(0.5, BUSY - 1.0), random.choice((0.05, 0.3, 1.2, 3.0))
        if kind in ("reset", "cut", "half_open", "stall", "throttle"):
            who = random.choice(pairs)
            if random.random() < 0.5:
                who = who[::-1]
        elif kind in ("busy", "more", "less", "drain"):
            who = (random.choice(subscribers),)
        elif kind == "freeze":
            who = (random.choice(publishers + subscribers),)
        else:
            who = (random.choice(publishers + subscribers + proxies),)
        faults.append(Fault(at, kind, who, lasts))
    if random.random() < LONG_CUTS:
        place = random.randrange(len(faults))
        faults[place] = Fault(random.uniform(1.0, 4.0), "cut", random.choice(pairs), 32.0)
    return sorted(faults)


def make_traffic(random: Random, publishers) -> list[Burst]:
    """Choose what is published, and when."""
    bursts, left = [], MESSAGES
    while left:
        size = min(left, random.choice((1, 1, 3, 8, 20, 60)))
        subjects = tuple(random.choices(TOPICS, k=size))
        at_once = random.random() < 0.85
        bursts.append(Burst(random.uniform(0.2, BUSY), random.choice(publishers), subjects, at_once))
        left -= size
    return sorted(bursts)
