"""A publisher whose name somebody else uses: what is believed, and that the publisher is not shut out."""

import random

import pytest

from oz.protocol.subscriber import contradictions
from oz.protocol.subscriber.contradictions import CALM, MOST_EPOCHS, MOST_MESSAGES, PATIENCE, SLACK
from oz.protocol.subscriber.sequences import Source
from oz.wire.batch import CONTROL, MESSAGES, Head
from support.sizes import size

ORIGIN = bytes(16)
NS = 1_000_000_000


class Told:
    """A source, and what it gave and told."""

    def __init__(self):
        self.source, self.now = Source(), 1_000 * NS
        self.given, self.lost = [], []
        self._frames = set()

    def hear(self, sequence, count=1, epoch=5, *, is_shared=False, by="publisher"):
        """Take in a record, unless it was given already; return the numbers that it gives."""
        head = Head(MESSAGES if count else CONTROL, ORIGIN, epoch, sequence, count)
        if (by, head) in self._frames:
            return []
        lost, is_new = self.source.advance(head, self.now, is_shared=is_shared)
        if lost != 0:
            self.lost.append(lost)
        if not (is_new and count):
            return []
        self._frames.add((by, head))
        new = [(epoch, number) for number in range(sequence, sequence + count)]
        self.given += new
        return new

    def wait(self, seconds):
        self.now += round(seconds * NS)

    @property
    def contradictions(self):
        return 0 if self.source.doubt is None else self.source.doubt.news


@pytest.fixture
def told():
    """A publisher that has sent 100 messages in epoch 5."""
    told = Told()
    told.hear(0, 100)
    told.wait(1.0)
    return told


IMPOSSIBLE = [
    {"sequence": 10**15},
    {"sequence": 10**15, "count": 0},
    {"sequence": 0, "count": 0, "epoch": 2**32 - 1},
    {"sequence": 0, "epoch": 6 + MOST_EPOCHS},
    {"sequence": 10**15, "count": 0, "epoch": 6},
    {"sequence": round(100 + MOST_MESSAGES * (SLACK + 1.1))},
]


@pytest.mark.parametrize("forged", IMPOSSIBLE)
def test_what_cannot_be_changes_nothing_and_is_counted(told, forged):
    for number in range(100, 200):
        assert told.hear(**forged) == []
        assert told.hear(number) == [(5, number)]
    assert told.lost == []
    assert told.contradictions == 100


def test_what_can_be_is_a_loss_however_large(told):
    told.wait(60.0)
    assert told.hear(MOST_MESSAGES * 60)
    assert told.lost == [MOST_MESSAGES * 60 - 100]
    assert told.contradictions == 0


@pytest.mark.parametrize("forged", IMPOSSIBLE[:-1])
def test_what_is_said_alone_for_some_seconds_is_believed(told, forged):
    believed = []
    for _ in range(round(2 * PATIENCE)):
        believed += told.hear(**{**forged, "count": 0})
        told.wait(1.0)
    place = told.source.epoch, told.source.expected
    assert place == (forged.get("epoch", 5), forged["sequence"])
    assert told.lost == [None]


def test_what_is_said_beside_the_publisher_is_never_believed(told):
    for number in range(100, 200):
        told.hear(10**15, 0)
        assert told.hear(number, 1)
        told.wait(0.5)
    assert told.lost == []


@pytest.mark.parametrize(
    "forged", [{"sequence": 5_000}, {"sequence": 0, "epoch": 6}, {"sequence": 7, "epoch": 99}]
)
@pytest.mark.parametrize("count", [0, 1])
def test_a_publisher_wins_back_what_is_said_in_its_name(told, forged, count):
    told.hear(**forged, count=count)
    assert len(told.lost) == 1
    refused = 0
    for number in range(100, 1_000):
        told.wait(0.01)
        refused += not told.hear(number)
    assert refused <= PATIENCE / 0.01 + 1
    assert told.lost[1:] == [None]
    # Saying it again changes nothing any more.
    for number in range(1_000, 2_000):
        told.hear(forged["sequence"] + 1_000_000, count, forged.get("epoch", 5) + 1)
        assert told.hear(number) == [(5, number)]
    assert told.contradictions


def test_a_publisher_that_only_says_where_it_stands_wins_back_too(told):
    told.hear(0, 0, epoch=6)
    assert told.source.epoch == 6
    for _ in range(round(PATIENCE) + 2):
        told.wait(1.0)
        told.hear(100, 0)
    assert (told.source.epoch, told.source.expected) == (5, 100)


def test_whoever_is_first_with_a_name_does_not_keep_it():
    told = Told()
    told.hear(50_000, 1, epoch=9)
    for number in range(2_000):
        told.wait(0.01)
        told.hear(number, 1, epoch=5)
    assert told.given[-1] == (5, 1_999)
    other = Told()
    other.hear(50_000, 0, epoch=5)
    for number in range(2_000):
        other.wait(0.01)
        other.hear(number, 1, epoch=5)
    assert other.given[-1] == (5, 1_999)


def test_small_steps_that_go_on_do_not_shut_out_a_publisher(told):
    number, given = 100, 0
    for turn in range(2_000):
        told.wait(0.01)
        if turn % 10 == 0:
            told.hear(number + 20, 0)
        given += bool(told.hear(number)) if turn > 1.5 * PATIENCE / 0.01 else 0
        told.hear(number)
        number += 1
    assert given >= 2_000 - 1.5 * PATIENCE / 0.01 - 1


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(5, 200)))
def test_nobody_shuts_out_a_publisher_and_nothing_honest_comes_twice(seed):
    """Another one says anything, all the time, sends messages too, and knows what it cannot know."""
    told, drawn = Told(), random.Random(seed)
    epoch = drawn.choice([1, 5, 1_000])
    forged, missing = set(), []
    for number in range(3_000):
        told.wait(drawn.uniform(0.0, 0.04))
        for _ in range(drawn.choice([0, 0, 1, 3])):
            ahead = drawn.choice([-10, 0, 1, 5, 1_000, 10**6, 10**15])
            at = max(0, number + ahead)
            count = drawn.choice([0, 0, 1, 20]) if ahead >= 1_000 else 0
            its_epoch = max(0, epoch + drawn.choice([-1, 0, 0, 0, 1, 2**31]))
            told.hear(at, count, its_epoch)
            forged |= {(its_epoch, one) for one in range(at, at + count)}
        if not told.hear(number, 1, epoch) and number > 1_000 and (epoch, number) not in forged:
            missing.append(number)
    honest = [one for one in told.given if one not in forged and one[0] == epoch]
    assert len(honest) == len(set(honest))
    assert not missing


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(5, 200)))
def test_two_paths_and_a_later_life_of_a_key_are_no_contradiction(seed):
    """Both paths lose some of what is sent, and one is late; nothing is given twice, nor is out of order."""
    told, drawn = Told(), random.Random(seed)
    lag = drawn.uniform(0.0, 0.9 * PATIENCE)
    sent, at, epoch, now = [], 0, 1, 0.0
    for _ in range(500):
        now += drawn.choice([0.0, 0.001, 0.1, 1.0])
        if drawn.random() < 0.01:
            epoch, at = epoch + drawn.choice([1, 1_000]), 0
        count = drawn.choice([0, 1, 1, 5])
        for delay in (0.0, lag):
            if drawn.random() < 0.8:
                sent.append((now + delay, delay, epoch, at, count))
        at += count
    begin = told.now
    for arrives, _, its_epoch, sequence, count in sorted(sent, key=lambda one: one[:2]):
        told.now = begin + round(arrives * NS)
        told.hear(sequence, count, its_epoch)
    assert told.given == sorted(set(told.given))
    assert told.contradictions == 0


def test_what_was_contested_is_forgotten_after_a_while(told):
    told.hear(0, 1, epoch=6)
    for number in range(100, 500):
        told.wait(0.01)
        told.hear(number)
    assert told.source.is_contested
    told.wait(CALM)
    assert told.hear(500)
    assert told.source.doubt is None


def test_who_claims_very_many_places_does_not_shut_out_one_that_loses_messages(told):
    for number in range(102, 140, 2):
        told.wait(1.0)
        told.hear(number)
    for number in range(3 * contradictions.MOST_RUNS):
        told.wait(0.02)
        told.hear(10**6 + 10_000 * number)
    for number in range(140, 150):
        told.wait(1.0)
        told.hear(number)

    assert told.given[-1] == (5, 149)


def test_what_came_by_two_ways_is_given_once_by_one_that_is_contested(told):
    told.hear(10**6)
    told.wait(PATIENCE)
    for number in (100, 105, 110):
        told.wait(1.0)
        told.hear(number)
    # It goes on from the last of these places, as the first has fallen silent.
    told.wait(PATIENCE)
    told.hear(111)
    told.hear(112)
    told.hear(105)

    assert told.given.count((5, 105)) == 1


def test_what_is_remembered_of_a_name_is_bounded(told):
    drawn = random.Random(1)
    for _ in range(20_000):
        told.wait(drawn.choice([0.0, 0.0, 1.0]))
        told.hear(drawn.randrange(10**6), drawn.choice([0, 1]), drawn.randrange(1, 20))
        doubt = told.source.doubt
        assert len(doubt.rivals) <= contradictions.MOST_RIVALS
        assert len(doubt.runs) <= contradictions.MOST_RUNS


def test_answers_of_a_publisher_count_whatever_another_one_says_in_its_name(told):
    told.source.answer(frozenset({1}), {})
    told.hear(0, epoch=6)
    while not told.source.is_contested:
        told.wait(0.5)
        told.hear(100 + len(told.given))
        told.hear(len(told.given), epoch=6)
    told.source.answer(frozenset({2}), {3: "refused"})
    told.wait(2 * PATIENCE)
    told.hear(1_000, epoch=7)
    told.hear(0, epoch=8)
    told.source.answer(frozenset(), {})
    assert {2} <= told.source.answered
    assert told.source.refused == {3: "refused"}


def test_a_loss_that_no_message_has_shown_is_shown_after_a_contradiction(told):
    told.hear(5_000, 0)
    told.source.unreported = 4_900
    number = 100
    while not told.source.is_contested:
        told.wait(0.5)
        told.hear(number)
        number += 1
    assert told.source.unreported == 4_900
