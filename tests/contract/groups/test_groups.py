"""Queue groups."""

import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import chain, count

import pytest

from contract.adapter import Delivery, Options, errors
from contract.promises import cases, promise
from support.waiting import DEADLINE, until

PREFIX = {"prefix": "A group needs filtering at the publisher."}
COUNT = 60


class Members:
    """Publisher and members of a queue group, over sockets or nodes."""

    def __init__(self, carrier, sockets, nodes):
        self._is_node = carrier == "node"
        self._factory = nodes if self._is_node else sockets
        self.publisher = nodes.node("publisher") if self._is_node else sockets.publisher()

    def add(self, pattern="job.>", group="workers", **delivery):
        """Return the subscription of a new member, which the publisher serves."""
        options = {"delivery": Delivery(**delivery)} if delivery else {}
        if not self._is_node:
            subscriber = self._factory.subscriber(self.publisher)
            made = self._factory.subscribe(self.publisher, subscriber, pattern, group=group, **options)
            made.owner = subscriber
            return made
        node = self._factory.node(f"member{len(self._factory.made)}")
        node.wait_ready("publisher")
        made = node.subscribe(pattern, group=group, **options)
        node.wait_ready()
        made.owner = node
        return made

    def publish(self, start=0, **options):
        for number in range(start, start + COUNT):
            self.publisher.publish(f"job.{number % 10}", b"%d" % number, **options)


@pytest.fixture
def members(carrier, api, transport, filtering, endpoint, directory):
    from contract.conftest import Nodes, Sockets

    return Members(carrier, Sockets(api, endpoint, filtering), Nodes(api, transport, directory))


def received(subscriptions, total):
    """Return the numbers that each subscription receives, until all together have a total."""
    got = [[] for _ in subscriptions]

    def receive():
        for item, numbers in zip(subscriptions, got, strict=True):
            with suppress(errors.Timeout):
                while True:
                    numbers.append(int(item.receive(timeout=0.005).payload))
        return sum(map(len, got)) >= total

    until(receive)
    return got


@promise("Exactly one member of a queue group gets each message, each member in order.", not_for=PREFIX)
def test_one_member_gets_each_message(members):
    group = [members.add() for _ in range(3)]
    members.publish()
    got = received(group, COUNT)
    assert sorted(chain(*got)) == [*range(COUNT)]
    assert all(numbers == sorted(numbers) for numbers in got)


@promise("With `round_robin` idle members get equal shares.", not_for=PREFIX)
def test_round_robin_gives_equal_shares(members):
    group = [members.add(policy="round_robin") for _ in range(3)]
    members.publish()
    assert [len(numbers) for numbers in received(group, COUNT)] == [COUNT // 3] * 3


@promise("A plain subscription beside a group gets each message.", not_for=PREFIX)
def test_plain_subscriptions_beside_a_group_get_each_message(members):
    group = [members.add() for _ in range(2)]
    plain = members.add(group=None)
    members.publish()
    got = received([*group, plain], 2 * COUNT)
    assert got.pop() == [*range(COUNT)]
    assert sorted(chain(*got)) == [*range(COUNT)]


@promise("Each of several groups gets each message once.", not_for=PREFIX)
def test_each_group_gets_each_message(members):
    workers = [members.add(group="workers") for _ in range(2)]
    audits = [members.add(group="audits")]
    members.publish()
    got = received([*workers, *audits], 2 * COUNT)
    assert got.pop() == [*range(COUNT)]
    assert sorted(chain(*got)) == [*range(COUNT)]


@promise("With `sticky` all messages of one key go to one member.", not_for=PREFIX)
def test_sticky_keeps_a_key_at_one_member(members):
    group = [members.add(policy="sticky") for _ in range(3)]
    keys = 31  # not a multiple of the members, so that turns do not look sticky
    for number in range(3 * keys):
        members.publisher.publish(f"job.{number}", b"%d" % (number % keys), key=b"key%d" % (number % keys))
    got = received(group, 3 * keys)
    shares = [Counter(numbers) for numbers in got]
    assert all(times == 3 for share in shares for times in share.values())
    assert sum(map(len, shares)) == keys
    assert all(shares)


@promise("When a sticky member leaves, only its keys move.", not_for=PREFIX)
def test_sticky_moves_only_the_keys_of_the_member_that_left(members):
    group = [members.add(policy="sticky") for _ in range(3)]
    members.publish()
    before = received(group, COUNT)
    group[0].drain()
    members.publish()
    after = received(group[1:], COUNT)
    for old, new in zip(before[1:], after, strict=True):
        assert set(old) <= set(new)
    assert sorted(chain(*after)) == [*range(COUNT)]


@promise(
    "With `failover` the first member gets all messages; when it leaves, the next member gets them.",
    not_for=PREFIX,
)
def test_failover_moves_to_the_next_member(members):
    group = [members.add(policy="failover") for _ in range(3)]
    members.publish()
    assert received(group, COUNT) == [[*range(COUNT)], [], []]
    group[0].drain()
    members.publish()
    assert received(group[1:], COUNT) == [[*range(COUNT)], []]


@promise(
    "If a member leaves by `drain` while messages are published, each message goes to one member.",
    not_for=PREFIX,
)
@cases("policy", ["round_robin", "sticky", "failover"])
def test_member_that_drains_under_traffic_loses_nothing(sockets, api, policy):
    publisher = sockets.publisher()
    leaving, staying = (sockets.subscriber(publisher) for _ in range(2))
    options = {"group": "workers", "delivery": Delivery(policy=policy)}
    for item in (leaving, staying):
        sockets.subscribe(publisher, item, "job.>", **options)
    is_drained = threading.Event()
    numbers = count()

    def publish():
        while not is_drained.is_set():
            number = next(numbers)
            publisher.publish(f"job.{number % 10}", b"%d" % number)
            time.sleep(0.0005)  # the pace of the messages, so that the drain meets some of them
        publisher.flush()

    publishing = api.start(publish)
    received = [leaving.receive()]
    leaving.drain()
    received += leaving
    is_drained.set()
    publishing.outcome()
    published = next(numbers)

    def have_all():
        with suppress(errors.Timeout):
            received.extend(staying.receive_many(timeout=0.05))
        return len(received) >= published

    until(have_all)
    assert sorted(int(message.payload) for message in received) == [*range(published)]


@promise(
    "A full member of a `round_robin` group gets no new messages; the other members share them.",
    not_for=PREFIX,
)
def test_full_member_is_passed_over(sockets):
    publisher = sockets.publisher(on_full="block", options=Options(high_water_mark=10, batch=1))
    full = sockets.subscriber(publisher, options=Options(high_water_mark=10))
    idle = [sockets.subscriber(publisher) for _ in range(2)]
    for item in (full, *idle):
        sockets.subscribe(publisher, item, "job.>", group="workers")
    published, received = 0, []

    def receive(subscriber, timeout=0.02):
        """Return the numbers that have arrived at a member."""
        numbers = []
        with suppress(errors.Timeout):
            while True:
                numbers.append(int(subscriber.receive(timeout=timeout).payload[:8]))
        received.extend(numbers)
        return numbers

    def publish(count):
        """Publish messages; return the number of the first."""
        nonlocal published
        start, published = published, published + count
        for number in range(start, published):
            publisher.publish(f"job.{number}", b"%08d" % number + bytes(50_000))
        publisher.flush()
        return start

    def passes_over():
        """Return whether all of 12 messages arrive at the members that read."""
        start = publish(12)
        # A short wait is enough on an idle machine; the full member is full after 600 messages at the latest.
        timeout = 0.02 if start < 600 else 0.5
        if sum(number >= start for item in idle for number in receive(item, timeout)) < 12:
            return False
        # A member that was not heard for 3 s is passed over too, although it is not full.
        *_, second, first = sorted(subscriber.pending for subscriber in publisher.subscribers)
        return first >= 10 > second

    until(passes_over)
    start, shares = publish(48), [0, 0]

    def have_arrived():
        for at, item in enumerate(idle):
            shares[at] += sum(number >= start for number in receive(item))
        # The members that read are full after 10 messages each: then the full member gets up to 10 more.
        return sum(shares) >= 38

    until(have_arrived)
    assert all(shares)
    assert len(received) < published

    def have_all():
        for item in (full, *idle):
            receive(item)
        return len(received) >= published

    until(have_all)
    assert sorted(received) == [*range(published)]


@promise("A group member gets its share again after its connection was cut.", not_for=PREFIX, small=1)
def test_member_whose_connection_was_cut_returns(proxied, api):
    other = api.subscriber(proxied.publisher.endpoint, filtering="publisher")
    other.subscribe("job.>", group="workers")
    other.wait_ready()
    proxied.subscribe("job.>", group="workers")
    members = (proxied.subscriber, other)
    proxied.proxy.cut()

    def shares():
        """Publish 20 messages; return how many of them arrive at each member."""
        numbers = [b"%d" % number for number in range(20)]
        proxied.publisher.publish_many(("job.a", number) for number in numbers)
        proxied.publisher.flush()
        arrived = [[], []]
        with suppress(errors.Timeout):
            while sum(map(len, arrived)) < 20:
                for item, payloads in zip(members, arrived, strict=True):
                    if len(payloads) < 10:
                        payloads += [message.payload for message in item.receive_many(timeout=0.1)]
        return [len(payloads) for payloads in arrived]

    until(lambda: shares() == [10, 10])


MEMBER = """
subscriber = api.subscriber(sys.argv[1], filtering="publisher")
subscriber.subscribe("job.>", group="workers")
subscriber.wait_ready()
say("ready")
sys.stdin.readline()
"""


@promise(
    "After a member of a group is killed, the other members get each message.",
    not_for={"inproc": "Sockets over inproc belong to one process.", **PREFIX},
    small=1,
)
def test_other_members_take_over_from_a_killed_member(sockets, program):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "job.>", group="workers")
    with program(MEMBER, publisher.endpoint) as process:
        assert process.stdout.readline() == "ready\n"
        publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
        # Each member gets a half.
        assert len(got.receive_all(10)) == 10
        process.kill()
        process.wait()
        rounds = count(1)

        def has_all():
            round_ = next(rounds)
            publisher.publish_many((f"job.{round_}", b"") for _ in range(10))
            messages = []
            with suppress(errors.Timeout):
                while len(messages) < 10:
                    message = got.receive(timeout=0.1)
                    if message.subject == f"job.{round_}":
                        messages.append(message)
            return len(messages) == 10

        until(has_all, timeout=10)
        publisher.publish_many(("job.end", b"%d" % number) for number in range(COUNT))
        assert got.receive_all(COUNT) == [b"%d" % number for number in range(COUNT)]


@promise(
    "With `Delivery(redeliver=True)` the messages of a killed member go to another member, with a mark.",
    not_for={"inproc": "Sockets over inproc belong to one process.", **PREFIX},
    small=1,
)
@cases("policy", ["round_robin", "sticky", "failover"])
def test_messages_of_a_killed_member_are_delivered_again(sockets, program, policy):
    # A sticky group waits for `resume_seconds`.
    publisher = sockets.publisher(options=Options(resume_seconds=2.0))
    subscriber = sockets.subscriber(publisher)
    options = f'group="workers", ack="handled", delivery=Delivery(policy="{policy}", redeliver=True)'
    with program(MEMBER.replace('group="workers"', options), publisher.endpoint) as process:
        assert process.stdout.readline() == "ready\n"
        delivery = Delivery(policy=policy, redeliver=True)
        got = sockets.subscribe(
            publisher, subscriber, "job.>", group="workers", ack="handled", delivery=delivery
        )
        publisher.publish_many((f"job.{number}", b"%d" % number) for number in range(20))
        publisher.flush()
        process.kill()
        process.wait()
        messages = [got.receive() for _ in range(20)]
    assert {int(message.payload) for message in messages} == set(range(20))
    redelivered = sum(message.redelivered for message in messages)
    # The killed member is the first one.
    assert redelivered in {"round_robin": [10], "sticky": range(1, 21), "failover": [20]}[policy]


@promise("Messages that a member has handled are not delivered again when it leaves.", not_for=PREFIX)
def test_handled_messages_are_not_delivered_again(sockets):
    publisher = sockets.publisher()
    options = {"group": "workers", "ack": "handled", "delivery": Delivery(redeliver=True)}
    leaving, staying = (sockets.subscriber(publisher) for _ in range(2))
    for item in (leaving, staying):
        sockets.subscribe(publisher, item, "job.>", **options)
    publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
    handled = set()
    for _ in range(6):
        message = leaving.receive()
        message.ack()
        handled.add(int(message.payload))
    # The next receive reports the acknowledgements.
    with suppress(errors.Timeout):
        leaving.receive_many(1, timeout=0.05)
    leaving.close()
    got = {}
    while len(got) < 14:
        message = staying.receive()
        got[int(message.payload)] = message.redelivered
    assert got.keys() == set(range(20)) - handled
    assert sum(got.values()) == 4


@promise(
    '`close` of a publisher returns how many messages a group with `ack="handled"` has not handled.',
    not_for=PREFIX,
)
def test_close_counts_messages_that_are_not_handled(pair):
    got = pair.subscribe("job.>", group="workers", ack="handled")
    pair.publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
    got.receive()
    assert pair.publisher.close(timeout=0.5) == 20


def close_while_handling(publisher, got, api):
    """Close a publisher while a subscription handles messages; return the result and the numbers."""
    results, numbers = [], []
    closing = api.start(lambda: results.append(publisher.close(timeout=DEADLINE)))
    closing.wait_until_blocked()

    def is_closed():
        with suppress(errors.Timeout):
            message = got.receive(timeout=0.05)
            numbers.append(int(message.payload))
            message.ack()
        return results

    until(is_closed)
    return results[0], numbers


@promise(
    '`close` of a publisher waits until a group with `ack="handled"` has handled the messages.',
    not_for=PREFIX,
)
def test_close_waits_until_messages_are_handled(pair, api):
    got = pair.subscribe("job.>", group="workers", ack="handled")
    pair.publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
    assert close_while_handling(pair.publisher, got, api) == (0, [*range(20)])


@promise(
    "`close` of a publisher waits until another member has handled the messages of a killed member.",
    not_for={"inproc": "Sockets over inproc belong to one process.", **PREFIX},
)
def test_close_waits_for_messages_of_a_killed_member(sockets, api, program):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    options = 'group="workers", ack="handled", delivery=Delivery(redeliver=True)'
    with program(MEMBER.replace('group="workers"', options), publisher.endpoint) as process:
        assert process.stdout.readline() == "ready\n"
        got = sockets.subscribe(
            publisher,
            subscriber,
            "job.>",
            group="workers",
            ack="handled",
            delivery=Delivery(redeliver=True),
        )
        publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
        publisher.flush()
        process.kill()
        process.wait()
        left, numbers = close_while_handling(publisher, got, api)
    assert (left, sorted(numbers)) == (0, [*range(20)])


@promise("Messages that a member of a group leaves unhandled count as given up.", not_for=PREFIX)
def test_messages_that_a_member_leaves_unhandled_are_given_up(pair):
    got = pair.subscribe("job.>", group="workers", ack="handled")
    pair.publisher.publish_many(("job.a", b"%d" % number) for number in range(20))
    got.receive()
    pair.subscriber.close()
    until(lambda: pair.publisher.stats.given_up == 20)


@promise(
    'filtering="prefix" refuses groups.',
    not_for={"publisher": "Groups need this filtering."},
)
def test_group_is_refused_without_filtering_at_the_publisher(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    with pytest.raises((errors.OzError, ValueError)):
        subscriber.subscribe("job.>", group="workers")
