"""Queue groups as servers answered: the rows of `tests/vectors/kubemq.group.jsonl`."""

import pytest

import oz
from support.vector_rows import rows
from support.waiting import DEADLINE

MESSAGES = 30
ROWS = rows("kubemq.group")


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_receivers_of_each_row_get_the_messages(row):
    with oz.Publisher("tcp://127.0.0.1:*", dialect="kubemq") as pub:
        subscribers = {}
        for receiver in row["receivers"]:
            sub = oz.Subscriber(pub.endpoint, filtering="publisher", dialect="kubemq")
            sub.subscribe(receiver["channel"], group=receiver["group"] or None)
            sub.subscribe("zz.end")
            sub.wait_ready(timeout=DEADLINE)
            subscribers[receiver["name"]] = sub
        pub.publish_many((row["channel"], b"%d" % number) for number in range(MESSAGES))
        pub.publish("zz.end")
        got = {name: numbers_of(sub) for name, sub in subscribers.items()}
    everything = list(range(MESSAGES))
    for name in row["all"]:
        assert got[name] == everything
    for names in row["exactly_one_of"]:
        assert sorted(number for name in names for number in got[name]) == everything
        assert {len(got[name]) for name in names} == {MESSAGES // len(names)}
    expected = set(row["all"]) | {name for names in row["exactly_one_of"] for name in names}
    assert {name for name, numbers in got.items() if numbers} == expected


def numbers_of(sub):
    """Close a subscriber after the last message; return the numbers that it received."""
    numbers = []
    # Messages of a group are another stream than the end, so both are awaited.
    with sub:
        assert sub.drain(timeout=DEADLINE)
        for message in sub:
            if message.payload:
                numbers.append(int(message.payload))
    return numbers
