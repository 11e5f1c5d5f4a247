"""Notices of denied messages, without sockets."""

import msgpack
import pytest

import oz
from oz.node.denials import Denials, Notice, decode
from oz.security.access import Rights
from oz.security.permissions import Permissions, Rule, User

KEY, NODE = "k" * 40, b"n" * 16


def rights(*allowed):
    rules = tuple(Rule("publish", "allow", pattern, oz.compile(pattern), "here") for pattern in allowed)
    return Rights({KEY}, Permissions("deny", {"user": User("user", (KEY,), rules=rules)}))


@pytest.mark.parametrize(
    "fields",
    [
        (),
        None,
        ["x", "why"],
        ["x", "why", 1, None],
        ["x", None, None, None],
        [b"x", "why", None, None],
        ["x" * 1_001, "why", None, None],
        ["x", "why", None, "x" * 1_001],
    ],
)
def test_malformed_notice_is_ignored(fields):
    assert decode(msgpack.packb(fields)) is None


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff"])
def test_notice_that_is_no_message_pack_is_ignored(payload):
    assert decode(payload) is None


def test_notice_survives_the_wire_with_bounded_texts():
    notice = Notice("x" * 5_000, "why", None, "_INBOX.1")
    found = decode(notice.encode())
    assert found == notice._replace(subject="x" * 1_000)


def test_publication_is_reported_once_and_each_request():
    current = rights("md.>")
    denials = Denials(lambda: current)
    assert denials.add(NODE, KEY, b"other", None)
    assert not denials.add(NODE, KEY, b"other", None)
    assert denials.add(NODE, KEY, b"other", "_INBOX.1")
    assert denials.add(NODE, KEY, b"other", "_INBOX.2")
    found = list(denials.notices())
    assert [notice.reply_to for _, notice, _ in found] == [None, "_INBOX.1", "_INBOX.2"]
    assert found[0][1].rule == "here: allow publish 'md.>'"
    assert [is_first for *_, is_first in found] == [True, True, False]
    assert not len(denials)


def test_publication_is_reported_again_after_a_change_of_rights():
    current = [rights("md.>")]
    denials = Denials(lambda: current[0])
    assert denials.add(NODE, KEY, b"other", None)
    current[0] = rights("notes.>")
    assert denials.add(NODE, KEY, b"other", None)
    current[0] = rights("other")
    # Now both subjects are allowed.
    assert list(denials.notices()) == []
