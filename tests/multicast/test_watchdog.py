"""The watchdog of an endpoint, without sockets and clocks."""

from oz.multicast.receiver import HeardSender
from oz.multicast.watchdog import MAX_TRIES, UNOBSERVED, UNREPAIRED, Arriving, Watchdog
from oz.wire.datagrams import Head
from support.cases import each

A, B = b"a" * 16, b"b" * 16
NONE, DATA, REPAIRS = (
    Arriving(0, has_repairs=False),
    Arriving(1, has_repairs=False),
    Arriving(1, has_repairs=True),
)


def sender(rate=100):
    made = HeardSender(Head(0, A, 1, 0, 1))
    made.heard_at, made.rate = 1, rate
    return made


def check(dog, senders, now, *, is_idle=True, arriving=UNOBSERVED):
    found = dog.check(senders, now, is_idle=is_idle, arriving=arriving)
    return [(item.kind, item.origin) for item in found if item.kind != "doubt"]


def watch(dog, senders, seconds, arriving, kinds=("silent", "stuck", "gone")):
    """Check every half second; return the news and their times."""
    times = [tick / 2 for tick in range(round(2 * seconds) + 1)]
    return [
        (now, item.kind)
        for now in times
        for item in dog.check(senders, now, is_idle=True, arriving=arriving)
        if item.kind in kinds
    ]


@each(
    ("arriving", "seconds", "said"),
    [
        (REPAIRS, 30, [(1.5, "silent"), (26.5, "stuck")]),
        (DATA, UNREPAIRED + 3, [(1.5, "silent"), (1.5 + UNREPAIRED, "stuck")]),
        (NONE, 400, [(1.5, "silent"), (300.0, "gone")]),
    ],
)
def test_libpgm_has_its_time_while_it_may_repair(arriving, seconds, said):
    assert watch(Watchdog(25.0, 100), {A: sender()}, seconds, arriving) == said


def test_a_repair_starts_the_time_again():
    dog, senders = Watchdog(25.0, 100), {A: sender()}
    watch(dog, senders, 5, DATA)
    assert check(dog, senders, 6.0, arriving=REPAIRS) == []
    assert check(dog, senders, 6.0 + UNREPAIRED - 0.1, arriving=DATA) == []
    assert check(dog, senders, 6.0 + UNREPAIRED, arriving=DATA) == [("stuck", A)]


def test_after_an_outage_the_time_for_repairs_begins_with_the_first_packet():
    dog, senders = Watchdog(25.0, 100), {A: sender()}
    watch(dog, senders, 100, NONE)
    assert check(dog, senders, 124.9, arriving=REPAIRS) == []
    assert check(dog, senders, 125.0, arriving=REPAIRS) == [("stuck", A)]


def test_before_packets_are_known_nothing_is_decided():
    assert watch(Watchdog(25.0, 100), {A: sender()}, 400, None) == [(1.5, "silent")]
    assert watch(Watchdog(25.0, 100), {A: sender()}, 400, None, kinds=("doubt",)) == []


def test_packets_of_other_publishers_do_not_make_a_silent_publisher_stuck():
    dog, first, other = Watchdog(5.0, 100), sender(), sender()
    said = []
    for now in range(40):
        other.heard_at += 1
        arriving = Arriving(1 if now < 20 else 2, has_repairs=True)
        said += check(dog, {A: first, B: other}, now, arriving=arriving)
    assert said == [("silent", A), ("stuck", A), ("stuck", A), ("stuck", A)]


def test_a_doubt_is_reported_once_for_each_silence():
    kinds = ("doubt",)
    assert watch(Watchdog(25.0, 100), {A: sender()}, 100, NONE, kinds) == [(5.0, "doubt")]
    assert watch(Watchdog(25.0, 100), {A: sender()}, 100, REPAIRS, kinds) == [(26.5, "doubt")]
    dog, first = Watchdog(25.0, 100), sender()
    watch(dog, {A: first}, 10, NONE)
    first.heard_at += 1
    assert watch(dog, {A: first}, 10, NONE, kinds) == [(5.0, "doubt")]


def test_packets_are_observed_while_a_publisher_is_silent():
    dog, first = Watchdog(25.0, 100), sender()
    check(dog, {A: first}, 0.0)
    assert not dog.has_silent()
    check(dog, {A: first}, 1.5)
    assert dog.has_silent()
    first.heard_at += 1
    check(dog, {A: first}, 2.0)
    assert not dog.has_silent()


def test_tries_become_rarer_and_end():
    said = watch(Watchdog(1.0, 100), {A: sender()}, 100, REPAIRS)
    stuck = [(now, "stuck") for now in (2.5, 3.5, 5.5, 9.5, 17.5)]
    assert said == [(1.5, "silent"), *stuck, (33.5, "gone")]
    assert len(stuck) == MAX_TRIES


def test_a_publisher_that_sends_again_starts_afresh():
    dog, first = Watchdog(1.0, 100), sender()
    check(dog, {A: first}, 0.0)
    check(dog, {A: first}, 1.5)
    first.heard_at += 1
    assert check(dog, {A: first}, 2.0) == [("heard", A)]
    assert check(dog, {A: first}, 3.4) == []
    assert check(dog, {A: first}, 3.5) == [("silent", A)]


def test_while_frames_are_unread_no_publisher_is_silent():
    dog, first = Watchdog(1.0, 100), sender()
    check(dog, {A: first}, 0.0)
    assert check(dog, {A: first}, 60.0, is_idle=False) == []
    assert check(dog, {A: first}, 61.0) == [("silent", A)]


def test_a_publisher_that_said_bye_is_not_waited_for():
    dog, first = Watchdog(1.0, 100), sender()
    check(dog, {A: first}, 0.0)
    first.has_left = True
    first.heard_at += 1
    assert check(dog, {A: first}, 0.5) == [("left", A)]
    assert check(dog, {A: first}, 60.0) == []


def test_another_rate_is_reported_once():
    dog, first = Watchdog(1.0, 100), sender(rate=200)
    assert check(dog, {A: first}, 0.0) == [("rate", A)]
    first.heard_at += 1
    assert check(dog, {A: first}, 0.1) == []


def test_damaged_frames_are_reported_when_there_are_twice_as_many():
    dog = Watchdog(1.0, 100)
    counts = [count for count in range(20) if dog.check({}, 0.0, is_idle=True, malformed=count)]
    assert counts == [1, 2, 4, 8, 16]


def test_an_announced_message_has_its_time():
    dog, first = Watchdog(1.0, 100), sender()
    first.quiet = 8.0
    assert check(dog, {A: first}, 0.0) == []
    assert check(dog, {A: first}, 9.4) == []
    assert check(dog, {A: first}, 9.5) == [("silent", A)]
    assert check(dog, {A: first}, 10.5) == [("stuck", A)]


def test_it_returns_its_next_deadline():
    dog, first = Watchdog(1.5, 100), sender()
    senders = {A: first}
    assert dog.next_deadline(senders) is None
    check(dog, senders, 0.0)
    assert dog.next_deadline(senders) == 1.5
    looks = 0
    while (at := dog.next_deadline(senders)) is not None:
        check(dog, senders, at)
        looks += 1
    # Every half second while the publisher is silent, until it is gone.
    assert looks == 1 + 2 * (1.5 + 1.5 + 3 + 6 + 12 + 24)
    first.heard_at += 1
    check(dog, senders, 60.0)
    assert dog.next_deadline(senders) == 61.5
    first.has_left = True
    check(dog, senders, 61.0)
    first.heard_at += 1
    check(dog, senders, 61.0)
    assert dog.next_deadline(senders) is None
