"""Queue groups: of the members of a group, known by its name, one gets each message of each publisher."""

import os
import signal
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import zmq

import oz.asyncio
from support.inside import engine_of
from support.routed import END, Stage, finish, here, mark, payloads
from support.scripts import started
from support.sizes import in_suite
from support.virtual import VirtualStage
from support.waiting import DEADLINE, Thread, until

MEMBER = Path(__file__).parent / "member.py"


@pytest.fixture
def stage():
    with VirtualStage() as made:
        yield made


@pytest.fixture
def sockets():
    """The same with sockets."""
    with Stage() as made:
        yield made


def publish(pub, count, subject="a.%d", first=0, **options):
    for number in range(first, first + count):
        pub.publish(subject % number if "%" in subject else subject, b"%d" % number, **options)


def numbers(*lists):
    return [int(message.payload) for got in lists for message in got]


def test_members_take_turns_and_everybody_else_gets_all(stage):
    pub = stage.pub()
    members = [stage.member(pub, group="workers") for _ in range(3)]
    others = [stage.member(pub) for _ in range(2)]
    publish(pub, 300)
    finish([pub], *(sub for sub, _ in members + others))
    shares = [numbers(got) for _, got in members]
    assert sorted(chain(*shares)) == list(range(300))
    assert [len(share) for share in shares] == [100, 100, 100]
    assert all(share == sorted(share) for share in shares)
    assert all(numbers(got) == list(range(300)) for _, got in others)


def test_each_publisher_picks_for_itself_and_loses_nothing(stage):
    pubs = [stage.pub(), stage.pub()]
    members = [stage.member(*pubs, group="workers") for _ in range(2)]
    publish(pubs[0], 100)
    publish(pubs[1], 100, first=100)
    finish(pubs, *(sub for sub, _ in members))
    assert sorted(numbers(*(got for _, got in members))) == list(range(200))
    for _, got in members:
        assert set(Counter(message.origin for message in got).values()) == {50}


def test_a_group_is_known_by_its_name_whatever_its_patterns(stage):
    pub = stage.pub()
    patterns = ["a.>", "a.*", "a.b"]
    members = [stage.member(pub, pattern=pattern, group="g") for pattern in patterns]
    for subject, able in [("a.b", 3), ("a.c", 2), ("a.b.c", 1)]:
        for _, got in members:
            got.clear()
        publish(pub, 60, subject)
        finish([pub], *(sub for sub, _ in members))
        assert [len(got) for _, got in members] == [60 // able] * able + [0] * (3 - able)
        assert sorted(numbers(*(got for _, got in members))) == list(range(60))


def test_several_groups_each_get_a_message_once(stage):
    pub = stage.pub()
    groups = {name: [stage.member(pub, group=name) for _ in range(2)] for name in ("x", "y", "X")}
    publish(pub, 100)
    finish([pub], *(sub for members in groups.values() for sub, _ in members))
    for members in groups.values():
        assert sorted(numbers(*(got for _, got in members))) == list(range(100))


def test_subjects_used_alternately_leave_no_member_out(stage):
    pub = stage.pub()
    members = [stage.member(pub, pattern=pattern, group="g") for pattern in ("a.1", "a.*", "a.2")]
    for number in range(100):
        publish(pub, 1, f"a.{1 + number % 2}", first=number)
    finish([pub], *(sub for sub, _ in members))
    assert [len(got) for _, got in members] == [25, 50, 25]


def test_a_member_may_be_an_ungrouped_subscriber_of_the_same_subject_too(stage):
    pub = stage.pub()
    members = [stage.member(pub, group="g") for _ in range(2)]
    alone = []
    members[0][0].subscribe("a.>", handler=alone.append)
    members[0][0].wait_ready(timeout=DEADLINE)
    publish(pub, 100)
    finish([pub], *(sub for sub, _ in members))
    assert numbers(alone) == list(range(100))
    assert sorted(numbers(*(got for _, got in members))) == list(range(100))
    assert len(members[0][1]) == len(members[1][1]) == 50


def test_what_has_headers_or_is_large_goes_to_one_member_too(stage):
    pub = stage.pub()
    members = [stage.member(pub, group="g") for _ in range(2)]
    other, everything = stage.member(pub)
    sent = [b"small", bytes(70_000), [b"two", b"frames"], b"rich", bytes(65_536), b"end"]
    for number, payload in enumerate(sent):
        pub.publish("a.b", payload, headers={"n": number} if number % 2 else None)
    finish([pub], other, *(sub for sub, _ in members))
    assert [message.frames for message in everything] == [
        [b"a.b", *payload] if isinstance(payload, list) else [b"a.b", payload] for payload in sent
    ]
    first_frames = [payload[0] if isinstance(payload, list) else payload for payload in sent]
    shares = [list(map(first_frames.index, payloads(got))) for _, got in members]
    assert sorted(chain(*shares)) == list(range(6))
    assert all(len(share) == 3 and share == sorted(share) for share in shares)


def shares_of(members, key=lambda message: message.subject):
    return [{key(message) for message in got} for _, got in members]


@pytest.mark.parametrize("by_key", [False, True], ids=["by subject", "by key"])
def test_a_sticky_choice_stays_and_a_leaving_member_moves_only_its_share(stage, by_key):
    pub = stage.pub()
    members = [stage.member(pub, group="g", policy="sticky") for _ in range(4)]

    def publish_all():
        for _, got in members:
            got.clear()
        for number in range(200):
            if by_key:
                for at in range(2):
                    pub.publish(f"a.{at}", b"%d" % number, key=f"k{number}" if at else b"k%d" % number)
            else:
                pub.publish(f"a.{number}")
        finish([pub], *(sub for sub, _ in members))
        assert sum(len(got) for _, got in members) == (400 if by_key else 200)
        return shares_of(members, (lambda one: one.payload) if by_key else (lambda one: one.subject))

    before = publish_all()
    assert sum(map(len, before)) == 200, "a key was at two members"
    assert min(map(len, before)) >= 20
    assert publish_all() == before
    gone = members.pop(1)[0]
    gone.drain()
    gone.close()
    moved = before.pop(1)
    after = publish_all()
    assert sum(map(len, after)) == 200
    for now, then in zip(after, before, strict=True):
        assert then <= now
        assert now - then <= moved
        assert now - then, "the share went to few"


def test_the_senior_member_gets_all_until_it_leaves(stage):
    pub = stage.pub()
    members = [stage.member(pub, group="g", policy="failover") for _ in range(3)]
    for step in range(3):
        publish(pub, 50, first=50 * step)
        finish([pub], *(sub for sub, _ in members[step:]))
        assert numbers(members[step][1]) == list(range(50 * step, 50 * step + 50))
        assert not any(got for _, got in members[step + 1 :])
        leaver = members[step][0]
        leaver.drain() if step else leaver.close()
        until(lambda left=2 - step: pub.interest("a.1") == bool(left) and _members(pub) == left)


def _members(pub):
    return sum(
        bool(one.delivery.group) and bool(one.patterns) for one in engine_of(pub).router.streams.values()
    )


def test_the_senior_members_policy_counts(stage):
    pub = stage.pub()
    members = [
        stage.member(pub, group="g", policy=policy) for policy in ("failover", "round_robin", "round_robin")
    ]
    publish(pub, 60)
    finish([pub], *(sub for sub, _ in members))
    assert [len(got) for _, got in members] == [60, 0, 0]
    members[0][0].close()
    until(lambda: _members(pub) == 2)
    publish(pub, 60)
    finish([pub], *(sub for sub, _ in members[1:]))
    first, *others = (len(got) for _, got in members)
    # Turns begin anew when an interest changes, as here it may while the second half is published.
    assert (first, sum(others)) == (60, 60)
    assert min(others) >= 25


def test_a_member_that_drains_under_traffic_loses_nothing_of_its_share(sockets):
    # Nobody reads meanwhile, and a busy machine may take its time.
    pub = sockets.pub(high_water_mark=0)
    stays, leaves = (sockets.member(pub, group="g") for _ in range(2))
    sent = []

    def keep_publishing():
        while not is_over:
            sent.append(len(sent))
            pub.publish("a.b", b"%d" % sent[-1])

    is_over = []
    publishing = Thread(keep_publishing)
    until(lambda: len(sent) > 200)
    leaves[0].drain(timeout=DEADLINE)
    with pytest.raises(oz.ClosedError):
        leaves[0].receive(timeout=0)
    is_over.append(True)
    publishing.outcome()
    finish([pub], stays[0])
    assert leaves[1]
    assert sorted(numbers(stays[1], leaves[1])) == sent


def test_a_member_that_closes_under_traffic_is_not_picked_any_more(stage):
    pub = stage.pub()
    stays, leaves = (stage.member(pub, group="g") for _ in range(2))
    leaves[0].close()
    until(lambda: _members(pub) == 1)
    publish(pub, 100)
    finish([pub], stays[0])
    assert numbers(stays[1]) == list(range(100))


@pytest.mark.parametrize("policy", in_suite(["sticky"], ["round_robin", "failover"]))
def test_what_a_killed_member_would_get_goes_to_the_others_at_once(sockets, policy):
    pub = sockets.pub()
    with started(MEMBER, pub.endpoint, policy) as victim:
        until(lambda: _members(pub) == 1)
        stays = sockets.member(pub, group="g", policy=policy)
        publish(pub, 100)
        processed = [
            int(victim.stdout.readline()) for _ in range({"round_robin": 50, "failover": 100}.get(policy, 1))
        ]
        assert processed
        sent, knows = 100, None
        os.kill(victim.pid, signal.SIGKILL)
        while sent < 5_000 or knows is None or sent < knows + 500:
            publish(pub, 1, first=sent)
            sent += 1
            if knows is None and _members(pub) == 1:
                pub.flush()
                knows = sent
            if sent % 10 == 0:
                # Nobody reads: until a busy machine tells of the end, more may come than there is room for.
                time.sleep(0.02 if sent > 5_000 and knows is None else 0.0002)
        processed += map(int, victim.stdout.read().split())
    finish([pub], stays[0])
    lost = set(range(sent)) - set(numbers(stays[1])) - set(processed)
    assert len(stays[1]) + len(processed) + len(lost) == sent, "something came twice"
    # All that was on its way, and what was published before the connection was seen to end.
    assert all(number < knows for number in lost)
    if policy == "failover":
        assert numbers(stays[1])[0] <= knows


def test_a_member_that_is_full_is_passed_over(sockets):
    context = sockets.enter_context(zmq.Context())
    pub = sockets.enter_context(
        oz.Publisher("inproc://full", context=context, high_water_mark=2, max_batch=1)
    )
    full = sockets.sub(pub, context=context, high_water_mark=1)
    full.subscribe("a.>", group="g")
    full.wait_ready(timeout=DEADLINE)
    able = sockets.sub(pub, context=context, high_water_mark=0)
    got = []
    able.subscribe("a.>", group="g", handler=got.append)
    mark(able)
    for number in range(200):
        pub.publish("a.b", b"%d" % number if number % 2 else bytes(70_000), headers={"n": number})
        able.run(timeout=0)
    finish([pub], able)
    rest = here(full)
    assert 1 <= len(rest) <= 8
    assert pub.stats.missed == full.stats.lost == able.stats.lost == 0
    assert sorted(message.headers["n"] for message in got + rest) == list(range(200))


def test_members_behind_a_proxy_share_too(sockets, proxy):
    pubs = [sockets.enter_context(oz.Publisher(connect=proxy.front)) for _ in range(2)]
    members = [sockets.sub(proxy.back) for _ in range(3)]
    others = [sockets.sub(proxy.back)]
    got = {sub: [] for sub in members + others}
    for sub in members:
        sub.subscribe("a.>", group="g", handler=got[sub].append)
    others[0].subscribe("a.>", handler=got[others[0]].append)
    for sub in got:
        sub.subscribe(END)
    for pub in pubs:
        until(
            lambda pub=pub: (
                _members(pub) == 3 and engine_of(pub).router.count(END.encode(), END.encode()) == 4
            )
        )
    publish(pubs[0], 150)
    publish(pubs[1], 150, first=150)
    finish(pubs, *got)
    assert sorted(numbers(got[others[0]])) == list(range(300))
    shares = [numbers(got[sub]) for sub in members]
    assert sorted(chain(*shares)) == list(range(300))
    assert [len(share) for share in shares] == [100, 100, 100]


@pytest.fixture
def proxy(context):
    """A plain zmq.proxy, as anybody would write it."""

    class Ends:
        front = back = ""

    ends, control = Ends(), context.socket(zmq.PAIR)
    control.bind("inproc://control")

    def forward():
        with (
            context.socket(zmq.XSUB) as front,
            context.socket(zmq.XPUB) as back,
            context.socket(zmq.PAIR) as stop,
        ):
            stop.connect("inproc://control")
            for one in (front, back):
                one.linger = 0
                one.bind("tcp://127.0.0.1:*")
            ends.front = front.last_endpoint.decode()
            ends.back = back.last_endpoint.decode()
            zmq.proxy_steerable(front, back, None, stop)

    thread = Thread(forward)
    until(lambda: ends.back)
    yield ends
    control.send(b"TERMINATE")
    thread.outcome()
    control.close(0)


@pytest.fixture
def context():
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(0)


def test_one_subject_stays_in_order_at_each_member_while_another_is_full(stage):
    pub = stage.pub(high_water_mark=2, max_batch=60)
    members = [stage.sub(pub, high_water_mark=2) for _ in range(3)]
    for one in members:
        one.subscribe("a.b", group="g")
        one.wait_ready(timeout=DEADLINE)
    got = [[] for _ in members]
    # The second takes nothing, so that the first was sent later ones before it is found full.
    for start in range(0, 3_000, 60):
        pub.publish_many(("a.b", b"%06d" % number + bytes(5_000)) for number in range(start, start + 60))
        for place in (0, 2):
            got[place] += here(members[place], 0.001)
    for place, one in enumerate(members):
        got[place] += here(one, 0.05)
    orders = [[int(message.payload[:6]) for message in one] for one in got]
    assert all(orders)
    assert [order == sorted(order) for order in orders] == [True] * 3
    pub.close(timeout=0.2)
