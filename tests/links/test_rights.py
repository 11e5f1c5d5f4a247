"""Rights of sessions that change while messages wait."""

import pytest

from links.pair import OTHER_ROUTE, Publisher
from oz.publisher.session import DENIED
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, Answer, Bye, Refusal, StreamOptions

OVERFLOWS = [None, "drop_newest", "drop_oldest", "conflate"]


class Rights:
    """Rights that a test changes: patterns that are denied, and keys that are not trusted."""

    def __init__(self):
        self.denied, self.distrusted = set(), set()

    def authorize(self, user, item, pattern, group):
        return Refusal(item.sid, "denied", "rule", "b.x") if pattern.text in self.denied else None

    def is_trusted(self, user):
        return user not in self.distrusted


@pytest.fixture
def rights():
    return Rights()


def up(rights, options=DEFAULT_OPTIONS, **settings):
    """Return a publisher, and a session with subscriptions to a.* and b.* in one stream."""
    publisher = Publisher(authorize=rights.authorize, **settings)
    session = publisher.hello(user="desk")
    publisher.read(
        links.encode_declare(
            links.Declare(
                1,
                0,
                True,
                {1: options},
                [links.Item(1, 1, "nats", "a.*"), links.Item(2, 1, "nats", "b.*")],
                [],
            )
        ),
        user="desk",
    )
    publisher.pull(session)
    return publisher, session


def reconsider(publisher, rights):
    ended = publisher.sessions.reconsider(rights.is_trusted)
    while publisher.sessions.work(10):
        pass
    return ended


def counts(session):
    """Check that matched messages are the numbered, pending and dropped ones; return pending and dropped."""
    [stream] = session.streams.values()
    assert stream.matched == stream.numbered + stream.pending + stream.dropped
    return stream.pending, stream.drops[DENIED]


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_messages_that_wait_are_dropped_when_their_pattern_is_denied(rights, overflow):
    publisher, session = up(rights, StreamOptions(overflow=overflow), window=1)
    publisher.sessions.publish("a.1", b"x")
    publisher.sessions.publish("b.1", b"x")
    publisher.sessions.flush()
    for subject in ("b.2", "a.2", "b.3"):
        publisher.sessions.publish(subject, b"x")
    publisher.sessions.flush()
    publisher.publish("b.4")
    before = session.bytes
    rights.denied = {"b.*"}
    assert reconsider(publisher, rights) == []
    assert counts(session) == (1, 3)
    assert session.bytes < before
    first, answer = sorted(publisher.pull(session), key=lambda item: isinstance(item, Answer))
    # A numbered message keeps its number without its content.
    assert first[5] == ["a.1", ""]
    assert answer.refused == [Refusal(2, "denied", "rule", "b.x")]
    publisher.read(links.encode_ack(2, {}), user="desk")
    [second] = publisher.pull(session)
    assert (second[1], second[2], second[5]) == (2, 1, ["a.2"])
    publisher.read(links.encode_ack(3, {}), user="desk")
    assert session.bytes == 0
    assert session.totals()[1].denied == 3


def test_a_message_that_another_pattern_matches_stays(rights):
    publisher, session = up(rights, window=1)
    publisher.read(
        links.encode_declare(
            links.Declare(2, 1, True, {1: DEFAULT_OPTIONS}, [links.Item(3, 1, "nats", "b.1")], [])
        ),
        user="desk",
    )
    publisher.publish("a.1", "b.1", "b.2")
    rights.denied = {"b.*"}
    reconsider(publisher, rights)
    assert counts(session) == (1, 1)
    publisher.publish("b.1", "b.2")
    assert counts(session) == (2, 1)


def test_a_denied_pattern_stays_denied_when_the_rules_change_again(rights):
    publisher, session = up(rights)
    rights.denied = {"b.*"}
    reconsider(publisher, rights)
    rights.denied = set()
    reconsider(publisher, rights)
    publisher.publish("b.1")
    assert counts(session) == (0, 0)
    assert session.following == 0


def test_a_member_of_a_group_loses_its_messages_to_members_that_may_have_them(rights):
    options = StreamOptions(group="g", handled=True, redeliver=True)
    publisher, session = up(rights, options)
    publisher.publish("b.1", "a.1", "b.2")
    other = publisher.hello(OTHER_ROUTE, b"another session!", user="other", member=b"m" * 16)
    publisher.read(
        links.encode_declare(links.Declare(1, 0, True, {1: options}, [links.Item(1, 1, "redis", "b.?")], [])),
        OTHER_ROUTE,
        "other",
    )
    rights.denied = {"b.*"}
    reconsider(publisher, rights)
    found = [batch for batch in publisher.pull(other) if len(batch) == 6 and isinstance(batch[0], int)]
    assert [subject for item in found for subject in item[5]] == ["b.1", "b.2"]
    assert session.pending == 1


def test_a_key_that_is_not_trusted_loses_its_session(rights):
    publisher, session = up(rights)
    publisher.publish("a.1")
    rights.distrusted = {"desk"}
    assert reconsider(publisher, rights) == [session.route]
    assert session.state == "ended"
    assert publisher.replies() == [(session.route, Bye(links.KEY_REFUSED, links.PUBLISHER, 1, {}))]
    assert publisher.sessions.given_up == 1
    assert not publisher.sessions.by_id
