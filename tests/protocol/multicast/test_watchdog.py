from oz.protocol.multicast.receiver import HeardSender
from oz.protocol.multicast.watchdog import MOST_TRIES, UNREPAIRED, Arriving, Watchdog

A, B = b"a" * 16, b"b" * 16
ONE, OTHER = "epgm://10.0.0.1;239.192.1.1:5555", "epgm://10.0.0.1;239.192.1.1:5556"
NONE, DATA, REPAIRS = Arriving(0, False), Arriving(1, False), Arriving(1, True)


def sender(heard_at=1, to="239.192.1.1:5555", rate=100):
    made = HeardSender()
    made.heard_at, made.to, made.rate = heard_at, to, rate
    return made


def look(dog, senders, now, *, is_idle=True, endpoints=(ONE,), arriving=None):
    found = dog.look(senders, endpoints, now, is_idle=is_idle, arriving=arriving)
    return [(one.advisory.kind, one.advisory.origin, one.reconnect) for one in found if one.advisory]


def watch(dog, senders, seconds, arriving):
    """Look every half second; give what was said, and when."""
    times = [tick / 2 for tick in range(round(2 * seconds) + 1)]
    return [
        (now, kind, reconnect)
        for now in times
        for kind, _, reconnect in look(dog, senders, now, arriving={ONE: arriving})
    ]


def doubts(dog, senders, seconds, arriving):
    """Give when it is said that messages may be missing."""
    times = [tick / 2 for tick in range(round(2 * seconds) + 1)]
    return [
        now
        for now in times
        for one in dog.look(senders, [ONE], now, is_idle=True, arriving={ONE: arriving})
        if one.unknown == A
    ]


def test_while_packets_arrive_and_no_message_does_libpgm_is_given_its_time_before_connecting_anew():
    assert watch(Watchdog(25.0, 100), {A: sender()}, 30, arriving=REPAIRS) == [
        (1.5, "silent", None),
        (26.5, "stuck", ONE),
    ]


def test_where_data_arrives_and_no_repair_libpgm_has_given_up():
    dog, one = Watchdog(25.0, 100), sender()
    said = watch(dog, {A: one}, UNREPAIRED + 3, arriving=DATA)
    assert said == [(1.5, "silent", None), (1.5 + UNREPAIRED, "stuck", ONE)]


def test_while_repairs_arrive_libpgm_is_not_disturbed():
    dog, one = Watchdog(25.0, 100), sender()
    watch(dog, {A: one}, 5, arriving=DATA)
    assert look(dog, {A: one}, 6.0, arriving={ONE: REPAIRS}) == []
    assert look(dog, {A: one}, 6.0 + UNREPAIRED - 0.1, arriving={ONE: DATA}) == []
    assert look(dog, {A: one}, 6.0 + UNREPAIRED, arriving={ONE: DATA}) == [("stuck", A, ONE)]


def test_while_no_packet_arrives_nothing_is_repaired_and_nobody_connects_anew():
    said = watch(Watchdog(25.0, 100), {A: sender()}, 400, arriving=NONE)
    assert said == [(1.5, "silent", None), (300.0, "gone", None)]


def test_after_an_outage_the_time_for_repairs_begins_with_the_first_packet():
    dog, one = Watchdog(25.0, 100), sender()
    watch(dog, {A: one}, 100, arriving=NONE)
    assert look(dog, {A: one}, 124.9, arriving={ONE: REPAIRS}) == []
    assert look(dog, {A: one}, 125.0, arriving={ONE: REPAIRS}) == [("stuck", A, ONE)]


def test_before_it_is_known_whether_packets_arrive_nobody_connects_anew_or_doubts():
    assert watch(Watchdog(25.0, 100), {A: sender()}, 400, arriving=None) == [(1.5, "silent", None)]
    assert doubts(Watchdog(25.0, 100), {A: sender()}, 400, arriving=None) == []


def test_packets_of_publishers_that_are_heard_do_not_make_a_silent_one_stuck():
    dog, one, other = Watchdog(5.0, 100), sender(), sender()
    said = []
    for now in range(40):
        other.heard_at += 1
        said += look(dog, {A: one, B: other}, now, arriving={ONE: Arriving(1 if now < 20 else 2, True)})
    assert said == [("silent", A, None), ("stuck", A, ONE), ("stuck", A, ONE), ("stuck", A, ONE)]


def test_that_messages_may_be_missing_is_said_once_a_silence():
    assert doubts(Watchdog(25.0, 100), {A: sender()}, 100, arriving=NONE) == [5.0]
    assert doubts(Watchdog(25.0, 100), {A: sender()}, 100, arriving=REPAIRS) == [26.5]
    dog, one = Watchdog(25.0, 100), sender()
    doubts(dog, {A: one}, 10, arriving=NONE)
    one.heard_at += 1
    assert doubts(dog, {A: one}, 10, arriving=NONE) == [5.0]


def test_it_is_told_where_to_see_whether_packets_arrive_while_a_publisher_is_silent():
    dog, one = Watchdog(25.0, 100), sender()
    look(dog, {A: one}, 0.0)
    assert dog.silent_on({A: one}, [ONE, OTHER]) == set()
    look(dog, {A: one}, 1.5)
    assert dog.silent_on({A: one}, [ONE, OTHER]) == {ONE}
    one.heard_at += 1
    look(dog, {A: one}, 2.0)
    assert dog.silent_on({A: one}, [ONE, OTHER]) == set()


def test_it_tries_less_and_less_often_and_then_no_more():
    said = watch(Watchdog(1.0, 100), {A: sender()}, 100, arriving=REPAIRS)
    assert said == [
        (1.5, "silent", None),
        *((now, "stuck", ONE) for now in (2.5, 3.5, 5.5, 9.5, 17.5)),
        (33.5, "gone", None),
    ]
    assert len(said) == MOST_TRIES + 2


def test_who_is_heard_again_is_back_and_starts_afresh():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    look(dog, {A: one}, 1.5)
    one.heard_at += 1
    assert look(dog, {A: one}, 2.0) == [("heard", A, None)]
    assert look(dog, {A: one}, 3.4) == []
    assert look(dog, {A: one}, 3.5) == [("silent", A, None)]


def test_while_something_is_left_to_read_nobody_is_silent():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    assert look(dog, {A: one}, 60.0, is_idle=False) == []
    assert look(dog, {A: one}, 61.0) == [("silent", A, None)]


def test_who_said_goodbye_is_not_waited_for():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    one.has_left = True
    one.heard_at += 1
    assert look(dog, {A: one}, 0.5) == [("left", A, None)]
    assert look(dog, {A: one}, 60.0) == []


def test_only_the_endpoint_of_the_stuck_one_is_connected_anew():
    dog, one, other = Watchdog(1.0, 100), sender(), sender(to="239.192.1.1:5556")
    senders, endpoints = {A: one, B: other}, (ONE, OTHER)
    look(dog, senders, 0.0, endpoints=endpoints)
    look(dog, {A: one, B: other}, 1.5, endpoints=endpoints)
    one.heard_at += 1
    assert look(dog, senders, 2.5, endpoints=endpoints) == [("heard", A, None), ("stuck", B, OTHER)]


def test_another_rate_is_said_once():
    dog, one = Watchdog(1.0, 100), sender(rate=200)
    assert look(dog, {A: one}, 0.0) == [("rate", A, None)]
    one.heard_at += 1
    assert look(dog, {A: one}, 0.1) == []


def test_corrupt_frames_are_said_when_there_are_twice_as_many():
    dog = Watchdog(1.0, 100)
    assert [count for count in range(20) if dog.see_corrupt(count)] == [1, 2, 4, 8, 16]


def test_who_announced_a_large_message_is_given_the_time_for_it_once():
    dog, one = Watchdog(1.0, 100), sender(heard_at=7)
    one.quiet, one.quiet_at = 8.0, 7
    assert look(dog, {A: one}, 0.0) == []
    assert look(dog, {A: one}, 9.4) == []
    assert look(dog, {A: one}, 9.5) == [("silent", A, None)]
    assert look(dog, {A: one}, 10.5) == [("stuck", A, ONE)]
    assert look(dog, {A: one}, 11.5) == [("stuck", A, ONE)]


def test_once_the_large_message_is_there_silence_counts_as_ever():
    dog, one = Watchdog(1.0, 100), sender(heard_at=7)
    one.quiet, one.quiet_at = 8.0, 7
    look(dog, {A: one}, 0.0)
    one.heard_at += 1
    assert look(dog, {A: one}, 5.0) == []
    assert look(dog, {A: one}, 6.5) == [("silent", A, None)]


def test_it_says_when_to_look_again():
    dog, one = Watchdog(1.5, 100), sender()
    assert dog.next_deadline({A: one}) is None
    look(dog, {A: one}, 0.0)
    assert dog.next_deadline({A: one}) == 1.5
    looks = 0
    while (at := dog.next_deadline({A: one})) is not None:
        look(dog, {A: one}, at)
        looks += 1
    # Every half second while it is silent, until it is not waited for.
    assert looks == 1 + 2 * (1.5 + 1.5 + 3 + 6 + 12 + 24)
    one.heard_at += 1
    look(dog, {A: one}, 60.0)
    assert dog.next_deadline({A: one}) == 61.5
    one.has_left = True
    assert dog.next_deadline({A: one}) is None
