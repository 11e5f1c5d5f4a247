"""Gaps that a recorder writes."""

import pytest

pytest.importorskip("pyarrow")

from contract.adapter import Options, journal_history, recorder
from contract.promises import promise
from support.fault_proxy import FaultProxy
from support.waiting import Thread, until

COUNT = 200


@pytest.fixture
def record(tmp_path):
    """Function that starts a recorder of an endpoint and returns a function that ends it."""
    recordings = []

    def start(endpoint, links=None):
        recording = recorder(tmp_path / "journal", "md.>", endpoint, links)
        recordings.append((recording, Thread(recording.run)))
        return end

    def end():
        while recordings:
            recording, work = recordings.pop()
            recording.stop()
            work.outcome()
            recording.close()

    yield start
    end()


@pytest.fixture
def history(tmp_path):
    """Function that returns the payloads and gap counts of the journal."""
    return lambda: journal_history(tmp_path / "journal")


def _publish(publisher, *interval):
    for number in range(*interval):
        publisher.publish("md.x", b"%d" % number)
    publisher.flush()


def _expected_next(history):
    """Return the number of the next message; check that messages and gaps are numbered without a hole."""
    following = 0
    for item in history:
        if isinstance(item, int):
            following += item
        else:
            assert int(item) == following
            following += 1
    return following


@promise("A recorder writes a gap with the number of lost messages at the place of the loss.")
def test_lost_messages_are_recorded_as_a_gap(api, record, history):
    # With room for a few messages, because a link resumes without loss as long as its publisher has them.
    small = Options(high_water_mark=10, resume_bytes=1_000, batch=1)
    publisher = api.publisher("tcp://127.0.0.1:*", options=small)
    with FaultProxy(publisher.faulty_endpoint("publisher")) as proxy:
        end = record(publisher.endpoint, proxy.endpoint)
        publisher.wait_for_subscribers("md.x")
        _publish(publisher, 1)
        until(lambda: history() == [b"0"])
        proxy.stall()
        _publish(publisher, 1, COUNT)
        proxy.cut()
        proxy.resume()
        published = COUNT

        def is_recorded():
            nonlocal published
            _publish(publisher, published, published + 1)
            published += 1
            return _expected_next(history()) > COUNT

        until(is_recorded)
        until(lambda: _expected_next(history()) == published)
        end()
    assert any(isinstance(item, int) for item in history())


@promise("A recorder that continues a journal writes a gap of unknown size first.")
def test_continued_journal_has_a_gap_of_unknown_size(api, record, history):
    publisher = api.publisher("tcp://127.0.0.1:*")
    for number in range(2):
        end = record(publisher.endpoint)
        publisher.wait_for_subscribers("md.x")
        _publish(publisher, number, number + 1)
        until(lambda number=number: b"%d" % number in history())
        end()
        until(lambda: not publisher.has_subscribers("md.x"))
    assert history() == [b"0", None, b"1"]
