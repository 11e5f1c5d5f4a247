from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.subscriber.sequences import Source, forget_some, source_of
from oz.wire.batch import CONTROL, MESSAGES, Head

ORIGIN = bytes(16)
NS = 1_000_000_000


def head(sequence, count, epoch=1):
    return Head(MESSAGES if count else CONTROL, ORIGIN, epoch, sequence, count)


def test_what_is_missing_before_a_batch_is_lost():
    source = Source()
    assert source.advance(head(0, 5), 1, is_shared=False) == (0, True)
    assert source.advance(head(8, 2), 2, is_shared=False) == (3, True)
    assert source.heard_at == 2


def test_a_stream_of_ones_own_begins_at_zero_and_a_shared_one_where_it_is_met():
    assert Source().advance(head(7, 1), 0, is_shared=False) == (7, True)
    assert Source().advance(head(7, 1), 0, is_shared=True) == (0, True)


def test_a_heartbeat_exposes_a_lost_tail_once():
    source = Source()
    source.advance(head(0, 5), 0, is_shared=False)
    assert source.advance(head(9, 0), 0, is_shared=False) == (4, True)
    assert source.advance(head(9, 0), 0, is_shared=False) == (0, True)


def test_who_goes_on_for_another_has_lost_some_before_its_first_message():
    source = Source()
    source.is_in_place = True
    assert source.advance(head(0, 0), 0, is_shared=False) == (0, True)
    assert source.advance(head(2, 3), 0, is_shared=False) == (None, True)
    assert source.advance(head(6, 1), 0, is_shared=False) == (1, True)


def test_other_messages_with_numbers_that_were_given_contradict_them():
    for other in (head(0, 5), head(4, 1), head(3, 4)):
        source = Source()
        source.advance(head(0, 5), 0, is_shared=False)
        assert source.advance(other, 0, is_shared=False) == (None, True)
        assert source.is_contested
        # From then on both are followed.
        assert source.advance(head(5, 1), 0, is_shared=False) == (0, True)
        assert source.advance(head(7, 1), 0, is_shared=False)[1]


def test_what_was_overtaken_is_passed_over():
    source = Source()
    source.advance(head(0, 5), 0, is_shared=False)
    source.advance(head(9, 1), 0, is_shared=False)
    assert source.advance(head(5, 2), 0, is_shared=False) == (0, False)
    assert source.advance(head(7, 2), 0, is_shared=False) == (0, False)
    assert not source.is_contested


def test_a_new_life_of_a_key_is_a_loss_of_unknown_size():
    source = Source()
    source.advance(head(0, 5), 0, is_shared=False)
    source.answered = frozenset([1])
    assert source.advance(head(0, 2, epoch=3), 0, is_shared=False) == (None, True)
    assert source.advance(head(2, 1, epoch=3), 0, is_shared=False) == (0, True)
    assert not source.answered


def test_a_former_life_of_a_key_is_passed_over():
    source = Source()
    source.advance(head(0, 5, epoch=3), 0, is_shared=False)
    assert source.advance(head(5, 2, epoch=1), 0, is_shared=False) == (0, False)
    assert source.expected == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.booleans(), min_size=1, max_size=2))))
def test_published_is_delivered_and_lost_whatever_the_paths_drop(batches):
    """Each batch takes one path or two, or none; a heartbeat comes at the end."""
    source, published, delivered, lost, known = Source(), 0, 0, 0, []
    for count, arrives in batches:
        # What was given already is not taken in again.
        for _ in range(any(arrives) if count else sum(arrives)):
            missing, is_new = source.advance(head(published, count), 0, is_shared=False)
            lost += missing
            known += range(published, published + count * is_new)
            delivered += count * is_new
        published += count
    missing, _ = source.advance(head(published, 0), 0, is_shared=False)
    assert delivered + lost + missing == published
    assert known == sorted(set(known))


@given(st.permutations(range(8)))
def test_what_overtakes_on_another_path_leaves_nothing_uncounted_and_nothing_twice(order):
    source, known, lost = Source(), [], 0
    for sequence in order:
        missing, is_new = source.advance(head(sequence, 1), 0, is_shared=False)
        lost += missing
        known += [sequence] * is_new
    assert known == sorted(set(known))
    assert len(known) + lost == 8


def test_who_has_not_been_heard_for_long_is_forgotten_before_those_who_are_known():
    known = {}
    for name in range(80):
        source = source_of(known, b"%d" % name)
        source.advance(head(0, 1), name, is_shared=False)
        if name < 8:
            source.heard_at = 10 * NS
    assert source_of(known, b"0") is known[b"0"]
    # Not those that have gone on since, though they were met first.
    assert not forget_some(known, 10 * NS)
    assert list(known) == [b"%d" % name for name in (*range(8), *range(18, 80))]
    # Unless they have fallen silent for longest; whoever was known is missed.
    assert list(forget_some(known, 100 * NS)) == []
    while len(known) > 8:
        forget_some(known, 100 * NS)
    assert list(forget_some(known, 100 * NS)) == [b"0"]
