"""What a publisher remembers of the subjects of answers, each of which comes once."""

import pytest

import oz
from support.inside import engine_of

OWNER = "_INBOX." + "ab" * 16


@pytest.fixture
def publisher():
    with oz.Publisher("tcp://127.0.0.1:*", dialect="nats") as made:
        yield made


def routes_of(publisher):
    return engine_of(publisher).sender.routes


def test_answers_drive_no_other_subjects_out_of_memory(publisher):
    publisher.publish("a.b")
    for number in range(100):
        publisher.publish(f"{OWNER}.{number}")
    assert list(routes_of(publisher).known) == ["a.b"]
    assert publisher.stats.unwanted == 101


def test_an_inbox_is_checked_as_any_subject_where_its_owner_is_known(publisher):
    publisher.publish(f"{OWNER}.1")
    for wrong in (f"{OWNER}.", f"{OWNER}.*", f"{OWNER}.1 2", f"{OWNER}.\u0660 ", "_INBOX..1", "_INBOX.>"):
        with pytest.raises(oz.SubjectError):
            publisher.publish(wrong)


def test_an_inbox_that_holds_the_delimiter_is_refused():
    with oz.Publisher("tcp://127.0.0.1:*", dialect="nats", delimiter=b"7") as publisher:
        publisher.publish(f"{OWNER}.1")
        with pytest.raises(oz.SubjectError, match="delimiter"):
            publisher.publish(f"{OWNER}.17")


def test_an_answer_reaches_whoever_subscribed_since_the_last(publisher):
    publisher.publish(f"{OWNER}.1", b"nobody")
    with oz.Subscriber(publisher.endpoint, dialect="nats", filtering="publisher") as subscriber:
        subscriber.subscribe(f"{OWNER}.*")
        subscriber.wait_ready(timeout=30)
        for number in (1, 1, 2):
            publisher.publish(f"{OWNER}.{number}", b"%d" % number)
        assert [subscriber.receive(timeout=30).payload for _ in range(3)] == [b"1", b"1", b"2"]
