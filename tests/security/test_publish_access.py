"""Messages that a subscriber receives from a key."""

import pytest

import oz
from oz.security.access import Rights
from oz.security.permissions import Permissions, Rule, User
from oz.security.publish_access import MAX_NAMES, Denials, PublishAccess

HONEST, OTHER = "h" * 40, "o" * 40


def rule(effect, text):
    return Rule("publish", effect, text, oz.compile(text), "here")


@pytest.fixture
def access():
    rules = (rule("allow", "md.>"), rule("deny", "md.secret.>"))
    users = {"honest": User("honest", (HONEST,), rules=rules)}
    rights = Rights({HONEST, OTHER}, Permissions("deny", users))
    made = PublishAccess(lambda: rights, Denials())
    made.key = HONEST
    return made


def test_an_origin_belongs_to_the_key_that_uses_it_first():
    rights, stats = Rights({HONEST, OTHER}, None), Denials()
    access = PublishAccess(lambda: rights, stats)
    access.key = HONEST
    assert access.owns(b"name")
    access.key = OTHER
    assert not access.owns(b"name", 3)
    assert stats.denied == 3
    assert access.owns(b"another")
    assert stats.denied == 3


def test_a_key_cannot_remove_the_origin_of_another_key(access):
    assert access.owns(b"name")
    access.key = OTHER
    for number in range(MAX_NAMES + 10):
        assert access.owns(b"%d" % number)
    assert not access.owns(b"name")
    assert access.owns(b"0")


def test_messages_of_a_key_that_is_not_trusted_any_more_are_denied():
    rights = [Rights({HONEST}, None)]
    access = PublishAccess(lambda: rights[0], Denials())
    access.key = HONEST
    assert access.owns(b"name")
    assert access.allows(b"a")
    rights[0] = Rights(set(), None)
    assert not access.owns(b"name")
    assert not access.allows(b"a")


def test_the_rights_are_read_once_for_each_frame():
    rights, read = [Rights({HONEST}, Permissions("allow"))], []
    access = PublishAccess(lambda: read.append(1) or rights[0], Denials())
    access.key = HONEST
    read.clear()
    assert access.owns(b"name")
    assert access.denied((b"a", b"b")) == []
    assert len(read) == 1
    rights[0] = Rights({HONEST}, Permissions("deny"))
    assert access.owns(b"name")
    assert access.denied((b"a", b"b")) == [0, 1]
