"""The decisions of a forwarder in memory: its legs remember what is done to them, and time is a number."""

from math import inf

import pytest

from oz.message import Extras
from oz.protocol.bridge.bridge import ImportFilter, Ledger
from oz.protocol.bridge.forwarding import LOOK_SECONDS, PATIENCE, SETTLE, STANDSTILL, Forwarding
from oz.protocol.bridge.leg import ForwardedInterest
from oz.protocol.bridge.spanning_tree import LAST, RANK_SIZE, TIME_SIZE, Offer
from oz.protocol.stats import ForwarderStats
from oz.subjects.pattern import compile

OLDER = bytes(RANK_SIZE - 1) + b"o"
NAME = b"forwards"


class MemoryLeg:
    """A leg that remembers."""

    def __init__(self, number):
        self.number, self.bus = number, f"bus-{number}"
        self.is_open, self.free_since = False, None
        self.ledger, self.forwarded, self.stats = Ledger(), ForwardedInterest(), ForwarderStats()
        self.import_filters = []
        self.offered, self.told, self.passed, self.asked = [], [], [], {}
        self.missing, self.deaf = [], set()

    def look(self, now):
        pass

    def unready(self):
        return self.missing

    def unheard(self):
        return self.deaf

    def tell(self, offer):
        self.offered.append(offer)

    def ask(self):
        while (change := self.forwarded.next_change()) is not None:
            interest, policy = change
            self.asked[interest] = policy

    def pass_on(self, subject, content, extras, group):
        self.passed.append((subject, content, extras.headers))
        return True

    def report_loss(self, count, now, *, is_hearsay=False):
        self.told.append((count, "hearsay") if is_hearsay else count)

    def tell_losses(self, now):
        pass

    def next_deadline(self):
        return inf


class Message:
    """What comes to a leg."""

    def __init__(self, subject, body, headers=None):
        self.subject, self.subject_bytes, self.body = subject, subject.encode(), body
        self.headers, self.extras = headers or {}, Extras(headers, None, None, None)


class Clock:
    now = 100.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def forwarding(clock):
    legs = [MemoryLeg(number) for number in range(2)]
    for leg, other in (legs, legs[::-1]):
        leg.import_filters = [(other, ImportFilter())]
    return Forwarding(legs, NAME, lambda: clock.now, lambda: 7)


def take_turn(forwarding, clock, later=0.0, *, has_news=True):
    clock.now += later
    forwarding.turn(clock.now, has_news=has_news)


def settle(forwarding, clock):
    take_turn(forwarding, clock)
    take_turn(forwarding, clock, SETTLE)
    return forwarding


def hear(forwarding, *path):
    """Have another forwarder be there on both buses."""
    for leg in forwarding.legs:
        leg.ledger.offers = [Offer(path, leg.number, 1)]


def hear_nobody(forwarding):
    for leg in forwarding.legs:
        leg.ledger.offers = []


def test_forwarder_that_is_alone_opens_a_moment_after_it_has_spoken_with_all(forwarding, clock):
    forwarding.legs[0].missing = ["somebody"]
    settle(forwarding, clock)
    assert not forwarding.is_settled
    take_turn(forwarding, clock, PATIENCE)
    assert forwarding.is_settled
    assert forwarding.states == ["open", "open"]
    assert not forwarding.takeovers


def test_younger_forwarder_stands_by_and_goes_on_when_the_older_is_gone(forwarding, clock):
    hear(forwarding, OLDER)
    settle(forwarding, clock)
    assert forwarding.states == ["open", "standing by"]
    hear_nobody(forwarding)
    take_turn(forwarding, clock)
    assert forwarding.states == ["open", "standing by"]
    take_turn(forwarding, clock, forwarding.next_deadline() - clock.now, has_news=False)
    assert forwarding.states == ["open", "open"]
    assert forwarding.takeovers == 1
    assert [leg.told for leg in forwarding.legs] == [[None], [None]]


def test_loss_is_told_when_a_peer_does_what_is_asked_long_after_a_forwarder_began(forwarding, clock):
    near, far = forwarding.legs
    settle(forwarding, clock)
    near.deaf = {b"early", b"late", b"last"}
    take_turn(forwarding, clock)
    near.deaf = {b"late", b"last"}
    take_turn(forwarding, clock, LOOK_SECONDS)
    # Who answers at once has missed nothing that another one passed on.
    assert (near.told, far.told) == ([], [])
    for left, told in (
        ({b"last"}, [None]),
        ({b"last", b"new"}, [None]),
        ({b"new"}, [None, None]),
        (set(), [None, None]),
    ):
        near.deaf = left
        take_turn(forwarding, clock, LOOK_SECONDS)
        assert (near.told, far.told) == ([], told)


def test_it_is_to_be_called_when_a_leg_may_open_and_once_a_second(forwarding, clock):
    settle(forwarding, clock)
    assert forwarding.next_deadline() == pytest.approx(clock.now + LOOK_SECONDS)
    hear(forwarding, OLDER)
    take_turn(forwarding, clock)
    hear_nobody(forwarding)
    take_turn(forwarding, clock)
    assert forwarding.next_deadline() == pytest.approx(clock.now + SETTLE)


def test_it_waits_for_the_last_of_its_legs_that_may_open(forwarding, clock):
    near, far = forwarding.legs
    far.ledger.offers = [Offer((OLDER,), 0, 1), Offer((OLDER,), 1, 1)]
    near.ledger.offers = [Offer((OLDER,), 0, 1)]
    settle(forwarding, clock)
    near.free_since, far.free_since = clock.now - SETTLE, clock.now
    near.is_open = far.is_open = False
    assert forwarding.next_deadline() > clock.now


@pytest.mark.parametrize("has_stand_by", [False, True])
def test_forwarder_that_stood_still_stands_by_where_another_may_have_gone_on(forwarding, clock, has_stand_by):
    settle(forwarding, clock)
    if has_stand_by:
        hear(forwarding, b"\xfe" * RANK_SIZE)
        take_turn(forwarding, clock)
    assert forwarding.states == ["open", "open"]
    near, far = forwarding.legs
    clock.now += STANDSTILL
    forwarding.pass_between(near, "", Message("a.b", b"late"))
    assert len(far.passed) == (0 if has_stand_by else 1)
    offered = len(near.offered)
    take_turn(forwarding, clock, has_news=False)
    assert forwarding.states == (["standing by"] * 2 if has_stand_by else ["open"] * 2)
    assert (len(near.offered) > offered) is has_stand_by


def test_interest_of_one_bus_is_asked_for_on_the_other_and_taken_back(forwarding, clock):
    interest = compile("a.*", "nats"), ""
    near, far = forwarding.legs
    near.ledger.interests = {interest: 1}
    settle(forwarding, clock)
    assert far.asked == {interest: "round_robin"}
    assert forwarding.stats.interests == 1
    hear(forwarding, OLDER)
    take_turn(forwarding, clock)
    assert far.asked == {interest: None}
    assert not near.asked


def test_message_carries_who_passed_it_and_does_not_go_round(forwarding, clock):
    settle(forwarding, clock)
    near, far = forwarding.legs
    forwarding.pass_between(near, "", Message("a.b", b"one", {"kind": 1}))
    assert far.passed == [("a.b", b"one", {"kind": 1, "oz-via": NAME})]
    forwarding.pass_between(far, "", Message("a.b", b"one", {"oz-via": NAME}))
    assert not near.passed
    assert forwarding.stats.looped == 1


def test_losses_of_one_bus_are_told_on_the_other_unless_another_tells_them(forwarding, clock):
    settle(forwarding, clock)
    near, far = forwarding.legs
    forwarding.lose(near, 3, is_hearsay=False)
    assert (near.told, far.told) == ([], [3])
    forwarding.lose(near, 2, is_hearsay=True)
    assert far.told.pop() == (2, "hearsay")
    forwarding.is_replaced = True
    forwarding.lose(near, None, is_hearsay=False)
    assert far.told == [3]


def test_forwarder_that_ends_tells_others_that_it_is_the_last_if_there_are_any(forwarding, clock):
    settle(forwarding, clock)
    assert not forwarding.resign()
    hear(forwarding, b"\xfe" * RANK_SIZE)
    take_turn(forwarding, clock)
    assert forwarding.resign()
    offer = forwarding.legs[0].offered[-1]
    assert offer.path[0] == LAST
    assert offer.path[-1][TIME_SIZE:] == NAME


def test_name_of_another_size_is_refused():
    with pytest.raises(ValueError, match="8 bytes"):
        Forwarding([], b"short", lambda: 0.0, lambda: 0)
