"""Accounting of losses, overflow policies and last values. All need publisher-side filtering."""

from contextlib import suppress

import pytest

from contract.adapter import Options, errors, limits
from contract.promises import cases, promise
from support.waiting import DEADLINE, until

NO_PREFIX = {"prefix": "Without publisher-side filtering a loss has no count."}
PAYLOAD = bytes(20_000)  # follows the number, so that the buffers of the transport are full soon
COUNT = 800  # messages; more than the buffers of the transport hold


def _flood(publisher, count=COUNT, subjects=("a.x",)):
    publisher.publish_many(
        (subjects[number % len(subjects)], b"%012d" % number + PAYLOAD) for number in range(count)
    )
    publisher.flush()


def _arrived(subscriber, timeout):
    """Return iterator over the messages that arrive, until none arrives within a timeout."""
    with suppress(errors.Timeout):
        while True:
            yield from subscriber.receive_many(timeout=timeout)


def _read(subscriber):
    """Return the numbers of all messages up to the one on `end`, and the lost ones before each."""
    numbers, lost = [], 0
    for message in _arrived(subscriber, DEADLINE):
        lost += message.gap
        if message.subject == "end":
            return numbers, lost
        numbers.append(_number(message))
    raise AssertionError("no message on `end` arrived")


def _number(message):
    return int(message.payload[:12])


@promise("Each matching message is delivered, or counted as lost at its place.", not_for=NO_PREFIX)
@cases("overflow", [None, "drop_oldest", "drop_newest"])
def test_losses_are_counted_in_their_place(sockets, overflow):
    publisher = sockets.publisher(options=Options(high_water_mark=20, batch=8, resume_bytes=100_000))
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "a.*", overflow=overflow, delivery={"max_pending": 20})
    published = following = 0

    def publish(count):
        nonlocal published
        start, published = published, published + count
        publisher.publish_many(
            ("a.x", b"%012d" % number + bytes(5_000)) for number in range(start, published)
        )
        publisher.flush()

    def receive(limit, timeout):
        nonlocal following
        with suppress(errors.Timeout):
            for message in subscriber.receive_many(limit, timeout=timeout):
                assert _number(message) - following == message.gap
                following = _number(message) + 1

    for _ in range(20):
        publish(60)
        receive(15, 0.05)

    def has_all():
        publish(1)
        receive(1_000, 0.05)
        return following == published

    until(has_all)
    assert subscriber.stats.lost > 0


@promise('on_full="block" loses no message: the publisher waits for its subscriber.', not_for=NO_PREFIX)
def test_block_loses_nothing(sockets, api):
    publisher = sockets.publisher(on_full="block", options=Options(high_water_mark=2, batch=4))
    subscriber = sockets.subscriber(publisher, options=Options(high_water_mark=2))
    sockets.subscribe(publisher, subscriber, ["a.*", "end"])

    def publish():
        _flood(publisher)
        publisher.publish("end")
        publisher.flush()

    work = api.start(publish)
    assert _read(subscriber) == (list(range(COUNT)), 0)
    work.outcome()


@promise('on_full="raise" raises WouldBlock and loses no accepted message.', not_for=NO_PREFIX)
def test_raise_refuses_what_has_no_room(sockets):
    publisher = sockets.publisher(on_full="raise", options=Options(high_water_mark=2, batch=4))
    subscriber = sockets.subscriber(publisher, options=Options(high_water_mark=2))
    sockets.subscribe(publisher, subscriber, ["a.*", "end"])
    accepted, is_full = 0, False
    while not is_full:
        try:
            publisher.publish("a.x", b"%012d" % accepted + PAYLOAD)
            accepted += 1
        except errors.WouldBlock:
            is_full = True
    numbers = []

    def publish_end():
        try:
            publisher.publish("end")
            publisher.flush()
        except errors.WouldBlock:
            return False
        return True

    def read_some():
        numbers.extend(map(_number, _arrived(subscriber, 0.02)))
        return publish_end()

    until(read_some)
    rest, lost = _read(subscriber)
    assert ([*numbers, *rest][:accepted], lost) == (list(range(accepted)), 0)


@promise(
    "drop_oldest keeps the newest messages, drop_newest the oldest; both count dropped messages.",
    not_for=NO_PREFIX,
)
@cases("overflow", ["drop_oldest", "drop_newest"])
def test_overflow_drops_and_counts(sockets, overflow):
    publisher = sockets.publisher(options=Options(batch=4))
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "a.*", overflow=overflow, delivery={"max_pending": 10})
    _flood(publisher)
    numbers = []

    def has_settled():
        numbers.extend(map(_number, _arrived(subscriber, 0.05)))
        stats = subscriber.stats
        return len(numbers) + stats.dropped + stats.lost >= COUNT

    until(has_settled)
    stats = subscriber.stats
    assert numbers == sorted(set(numbers))
    assert len(numbers) + stats.dropped + stats.lost == COUNT
    assert numbers[-1] == COUNT - 1 if overflow == "drop_oldest" else numbers[0] == 0
    assert len(numbers) < COUNT


@pytest.fixture
def pair_options():
    """Options with which a stalled connection is full soon."""
    return {
        "publisher": {"options": Options(high_water_mark=4, batch=4)},
        "subscriber": {"options": Options(high_water_mark=4)},
    }


@promise(
    "The overflow policy of a subscription also applies at the publisher while a connection stalls.",
    not_for=NO_PREFIX,
)
@cases("overflow", ["conflate", "drop_oldest", "drop_newest"])
def test_overflow_at_a_stalled_connection(proxied, overflow):
    proxied.subscribe("a.*", overflow=overflow, delivery={"max_pending": 50})
    proxied.proxy.stall()
    subjects = ["a.x", "a.y", "a.z"]
    _flood(proxied.publisher, COUNT + 1, subjects)
    proxied.proxy.resume()
    numbers, newest = [], {}

    def has_settled():
        for message in _arrived(proxied.subscriber, 0.05):
            numbers.append(_number(message))
            assert newest.get(message.subject, -1) < numbers[-1]
            newest[message.subject] = numbers[-1]
        return len(numbers) + proxied.subscriber.stats.dropped + proxied.subscriber.stats.lost > COUNT

    until(has_settled)
    assert len(set(numbers)) == len(numbers) < COUNT
    # A message that a newer one has replaced is a dropped message.
    assert len(numbers) + proxied.subscriber.stats.dropped + proxied.subscriber.stats.lost == COUNT + 1
    if overflow == "conflate":
        assert newest == {subject: COUNT - 2 + at for at, subject in enumerate(subjects)}
    else:
        assert numbers == sorted(numbers)
        assert numbers[-1] == COUNT if overflow == "drop_oldest" else numbers[0] == 0


@promise(
    "A new subscription with last_value receives the newest message of each matching subject first.",
    not_for=NO_PREFIX,
)
def test_last_values_come_first(sockets):
    publisher = sockets.publisher(last_value=True)
    for subject in ("a.x", "a.y", "b.x"):
        for number in range(3):
            publisher.publish(subject, b"%d" % number)
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "a.*", last_value=True)
    found = {message.subject: message.payload for message in (got.receive(), got.receive())}
    assert found == {"a.x": b"2", "a.y": b"2"}
    publisher.publish("a.x", b"3")
    assert got.receive().payload == b"3"


@promise("Losses that a program reports arrive as gaps, also when its publisher closes.", not_for=NO_PREFIX)
def test_reported_losses_arrive_when_a_publisher_closes(sockets, api):
    gaps = []
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher, on_gap=gaps.append)
    sockets.subscribe(publisher, subscriber, "a.*")
    publisher.publish("a.x", b"1")
    assert subscriber.receive().payload == b"1"
    publisher.report_loss(3)
    publisher.report_loss(None)
    closing = api.start(publisher.close)
    until(lambda: [*_arrived(subscriber, 0.01)] == [] and len(gaps) == 2)
    assert {gap.count for gap in gaps} == {3, None}
    closing.outcome()


@promise("A publisher lists the backlog of each subscriber.", not_for=NO_PREFIX, small=1)
def test_publisher_lists_the_backlog_of_each_subscriber(proxied):
    proxied.subscribe("a.*")
    (one,) = proxied.publisher.subscribers
    assert (one.pending, one.oldest, one.state, [*one.patterns]) == (0, None, "up", ["a.*"])
    proxied.proxy.stall()
    proxied.publisher.publish_many(("a.x", bytes(100)) for _ in range(10))
    proxied.publisher.flush()
    (one,) = proxied.publisher.subscribers
    assert one.pending == 10
    assert one.pending_bytes >= 1000
    assert one.oldest >= 0


@promise(
    "A message that is larger than a subscriber accepts is dropped for that subscriber only, and reported.",
    not_for=NO_PREFIX,
)
def test_message_that_a_subscriber_does_not_accept(sockets):
    gaps = []
    publisher = sockets.publisher()
    options = Options(limits=limits(message_bytes=2 << 20))
    small = sockets.subscriber(publisher, on_gap=gaps.append, options=options)
    other = sockets.subscriber(publisher)
    for item in (small, other):
        sockets.subscribe(publisher, item, "a.*")
    payloads = [b"1", bytes(3 << 20), b"2"]
    publisher.publish_many(("a.x", payload) for payload in payloads)
    assert [other.receive().payload for _ in payloads] == payloads
    assert [small.receive().payload for _ in range(2)] == [b"1", b"2"]
    assert [(gap.count, gap.reason) for gap in gaps] == [(1, "dropped")]
    assert publisher.stats.dropped["too_large"] == 1


@promise('on_full="block" raises WouldBlock after send_timeout.', not_for=NO_PREFIX, small=1)
def test_block_ends_after_send_timeout(sockets):
    publisher = sockets.publisher(on_full="block", options=Options(high_water_mark=2, send_timeout=0.05))
    subscriber = sockets.subscriber(publisher, options=Options(high_water_mark=2))
    sockets.subscribe(publisher, subscriber, ["a.*", "end"])
    with pytest.raises(errors.WouldBlock):
        _flood(publisher)


BLOCKING = {
    "on_full": "block",
    "options": Options(high_water_mark=2, resume_bytes=100_000, send_timeout=DEADLINE),
}


@promise('on_full="block" does not wait for a subscriber without connection.', not_for=NO_PREFIX, small=1)
@pytest.mark.parametrize("pair_options", [{"publisher": BLOCKING}], ids=["blocking"])
def test_block_does_not_wait_for_a_disconnected_subscriber(proxied):
    proxied.subscribe("a.*")
    proxied.proxy.pass_on_to("tcp://127.0.0.1:1")
    proxied.proxy.cut()
    until(lambda: [subscriber.state for subscriber in proxied.publisher.subscribers] == ["down"])
    proxied.publisher.publish_many(("a.x", bytes(1_000)) for _ in range(5_000))
    assert proxied.publisher.stats.dropped["full"] > 0
    # Messages wait for the subscriber, but a program that waits for subscribers waits for a connection.
    assert proxied.publisher.has_subscribers("a.x")
    with pytest.raises(errors.Timeout):
        proxied.publisher.wait_for_subscribers("a.x", timeout=0)


@promise(
    "A subscriber that was disconnected for resume_seconds reports a loss of unknown size.",
    not_for=NO_PREFIX,
    small=1,
)
@pytest.mark.parametrize(
    "pair_options", [{"publisher": {"options": Options(resume_seconds=0.2)}}], ids=["resume"]
)
def test_subscriber_that_stays_away_is_forgotten(proxied):
    got = proxied.subscribe("a.*")
    endpoint = proxied.publisher.faulty_endpoint("publisher")
    proxied.proxy.pass_on_to("tcp://127.0.0.1:1")
    proxied.proxy.cut()
    proxied.publisher.publish("a.x", b"lost")
    proxied.publisher.flush()
    until(lambda: [*_arrived(proxied.subscriber, 0.01)] == [] and not proxied.publisher.subscribers)
    assert proxied.publisher.stats.given_up == 1
    proxied.proxy.pass_on_to(endpoint)
    until(lambda: [*_arrived(proxied.subscriber, 0.01)] == [] and proxied.publisher.has_subscribers("a.x"))
    proxied.publisher.publish("a.x", b"next")
    message = got.receive()
    assert message.payload == b"next"
    assert proxied.gaps == [None]


@promise('on_full="block" also waits when `pending_bytes` is the limit.', not_for=NO_PREFIX)
@cases("load", ["small", "large", "mixed", "headers", "group"])
def test_block_waits_for_bytes(sockets, api, load):
    limit = 1 << 18
    publisher = sockets.publisher(
        on_full="block",
        options=Options(resume_bytes=1 << 16, pending_bytes=limit, high_water_mark=100_000),
    )
    subscriber = sockets.subscriber(publisher, options=Options(resume_bytes=1 << 16, high_water_mark=100))
    sockets.subscribe(publisher, subscriber, ["a.*", "end"], **({"group": "g"} if load == "group" else {}))
    sizes = {"small": [100], "large": [100_000], "mixed": [100, 3_000, 100_000, 10]}.get(load, [3_000])
    count = {"small": 20_000, "large": 40}.get(load, 1_000)
    headers = {"name": "value"} if load == "headers" else None
    maximum = 0

    def publish():
        nonlocal maximum
        for number in range(count):
            publisher.publish("a.x", b"%012d" % number + bytes(sizes[number % len(sizes)]), headers=headers)
            if not number % 10:
                maximum = max(maximum, *(subscriber.pending_bytes for subscriber in publisher.subscribers))
        publisher.publish("end")
        publisher.flush()

    work = api.start(publish)
    assert _read(subscriber) == (list(range(count)), 0)
    work.outcome()
    assert not any(publisher.stats.dropped.values())
    assert maximum <= limit
