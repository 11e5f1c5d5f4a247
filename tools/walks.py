"""Walk a state machine through every order of its events, and draw what it does in Mermaid."""

import re
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

DEPTH = 5
START = "[*]"

Machine = dict[str, Any]
"""What one walk keeps: the object of oz, the clock, and what was sent to it."""


class Drawn(NamedTuple):
    """One state machine: how to begin, what may happen, and which state it is in."""

    name: str
    begin: Callable[[], Machine]
    events: dict[str, Callable[[Machine], object]]
    state: Callable[[Machine], str]


class Arrow(NamedTuple):
    """One event that led from a state to another."""

    before: str
    after: str
    event: str


_walked: dict[str, list[Arrow]] = {}


def arrows(drawn: Drawn) -> list[Arrow]:
    """Walk every order of events; return the arrows in the order in which they were found."""
    if drawn.name in _walked:
        return _walked[drawn.name]
    found: dict[Arrow, None] = {}
    for depth in range(1, DEPTH + 1):
        for order in product(drawn.events, repeat=depth):
            machine, *first, last = drawn.begin(), *order
            # Where these lead to was found by an order that ends with them.
            for event in first:
                drawn.events[event](machine)
            before = drawn.state(machine)
            drawn.events[last](machine)
            after = drawn.state(machine)
            if after != before:
                found[Arrow(before, after, last)] = None
    return _walked.setdefault(drawn.name, list(found))


def diagram(drawn: Drawn) -> str:
    """Write a state machine in Mermaid."""
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in arrows(drawn):
        labels.setdefault((arrow.before, arrow.after), []).append(arrow.event)
    states = dict.fromkeys(state for pair in labels for state in pair)
    names = {state: state if state == START else re.sub(r"\W+", "_", state) for state in states}
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    {name} : {state}" for state, name in names.items() if name != state]
    lines += [
        f"    {names[before]} --> {names[after]} : {' / '.join(events)}"
        for (before, after), events in labels.items()
    ]
    return "\n".join([*lines, "```"])
