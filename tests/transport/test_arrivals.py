"""Callers of a listener without a key, and callers that search for the key of the listener."""

import zmq

from oz.transport.arrivals import PATIENCE, Arrivals
from oz.transport.handshakes import Handshake, Outcome

HERE = "tcp://127.0.0.1:1"
KEYLESS = Handshake(Outcome.BROKEN, HERE, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
MISTAKEN = Handshake(Outcome.BROKEN, HERE, zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
GONE = Handshake(Outcome.FAILED, HERE, 104)
ADMITTED = Handshake(Outcome.ADMITTED, HERE, 0)
REFUSED = Handshake(Outcome.REFUSED, HERE, 400)


class Told:
    def __init__(self):
        self.reasons = []

    def turn_away(self, endpoint, why):
        assert endpoint == HERE
        self.reasons.append(why)


def told(*handshakes, until=10.0):
    credentials = Told()
    arrivals = Arrivals(credentials)
    for one in handshakes:
        arrivals.take(one, 0.0)
    arrivals.look(until)
    return len(credentials.reasons)


def test_who_has_no_key_is_told_of_at_once():
    assert told(KEYLESS, until=0.0) == told(KEYLESS, ADMITTED, until=0.0) == 1


def test_who_fails_is_told_of_when_nobody_has_come_in_meanwhile():
    assert told(MISTAKEN, GONE, until=PATIENCE - 0.1) == 0
    assert told(MISTAKEN, GONE, until=PATIENCE) == 2


def test_who_looks_for_the_key_and_finds_it_is_not_told_of():
    assert told(MISTAKEN, MISTAKEN, GONE, ADMITTED) == 0
    assert told(MISTAKEN, ADMITTED, MISTAKEN) == 1


def test_whom_the_authenticator_refuses_is_told_of_by_that():
    assert told(REFUSED, REFUSED) == 0


def test_a_flood_is_told_of_without_being_kept():
    assert told(*[MISTAKEN] * 5_000, until=0.0) == 5_000 - 1_024
