"""Callers of a listener that prove no key. The clock is that of the test."""

import zmq

from oz.transport.arrivals import REFUSAL_SECONDS, SEARCH_SECONDS, Arrivals
from oz.transport.monitors import Event
from support.cases import each

HERE = "tcp://127.0.0.1:1"
KEYLESS = Event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, HERE, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
MISTAKEN = Event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, HERE, zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
GONE = Event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, HERE, 104)
ADMITTED = Event(zmq.EVENT_HANDSHAKE_SUCCEEDED, HERE, 0)
REFUSED = Event(zmq.EVENT_HANDSHAKE_FAILED_AUTH, HERE, 400)


def reported(events, until):
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append((endpoint, why)))
    for event in events:
        arrivals.add(event, 0.0)
    arrivals.report_failures(until)
    assert all(endpoint == HERE and why for endpoint, why in reasons)
    assert len({*reasons}) <= 1
    return len(reasons)


@each(
    ("events", "until", "count"),
    [
        # A caller without a key is reported at once.
        ([KEYLESS], 0.0, 1),
        ([KEYLESS, ADMITTED], 0.0, 1),
        # Other failures are reported if no caller is admitted meanwhile: that one searched, and found the key.
        ([MISTAKEN, GONE], SEARCH_SECONDS - 0.1, 0),
        ([MISTAKEN, GONE], SEARCH_SECONDS, 2),
        ([MISTAKEN, MISTAKEN, GONE, ADMITTED], 10.0, 0),
        # The other attempts of a search may fail after the right one, and the caller may close then.
        ([MISTAKEN, ADMITTED, MISTAKEN], 10.0, 0),
        # A caller without a key may cause no other event, and comes once.
        ([ADMITTED, GONE], SEARCH_SECONDS - 0.1, 0),
        ([MISTAKEN, ADMITTED, MISTAKEN, GONE], SEARCH_SECONDS, 1),
        # The authenticator reports the callers that it refuses, so that their search is no second refusal.
        ([REFUSED, REFUSED], 10.0, 0),
        ([MISTAKEN, REFUSED, MISTAKEN, GONE], 10.0, 0),
        # A flood is reported without being kept.
        ([MISTAKEN] * 5_000, 0.0, 5_000 - 1_024),
    ],
)
def test_callers_that_prove_no_key_are_reported(events, until, count):
    assert reported(events, until) == count


def test_a_wrong_key_is_reported_if_the_last_admission_was_long_ago():
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append(why))
    arrivals.add(ADMITTED, 0.0)
    arrivals.add(MISTAKEN, SEARCH_SECONDS - 0.1)
    arrivals.add(MISTAKEN, SEARCH_SECONDS)
    arrivals.report_failures(2 * SEARCH_SECONDS)
    assert reasons == ["the caller does not trust the key of this side, and expects another one"]


def test_a_connection_that_ends_after_a_search_is_not_reported_as_a_wrong_key():
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append(why))
    for event in (MISTAKEN, ADMITTED, MISTAKEN, GONE, MISTAKEN):
        arrivals.add(event, 0.0)
    arrivals.report_failures(SEARCH_SECONDS)
    assert reasons == ["the caller proved no key before the connection ended, and this side demands CURVE"]


def test_bye_of_a_caller_explains_the_connections_of_its_search():
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append(why))
    for event in (GONE, ADMITTED, MISTAKEN, GONE):
        arrivals.add(event, 0.0)
    arrivals.leave(1.0)
    arrivals.add(GONE, 1.5)
    arrivals.report_failures(60.0)
    assert not reasons
    arrivals.add(GONE, 1.0 + SEARCH_SECONDS)
    arrivals.report_failures(60.0)
    assert len(reasons) == 1


def test_a_caller_that_is_refused_again_and_again_hides_no_failures_of_other_callers():
    reasons = []
    arrivals = Arrivals(lambda endpoint, why: reasons.append(why))
    for seconds in range(int(REFUSAL_SECONDS)):
        arrivals.add(REFUSED, seconds)
        arrivals.add(MISTAKEN, seconds)
        arrivals.report_failures(seconds)
    assert len(reasons) > REFUSAL_SECONDS / 2
