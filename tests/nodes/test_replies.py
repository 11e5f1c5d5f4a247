"""Replies that wait for the session of the requester, and errors on the wire."""

import pytest

from oz.node.replies import MAX_BYTES, MAX_REPLIES, Reply, WaitingReplies, decode_error, encode_error

A, B = bytes(16), bytes([1] * 16)


def make_reply(number, payload=b"x"):
    return Reply(f"_INBOX.{number}", payload, None)


def test_replies_wait_in_order_until_the_session_is_up():
    waiting = WaitingReplies()
    for number in range(3):
        assert waiting.add(A, make_reply(number), 0.0)
        waiting.add(B, make_reply(9), 0.0)
    assert waiting.pop_ready(0.0, lambda node: False) == []
    assert waiting.pop_ready(0.0, A.__eq__) == [(A, make_reply(number)) for number in range(3)]
    assert waiting.pop_ready(0.0, A.__eq__) == []
    assert len(waiting) == 3


def test_replies_are_dropped_after_two_seconds():
    waiting = WaitingReplies()
    waiting.add(A, make_reply(1), 0.0)
    waiting.add(A, make_reply(2), 1.0)
    waiting.pop_ready(2.0, B.__eq__)
    assert (len(waiting), waiting.given_up) == (1, 1)
    waiting.pop_ready(3.0, B.__eq__)
    assert (len(waiting), waiting.given_up) == (0, 2)


def test_waiting_replies_are_bounded_by_number():
    waiting = WaitingReplies()
    accepted = [waiting.add(A, make_reply(number), 0.0) for number in range(MAX_REPLIES + 5)]
    assert accepted.count(True) == len(waiting) == MAX_REPLIES
    assert waiting.given_up == 5
    waiting.pop_ready(0.0, A.__eq__)
    assert waiting.add(A, make_reply(1), 0.0)


@pytest.mark.parametrize("extras", [None, {"headers": {"h": "x" * (1 << 20)}}])
def test_waiting_replies_are_bounded_by_bytes(extras):
    waiting = WaitingReplies()
    payload = b"" if extras else bytes(1 << 20)
    count = 0
    while waiting.add(A, Reply("_INBOX.1", payload, extras), 0.0):
        count += 1
    assert 4 <= count <= MAX_BYTES >> 20


def test_an_error_reaches_the_asker():
    error = decode_error(encode_error(LookupError("no isin"), is_hidden=False), "svc", "server")
    assert (error.kind, error.text, error.subject, error.node) == ("LookupError", "no isin", "svc", "server")
    assert "LookupError: no isin" in str(error)


def test_a_hidden_error_has_neither_class_nor_text():
    found = encode_error(LookupError("secret"), is_hidden=True)
    assert found == ["", ""]
    assert "error_replies=False" in str(decode_error(found, "svc", "server"))


def test_an_error_without_text_shows_its_class():
    assert str(decode_error(encode_error(KeyError(), is_hidden=False), "svc", "n")).endswith(
        "raised KeyError"
    )


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("error", [Unprintable(), ValueError("\udcff" + "x" * 100_000)])
def test_any_exception_has_a_form_on_the_wire(error):
    kind, text = encode_error(error, is_hidden=False)
    assert kind == type(error).__name__
    assert len(text.encode()) < 5_000


@pytest.mark.parametrize("found", [None, [], ["x"], [1, 2], {"a": 1}, b"x", ["a", "b", "c"], [["a"], "b"]])
def test_an_error_of_another_form_hides_its_text(found):
    assert decode_error(found, "svc", "n").kind == ""
