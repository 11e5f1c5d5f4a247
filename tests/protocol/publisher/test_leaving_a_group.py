"""What is on its way through `publish` to members of a queue group that leave meanwhile.

Whom it is for was looked up before they said goodbye, and it is sent after they were told that this is all.
"""

import pytest

from oz.protocol.publisher.batching import Batch
from protocol.in_memory import Publisher, Subscriber, joined, numbers, settle
from support.cases import each

POLICIES = ("round_robin", "sticky", "failover")
LARGE = 100_000


class OnItsWay:
    """Messages whose recipients were looked up, and that are still to be sent."""

    def __init__(self, publisher, count, *, size=1):
        self.publisher, self.count = publisher, count
        recipients = publisher.router.find(b"a.x")
        self._messages = [(recipients, b"a.x", b"%*d" % (size, number)) for number in range(count)]

    def go_on(self):
        """Be sent, as the accumulator has it done."""
        batches = self.publisher.batches
        self.publisher.stats.sent += self.count
        first, batches.position = batches.position, batches.position + self.count
        batches.send([part for one in self._messages for part in one], first, is_rich=False)

    def go_on_alone(self):
        """Be sent one by one, each as what is large is."""
        for one in self._messages:
            self.publisher.stats.sent += 1
            self.publisher.batches.send_large([*one])

    def go_on_short(self):
        """Be sent one by one, the short way."""
        for recipients, subject, payload in self._messages:
            self.publisher.stats.sent += 1
            self.publisher.batches.send_alone(recipients, subject, payload)


def send(on_its_way, how):
    {"in_one": on_its_way.go_on, "large": on_its_way.go_on_alone, "alone": on_its_way.go_on_short}[how]()


def leave(*members):
    """Leave in order: each is told that this is all, and reads it."""
    publisher = members[0].publisher
    for one in members:
        one.begin_leave()
    publisher.tick()
    for one in members:
        one.take()
        assert one.has_left


def counted(publisher):
    return publisher.stats.sent, publisher.stats.unwanted, publisher.stats.missed


@pytest.fixture
def publisher():
    return Publisher()


def join(publisher, **delivery):
    members = [Subscriber(publisher, group="g", **delivery) for _ in range(2)]
    joined(publisher, *members)
    return members


@each("policy", POLICIES)
def test_what_is_on_its_way_to_members_that_have_all_left_was_wanted_by_nobody(policy):
    publisher = Publisher()
    members = join(publisher, policy=policy)
    on_its_way = OnItsWay(publisher, 5)
    leave(*members)
    on_its_way.go_on()
    settle(publisher)
    assert not any(member.stats.filtered for member in members)
    assert counted(publisher) == (0, 5, 0)


def test_so_was_what_is_large(publisher):
    members = join(publisher)
    on_its_way = OnItsWay(publisher, 2, size=LARGE)
    leave(*members)
    on_its_way.go_on_alone()
    settle(publisher)
    assert not any(member.stats.filtered for member in members)
    assert counted(publisher) == (0, 2, 0)


def leaving(publisher, *groups):
    """Subscribers, each in a queue group or none, that are to leave."""
    members = [Subscriber(publisher, **({} if group is None else {"group": group})) for group in groups]
    joined(publisher, *members)
    return members


@each("groups", [("g", "h"), ("g", "g", "h"), (None,), (None, None), (None, "g")])
@each("how", ["in_one", "large", "alone"])
def test_what_all_have_left_was_wanted_by_nobody_whoever_they_were(groups, how):
    publisher = Publisher()
    members = leaving(publisher, *groups)
    on_its_way = OnItsWay(publisher, 3, size=LARGE if how == "large" else 1)
    leave(*members)
    send(on_its_way, how)
    settle(publisher)
    assert not any(member.stats.filtered + member.stats.received for member in members)
    assert counted(publisher) == (0, 3, 0)


@each("groups", [("g", "h"), (None,), (None, "g")])
@each("how", ["in_one", "large", "alone"])
def test_what_one_of_several_gets_that_have_not_all_left_is_sent(groups, how):
    publisher = Publisher()
    members, last = leaving(publisher, *groups), leaving(publisher, "last")
    on_its_way = OnItsWay(publisher, 3, size=LARGE if how == "large" else 1)
    leave(*members)
    send(on_its_way, how)
    settle(publisher)
    assert numbers(*last) == [0, 1, 2]
    assert counted(publisher) == (3, 0, 0)


def test_a_message_is_counted_as_such_though_one_before_it_was_cut_short(publisher, monkeypatch):
    (member,) = leaving(publisher, None)
    first, second = OnItsWay(publisher, 1), OnItsWay(publisher, 1)
    leave(member)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "whole", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(first, "alone")
    send(second, "alone")
    assert counted(publisher) == (1, 1, 0)


def test_what_somebody_beside_the_group_gets_is_sent(publisher):
    members, other = join(publisher), Subscriber(publisher)
    joined(publisher, other)
    on_its_way = OnItsWay(publisher, 5)
    leave(*members)
    on_its_way.go_on()
    settle(publisher)
    assert numbers(other) == [*range(5)]
    assert counted(publisher) == (5, 0, 0)


@each("policy, overflow", [(policy, overflow) for policy in POLICIES for overflow in (None, "drop_oldest")])
@each("alone", [False, True])
def test_who_joins_as_the_last_members_leave_gets_what_was_on_its_way(policy, overflow, alone):
    publisher = Publisher()
    delivery = (
        {"policy": policy} if overflow is None else {"policy": policy, "overflow": overflow, "limit": 9}
    )
    members = join(publisher, **delivery)
    on_its_way = OnItsWay(publisher, 3)
    heir = Subscriber(publisher, group="g", **delivery)
    joined(publisher, heir)
    leave(*members)
    on_its_way.go_on_alone() if alone else on_its_way.go_on()
    settle(publisher)
    assert numbers(heir) == [0, 1, 2]
    assert not any(member.stats.filtered for member in members)
    assert counted(publisher) == (3, 0, 0)


def test_an_heir_without_room_is_given_it_when_there_is_some(publisher):
    members = join(publisher)
    on_its_way = OnItsWay(publisher, 3)
    heir = Subscriber(publisher, group="g", overflow="drop_oldest", limit=9)
    joined(publisher, heir)
    leave(*members)
    while not heir.is_full:
        publisher.publish(b"a.y")
    publisher.publish(b"a.y")
    assert publisher.batches.full
    before = len(publisher.handed)
    on_its_way.go_on()
    settle(publisher)
    assert len(heir.got) == before + 3
    assert counted(publisher) == (3, 0, 0)


def test_what_is_on_its_way_to_a_member_that_was_cut_off_is_lost_to_it(publisher):
    (member,) = [Subscriber(publisher, group="g")]
    joined(publisher, member)
    on_its_way = OnItsWay(publisher, 3)
    member.cut()
    on_its_way.go_on()
    member.come_back()
    settle(publisher)
    assert member.stats.lost == 3
    assert counted(publisher) == (3, 0, 0)
