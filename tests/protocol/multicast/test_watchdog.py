from oz.protocol.multicast.receiver import HeardSender
from oz.protocol.multicast.watchdog import MOST_TRIES, Watchdog

A, B = b"a" * 16, b"b" * 16
ONE, OTHER = "epgm://10.0.0.1;239.192.1.1:5555", "epgm://10.0.0.1;239.192.1.1:5556"


def sender(heard_at=1, to="239.192.1.1:5555", rate=100):
    made = HeardSender()
    made.heard_at, made.to, made.rate = heard_at, to, rate
    return made


def look(dog, senders, now, *, is_idle=True, endpoints=(ONE,)):
    found = dog.look(senders, endpoints, now, is_idle=is_idle)
    return [(one.advisory.kind, one.advisory.origin, one.reconnect) for one in found]


def test_silence_is_said_once_and_connects_anew():
    dog, one = Watchdog(1.5, 100), sender()
    assert look(dog, {A: one}, 0.0) == []
    assert look(dog, {A: one}, 1.4) == []
    assert look(dog, {A: one}, 1.5) == [("silent", A, ONE)]
    assert look(dog, {A: one}, 2.0) == []


def test_it_tries_less_and_less_often_and_then_no_more():
    dog, one = Watchdog(1.0, 100), sender()
    said = [
        (now, *kinds) for now in range(100) if (kinds := [kind for kind, _, _ in look(dog, {A: one}, now)])
    ]
    assert said == [(1, "silent"), (2, "silent"), (4, "silent"), (8, "silent"), (16, "silent"), (32, "gone")]
    assert len(said) == MOST_TRIES + 1


def test_who_is_heard_again_is_back_and_starts_afresh():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    look(dog, {A: one}, 1.0)
    one.heard_at += 1
    assert look(dog, {A: one}, 1.5) == [("heard", A, None)]
    assert look(dog, {A: one}, 2.4) == []
    assert look(dog, {A: one}, 2.5) == [("silent", A, ONE)]


def test_while_something_is_left_to_read_nobody_is_silent():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    assert look(dog, {A: one}, 60.0, is_idle=False) == []
    assert look(dog, {A: one}, 61.0) == [("silent", A, ONE)]


def test_who_said_goodbye_is_not_waited_for():
    dog, one = Watchdog(1.0, 100), sender()
    look(dog, {A: one}, 0.0)
    one.has_left = True
    one.heard_at += 1
    assert look(dog, {A: one}, 0.5) == [("left", A, None)]
    assert look(dog, {A: one}, 60.0) == []


def test_only_the_endpoint_of_the_silent_one_is_connected_anew():
    dog, one, other = Watchdog(1.0, 100), sender(), sender(to="239.192.1.1:5556")
    senders = {A: one, B: other}
    look(dog, senders, 0.0, endpoints=(ONE, OTHER))
    one.heard_at += 1
    assert look(dog, senders, 1.0, endpoints=(ONE, OTHER)) == [("silent", B, OTHER)]


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
    assert look(dog, {A: one}, 8.9) == []
    assert look(dog, {A: one}, 9.0) == [("silent", A, ONE)]
    assert look(dog, {A: one}, 10.0) == [("silent", A, ONE)]


def test_once_the_large_message_is_there_silence_counts_as_ever():
    dog, one = Watchdog(1.0, 100), sender(heard_at=7)
    one.quiet, one.quiet_at = 8.0, 7
    look(dog, {A: one}, 0.0)
    one.heard_at += 1
    assert look(dog, {A: one}, 5.0) == []
    assert look(dog, {A: one}, 6.0) == [("silent", A, ONE)]


def test_it_says_when_a_publisher_will_have_been_silent_for_too_long():
    dog, one = Watchdog(1.5, 100), sender()
    assert dog.next_deadline({A: one}) is None
    look(dog, {A: one}, 0.0)
    times = []
    while (at := dog.next_deadline({A: one})) is not None:
        assert look(dog, {A: one}, at - 0.001) == []
        assert look(dog, {A: one}, at)
        times.append(at)
    assert times == [1.5, 3.0, 6.0, 12.0, 24.0, 48.0]
    one.heard_at += 1
    look(dog, {A: one}, 60.0)
    assert dog.next_deadline({A: one}) == 61.5
    one.has_left = True
    assert dog.next_deadline({A: one}) is None
