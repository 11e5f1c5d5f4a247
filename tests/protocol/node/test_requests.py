"""Requests, and the replies that nobody waits for any more."""

from types import SimpleNamespace

from oz.protocol.node.requests import Requests
from oz.wire.node_codec import Failure


def reply(inbox, payload=b""):
    return SimpleNamespace(subject=inbox, payload=payload)


def test_what_a_handler_raised_comes_beside_the_inbox_and_nothing_else_does():
    requests, got = Requests(bytes(16)), []
    inbox, failure = requests.begin(got.append, lambda: 0), Failure("ValueError", "bad size", "pricing")
    for subject, payload in ((inbox, failure), (f"{inbox}.failed", b""), (f"{inbox}.other", b"")):
        requests.take(reply(subject, payload))
    assert (got, requests.late) == ([], 3)
    requests.take(reply(f"{inbox}.failed", failure))
    assert [one.payload for one in got] == [failure]


def test_what_was_not_read_and_what_comes_after_the_end_is_late():
    requests, got = Requests(bytes(16)), []
    inbox = requests.begin(got.append, lambda: len(got) - 1)
    for _ in range(3):
        requests.take(reply(inbox))
    assert (len(requests), requests.late) == (1, 0)
    requests.end(inbox)
    requests.end(inbox)
    assert (len(requests), requests.late) == (0, 2)
    requests.take(reply(inbox))
    assert requests.late == 3


def test_a_reply_that_comes_while_another_thread_ends_the_request_is_late():
    requests, unread = Requests(bytes(16)), []

    def take_out():
        count = len(unread)
        unread.clear()
        return count

    def on_reply(message):
        # As when it ends between the look for who waits and this.
        requests.end(inbox)
        unread.append(message)

    inbox = requests.begin(on_reply, take_out)
    requests.take(reply(inbox))
    assert (len(requests), requests.late) == (0, 1)
