"""Which publishers count as gone without a goodbye."""

import pytest

from oz.protocol.subscriber.absences import LOOK_EVERY, QUIET, UNCOUNTED, Absences, Link
from oz.protocol.subscriber.publishers import SILENCE

PUB = b"one pub."
LOCAL, REMOTE = Link(5, 50, True), Link(5, 50, False)


class Heard:
    """Publishers, as far as it is asked when who was heard."""

    def __init__(self):
        self.at = {PUB: 1}

    def origins(self):
        return set(self.at)

    def heard_at(self, origin):
        return self.at.get(origin)


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def absences(heard):
    return Absences(heard)


def looked(absences, seconds, ended=True, begin=0.0, is_idle=True):
    """Look for so long; when publishers were found to be gone, and which."""
    times = [begin + LOOK_EVERY * number for number in range(int(seconds / LOOK_EVERY) + 2)]
    looks = ((at, absences.look(at, lambda _: ended, is_idle=is_idle)) for at in times)
    return [(at - begin, *gone) for at, gone in looks if gone]


@pytest.mark.parametrize(("link", "patience"), [(LOCAL, SILENCE), (REMOTE, UNCOUNTED)])
def test_a_publisher_whose_connection_ended_is_told_of_once(absences, link, patience):
    absences.note(PUB, link)
    assert looked(absences, 2 * patience) == [(patience, PUB)]


def test_a_publisher_that_is_only_silent_is_not_told_of(absences):
    absences.note(PUB, LOCAL)
    assert looked(absences, 2 * UNCOUNTED, ended=False) == []


def test_one_that_is_heard_again_is_not_told_of(absences, heard):
    absences.note(PUB, LOCAL)
    assert looked(absences, SILENCE - 1) == []
    heard.at[PUB] = 2
    assert looked(absences, SILENCE - 1, begin=SILENCE - 0.5) == []


def test_a_stream_that_ends_meanwhile_puts_off_nothing(absences, heard):
    heard.at[PUB] = 2
    absences.note(PUB, LOCAL)
    assert looked(absences, SILENCE - 1) == []
    # It had been heard last on that stream.
    heard.at[PUB] = 1
    assert looked(absences, 2.0, begin=SILENCE - 0.5) == [(0.5, PUB)]
    assert not absences.find_curious()


def test_one_that_said_goodbye_is_not_told_of(absences, heard):
    absences.note(PUB, LOCAL)
    assert looked(absences, SILENCE - 1) == []
    del heard.at[PUB]
    assert looked(absences, UNCOUNTED, begin=SILENCE - 0.5) == []


def test_one_from_which_this_subscriber_disconnected_is_not_told_of(absences):
    absences.note(PUB, LOCAL)
    absences.forgive(lambda _: False)
    assert looked(absences, UNCOUNTED) == []


def test_a_process_that_stood_still_itself_reads_first_what_had_come(absences):
    absences.note(PUB, LOCAL)
    assert [absences.look(at, lambda _: True, is_idle=True) for at in (0.0, 100.0)] == [[], []]


def test_what_had_come_before_the_end_does_not_pass_for_a_new_connection(absences):
    absences.note(PUB, LOCAL)
    looked(absences, 0.0, is_idle=False)
    absences.note(PUB, Link(5, 51, True))
    assert looked(absences, SILENCE + 1, begin=1.0) != []
    # It has returned, by a connection that has the number of the old one.
    absences.note(PUB, Link(5, 51, True))
    assert looked(absences, SILENCE + 1, ended=False, begin=10.0) == []


def test_it_stays_curious_until_it_knows_every_connection(absences, heard):
    heard.at.clear()
    absences.look(0.0, lambda _: False, is_idle=True)
    assert absences.is_curious
    heard.at[PUB] = 1
    absences.note(PUB, LOCAL)
    absences.look(1.0, lambda _: False, is_idle=True)
    assert not absences.is_curious


def test_nobody_looks_often_until_a_connection_has_ended(absences):
    assert absences.next_deadline() is None
    absences.note(PUB, REMOTE)
    absences.look(10.0, lambda _: False, is_idle=True)
    assert absences.next_deadline() == 10.0 + QUIET
    absences.look(10.0 + QUIET, lambda _: True, is_idle=True)
    assert absences.next_deadline() == 10.0 + QUIET + LOOK_EVERY


def test_looking_when_it_is_due_finds_a_publisher_that_is_gone(absences):
    absences.note(PUB, REMOTE)
    absences.look(0.0, lambda _: False, is_idle=True)
    gone = []
    while not gone:
        at = absences.next_deadline()
        gone = absences.look(at, lambda _: True, is_idle=True)
    assert gone == [PUB]
    assert QUIET + UNCOUNTED <= at <= QUIET + UNCOUNTED + LOOK_EVERY
    absences.look(at + LOOK_EVERY, lambda _: True, is_idle=True)
    assert absences.next_deadline() is None


def test_nobody_is_there_when_all_connections_have_ended_or_all_are_gone(absences, heard):
    ended = set()
    # A publisher whose connection is not known may be there.
    assert not absences.is_alone(ended.__contains__)
    absences.note(PUB, LOCAL)
    assert not absences.is_alone(ended.__contains__)
    ended.add(LOCAL)
    assert absences.is_alone(ended.__contains__)
    assert looked(absences, SILENCE)
    assert absences.is_alone(ended.__contains__)
    heard.at[PUB] = 2
    assert not absences.is_alone(ended.__contains__)
    heard.at.clear()
    assert absences.is_alone(ended.__contains__)
