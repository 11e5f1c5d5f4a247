"""The rows of `tests/vectors/kubemq.group.jsonl`, which real servers answered, over real sockets."""

import asyncio

import pytest

import oz.asyncio
from support.routed import finish, mark
from support.vector_rows import rows
from support.virtual import VirtualStage
from support.waiting import DEADLINE

ROWS = rows("kubemq.group")
MESSAGES = 30

pytestmark = pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])


def check(row, got):
    """Every ungrouped receiver got all; of those in each list one got each message, each in turn."""
    everything = list(range(MESSAGES))
    expected = set(row["all"]) | {name for names in row["exactly_one_of"] for name in names}
    for name in row["all"]:
        assert got[name] == everything
    for names in row["exactly_one_of"]:
        assert sorted(number for name in names for number in got[name]) == everything
        assert {len(got[name]) for name in names} == {MESSAGES // len(names)}
    assert {name for name, numbers in got.items() if numbers} == expected


def subscribe(sub, receiver, numbers):
    def take(message):
        if message.payload:
            numbers.append(int(message.payload))

    sub.subscribe(receiver["channel"], group=receiver["group"] or None, handler=take)


def test_receivers_get_what_the_row_says(row):
    with VirtualStage() as stage:
        pub = stage.pub(dialect="kubemq")
        got = {receiver["name"]: [] for receiver in row["receivers"]}
        subs = []
        for receiver in row["receivers"]:
            sub = stage.sub(pub, dialect="kubemq")
            subscribe(sub, receiver, got[receiver["name"]])
            mark(sub)
            subs.append(sub)
        for number in range(MESSAGES):
            pub.publish(row["channel"], b"%d" % number)
        finish([pub], *subs)
        check(row, got)


def test_receivers_for_asyncio_get_what_the_row_says(row):
    async def scenario():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*", dialect="kubemq") as pub:
            got = {receiver["name"]: [] for receiver in row["receivers"]}
            subs = []
            for receiver in row["receivers"]:
                sub = oz.asyncio.Subscriber(pub.endpoint, filtering="publisher", dialect="kubemq")
                subscribe(sub, receiver, got[receiver["name"]])
                sub.subscribe("zz.end")
                await sub.wait_ready(timeout=DEADLINE)
                subs.append(sub)
            await pub.publish_many((row["channel"], b"%d" % number) for number in range(MESSAGES))
            await pub.flush()
            await pub.publish("zz.end")
            for sub in subs:
                await sub.receive(timeout=DEADLINE)
                await sub.close()
            check(row, got)

    asyncio.run(scenario())
