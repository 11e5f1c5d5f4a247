"""Subscriptions of a subscriber: streams, declarations, dispatch."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import oz
from links.pair import Publisher, Subscriber
from oz.subscriber.subscriptions import Subscriptions
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, Declare, Item, StreamOptions

A, B = oz.compile("a.*"), oz.compile("b.*")


def declared(subscriptions, base):
    frames, is_full = subscriptions.declaration(base)
    return [links.decode_control(frame) for frame in frames], is_full


def test_equal_options_share_a_stream():
    subscriptions = Subscriptions()
    first = subscriptions.add(A)
    second = subscriptions.add(B)
    third = subscriptions.add(A, StreamOptions("g"))
    assert first.stream == second.stream != third.stream
    subscriptions.remove(third)
    assert subscriptions.add(A, StreamOptions("g")).stream == third.stream


def test_a_change_declares_the_difference():
    subscriptions = Subscriptions()
    subscription = subscriptions.add(A)
    base = subscriptions.revision
    two = subscriptions.add(B)
    subscriptions.remove(subscription)
    subscriptions.remove(subscriptions.add(A))
    (part,), is_full = declared(subscriptions, base)
    assert not is_full
    assert (part.base, part.revision) == (base, subscriptions.revision)
    assert [item.sid for item in part.items] == [two.sid]
    assert sorted(part.removed) == [subscription.sid, 3]


def test_drained_subscription_is_negative_until_it_is_released():
    subscriptions = Subscriptions()
    subscription = subscriptions.add(A)
    revision = subscriptions.revision
    subscriptions.retire(subscription)
    found = [declared(subscriptions, base)[0][0].removed for base in (0, revision)]
    subscriptions.forget(subscription)
    subscriptions.release(subscription)
    found += [declared(subscriptions, base)[0][0].removed for base in (0, revision, revision + 1)]
    assert found == [[-1], [-1], [], [1], [1]]


def test_an_unknown_base_declares_everything():
    subscriptions = Subscriptions()
    for _ in range(1_100):
        subscriptions.remove(subscriptions.add(A))
    subscription = subscriptions.add(B)
    (part,), is_full = declared(subscriptions, 1)
    assert is_full
    assert (part.base, [item.sid for item in part.items]) == (0, [subscription.sid])


def test_a_message_goes_to_the_subscriptions_of_its_stream():
    subscriptions = Subscriptions()
    subscription = subscriptions.add(A)
    two = subscriptions.add(A, StreamOptions("g"))
    assert subscriptions.match(subscription.stream, b"a.1", None) == (subscription,)
    assert subscriptions.match(two.stream, b"a.1", None) == (two,)
    assert subscriptions.match(subscription.stream, b"b.1", None) == ()
    assert subscriptions.match(9, b"a.1", None) == ()
    subscriptions.remove(subscription)
    assert subscriptions.match(subscription.stream, b"a.1", None) == ()


def test_a_last_value_goes_to_one_subscription():
    subscriptions = Subscriptions()
    subscription, two = subscriptions.add(A), subscriptions.add(A)
    assert subscriptions.match(1, b"a.1", {"sid": two.sid}) == (two,)
    subscriptions.remove(two)
    assert subscriptions.match(1, b"a.1", {"sid": two.sid}) == ()
    assert set(subscriptions.match(1, b"a.1", {})) == {subscription}


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), max_size=40), st.integers(1, 9)
)
def test_differences_lead_to_the_same_interest_as_everything(changes, every):
    """A publisher that applies each difference has the subscriptions of the subscriber."""
    publisher, subscriptions, active = Publisher(), Subscriptions(), []
    session = publisher.hello()
    known = 0
    for number, (is_added, text, option) in enumerate(changes):
        if is_added or not active:
            options = StreamOptions(max_pending=option)
            active.append(subscriptions.add(oz.compile(f"s{text}.*"), options))
        else:
            subscriptions.remove(active.pop(text % len(active)))
        if number % every == 0:
            for frame in subscriptions.declaration(known)[0]:
                publisher.read(frame)
            known = subscriptions.revision
    for frame in subscriptions.declaration(known)[0]:
        publisher.read(frame)
    assert session.patterns.keys() == subscriptions.by_sid.keys()
    assert session.applied == max(subscriptions.revision, 1)
    for number in range(6):
        streams = {item.stream for item in active if item.pattern.text == f"s{number}.*"}
        route = publisher.sessions.interest.find(f"s{number}.x", b"s%d.x" % number)
        assert {item.number for item in (route.plain if route else ())} == streams


def declared_at_a_publisher(pattern):
    """Return a publisher that a link has declared a pattern to, and the refused subscriptions."""
    subscriber, publisher = Subscriber(), Publisher()
    subscriber.subscriptions.add(pattern)
    subscriber.link.connect(0.0)
    while (frame := subscriber.link.next_frame()) is not None:
        subscriber.link.confirm_sent(0.0)
        publisher.read(frame)
    (session,) = publisher.sessions.by_id.values()
    return publisher, session.refused


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        (oz.compile(regex.compile("^abc", regex.IGNORECASE)), "ABC"),
        (oz.compile("a.>.b", "rv", lenient=True), "a.>.b"),
        (oz.compile(b"a.*", "nats"), "a.b"),
    ],
)
def test_a_publisher_matches_as_the_pattern_was_compiled(pattern, subject):
    publisher, refused = declared_at_a_publisher(pattern)
    assert refused == {}
    assert publisher.sessions.publish(subject, b"x")


@pytest.mark.parametrize(
    "pattern",
    [oz.compile(regex.compile(r"\L<words>", words=["a"])), oz.compile("a." * 5_000 + "b", "nats")],
)
def test_a_pattern_that_cannot_be_declared_is_refused_at_once(pattern):
    with pytest.raises(oz.PatternError):
        Subscriptions().add(pattern)
    assert Subscriptions().revision == 0


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("regex", "(a|b)" * 1_000),
        ("regex", "(a{1000}){1000}"),
        ("redis", "*a" * 4_000),
        ("nats", "a." * 5_000 + "b"),
        ("unknown", "a"),
        ("regex flags", b"a"),
    ],
)
def test_a_pattern_that_is_slow_to_compile_is_refused(dialect, text):
    publisher = Publisher()
    session = publisher.hello()
    publisher.read(
        links.encode_declare(Declare(1, 0, True, {1: DEFAULT_OPTIONS}, [Item(1, 1, dialect, text)], []))
    )
    assert list(session.refused) == [1]
    assert not session.patterns


def test_patterns_of_a_session_have_a_bound_in_bytes():
    publisher = Publisher(pattern_weight=100_000)
    session = publisher.hello()
    items = [Item(sid, 1, "regex", f"({sid}{{200}})x") for sid in range(20)]
    publisher.read(links.encode_declare(Declare(1, 0, True, {1: DEFAULT_OPTIONS}, items, [])))
    assert session.patterns
    assert session.refused
    publisher.read(links.encode_declare(Declare(2, 1, True, {}, [], list(session.patterns))))
    assert session.weight == 0


def test_a_declaration_that_is_asked_for_again_is_not_encoded_again():
    subscriptions = Subscriptions()
    subscriptions.add(A)
    first, _ = subscriptions.declaration(0)
    assert subscriptions.declaration(0)[0] is first
    subscriptions.add(B)
    second, _ = subscriptions.declaration(0)
    assert len(links.decode_control(second[0]).items) == 2
