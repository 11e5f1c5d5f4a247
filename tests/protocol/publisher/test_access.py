"""Which subscriptions a publisher grants to whom."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.access import Access, Rights, beginning_with
from oz.security.limits import DEFAULT_LIMITS
from oz.security.permissions import Permissions, Rule, User
from oz.transport.backend import Peer
from oz.wire.keys import Declaration, Declared, DeliveryOptions, stream_key

OWNER, THIEF = "o" * 40, "t" * 40
WORDS = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4).map(".".join)


def rules(**texts):
    return tuple(
        Rule("subscribe", effect, text, oz.compile(text), "here")
        for effect, those in texts.items()
        for text in those
    )


@pytest.fixture
def rights():
    users = {"owner": User("owner", (OWNER,), rules=rules(allow=["md.>"], deny=["md.secret.>"]))}
    return [Rights({OWNER, THIEF}, Permissions("deny", users))]


@pytest.fixture
def access(rights):
    return Access(lambda: rights[0], "nats")


def test_whoever_is_trusted_again_is_granted_at_once_and_the_change_is_told_all_the_same(rights, access):
    access.denial(OWNER, ())
    there = rights[0]
    rights[0] = Rights({THIEF}, there.permissions)
    assert access.has_changed()
    assert "not trusted" in access.denial(OWNER, ())
    rights[0] = there
    assert access.denial(OWNER, ()) is None
    assert access.has_changed()
    assert not access.has_changed()


@given(WORDS, WORDS, st.integers(0, 12))
def test_a_prefix_stands_for_the_valid_subjects_that_begin_so(subject, other, size):
    prefix = subject[:size].encode()
    for one in (subject, other):
        assert beginning_with(prefix, "nats").matches(one) == one.encode().startswith(prefix)


@given(st.binary(max_size=4), WORDS)
def test_no_prefix_that_is_granted_lets_a_denied_subject_through(prefix, subject):
    users = {"owner": User("owner", (OWNER,), rules=rules(allow=[">"], deny=["a.*.b", "b"]))}
    rights = Rights({OWNER}, Permissions("deny", users))
    access = Access(lambda: rights, "nats")
    is_denied = bool(re.fullmatch(r"a\.[^.]+\.b|b", subject))
    if subject.encode().startswith(prefix) and is_denied:
        assert access.denial_of_key(OWNER, prefix)


@pytest.mark.parametrize(
    ("prefix", "is_granted"),
    [(b"", False), (b"md.", False), (b"md.e", True), (b"md.s", False), (b"\xff", False)],
)
def test_a_prefix_is_granted_as_a_whole(access, prefix, is_granted):
    assert (access.denial_of_key(OWNER, prefix) is None) == is_granted


def test_answers_change_with_the_rights(access, rights):
    pattern = oz.compile("md.eu")
    assert access.denial(OWNER, [pattern]) is None
    assert not access.has_changed()
    rights[0] = Rights({OWNER}, Permissions("deny", {}))
    assert access.has_changed()
    assert access.denial(OWNER, [pattern])
    assert "not trusted" in access.denial(THIEF, ())


# the queue -------------------------------------------------------------------------------------------------


@pytest.fixture
def router():
    return Router(bytes(16), PublisherStats())


@pytest.fixture
def queue(router, access):
    return InterestQueue(router, DEFAULT_LIMITS, lambda peer: True, access)


def declared(name, *, shared=False):
    options, patterns = DeliveryOptions(is_shared=shared), (Declared(1, b"md.eu"),)
    return b"\x01" + Declaration(name, 1, options, patterns=patterns).encode()


NAME, FIRST, SECOND = bytes(16), Peer(5, 50, OWNER), Peer(6, 60, THIEF)


def test_a_stream_belongs_to_the_key_that_names_it_first_though_nobody_has_looked_at_it(queue):
    assert queue.take(declared(NAME), FIRST, 0.0).wanted
    assert not queue.take(b"\x01" + stream_key(NAME), SECOND, 0.0).wanted
    assert queue.take(b"\x01" + stream_key(NAME), FIRST, 0.0).wanted


def test_what_waits_while_the_rights_change_is_asked_for_again(queue, access, rights):
    assert queue.take(declared(NAME, shared=True), FIRST, 0.0).wanted
    rights[0] = Rights({OWNER, THIEF}, Permissions("deny", {}))
    assert access.has_changed()
    queue.revoke(0.0)
    assert queue.to_cut == [FIRST]


def test_a_stream_is_its_owners_though_the_connection_had_closed_before_it_was_read(queue):
    assert queue.take(declared(NAME), Peer(5, None, OWNER), 0.0).wanted
    queue.work(lambda: 0.0)
    assert queue.take(declared(NAME), FIRST, 0.0).wanted
    assert queue.take(b"\x01" + stream_key(NAME), FIRST, 0.0).wanted
    assert not queue.take(b"\x01" + stream_key(NAME), SECOND, 0.0).wanted


def test_who_is_not_trusted_takes_no_stream_from_who_is(queue, access, rights):
    rights[0] = Rights({OWNER}, rights[0].permissions)
    assert access.has_changed()
    assert not queue.take(declared(NAME), SECOND, 0.0).wanted
    assert queue.take(declared(NAME), FIRST, 0.0).wanted


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_owner_of_a_stream_is_not_told_what_another_is_refused_in_its_name(
    queue, router, access, rights, is_trusted
):
    assert queue.take(declared(NAME), FIRST, 0.0).wanted
    assert queue.take(b"\x01" + stream_key(NAME), FIRST, 0.0).wanted
    queue.work(lambda: 0.0)
    if not is_trusted:
        rights[0] = Rights({OWNER}, rights[0].permissions)
        assert access.has_changed()
    # Where its number stands it is safe anyway.
    other = Declaration(NAME, 2, DeliveryOptions(), patterns=(Declared(1, b"md.eu"),)).encode()
    assert not queue.take(b"\x01" + other, SECOND, 0.0).wanted
    assert not router.streams[stream_key(NAME)].refused
