"""Callers of a listener that prove no key."""

import zmq

from oz.transport.arrivals import REFUSAL_SECONDS, SEARCH_SECONDS, Arrivals
from oz.transport.monitors import Event

HERE = "tcp://127.0.0.1:1"
KEYLESS = Event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, HERE, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
MISTAKEN = Event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, HERE, zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
GONE = Event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, HERE, 104)
ADMITTED = Event(zmq.EVENT_HANDSHAKE_SUCCEEDED, HERE, 0)
REFUSED = Event(zmq.EVENT_HANDSHAKE_FAILED_AUTH, HERE, 400)


def reported(*events, until=10.0):
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append((endpoint, why)))
    for event in events:
        arrivals.add(event, 0.0)
    arrivals.report_failures(until)
    assert all(endpoint == HERE and why for endpoint, why in reasons)
    assert len({*reasons}) <= 1
    return len(reasons)


def test_a_caller_without_a_key_is_reported_at_once():
    assert reported(KEYLESS, until=0.0) == reported(KEYLESS, ADMITTED, until=0.0) == 1


def test_failures_are_reported_if_no_caller_is_admitted_meanwhile():
    assert reported(MISTAKEN, GONE, until=SEARCH_SECONDS - 0.1) == 0
    assert reported(MISTAKEN, GONE, until=SEARCH_SECONDS) == 2


def test_a_caller_that_searches_and_finds_the_key_is_not_reported():
    assert reported(MISTAKEN, MISTAKEN, GONE, ADMITTED) == 0
    assert reported(MISTAKEN, ADMITTED, MISTAKEN) == 1


def test_a_caller_that_the_authenticator_refuses_is_reported_by_the_authenticator():
    assert reported(REFUSED, REFUSED) == 0


def test_the_search_of_a_caller_that_is_refused_is_no_second_refusal():
    assert reported(MISTAKEN, REFUSED, MISTAKEN, GONE) == 0


def test_a_caller_that_is_refused_again_and_again_hides_no_failures_of_other_callers():
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append(why))
    for seconds in range(int(REFUSAL_SECONDS)):
        arrivals.add(REFUSED, seconds)
        arrivals.add(MISTAKEN, seconds)
        arrivals.report_failures(seconds)
    assert len(reasons) > REFUSAL_SECONDS / 2


def test_a_flood_is_reported_without_being_kept():
    assert reported(*[MISTAKEN] * 5_000, until=0.0) == 5_000 - 1_024
