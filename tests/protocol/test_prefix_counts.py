from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.prefix_counts import PlainInterest, PrefixCounter

prefixes = st.lists(st.sampled_from([b"", b"a", b"a.", b"a.b", b"b", b"\xff"]), max_size=3)
steps = st.lists(st.tuples(st.booleans(), prefixes), max_size=30)


@given(steps)
def test_a_prefix_is_asked_for_once_and_dropped_last(history):
    counter, naive, asked = PrefixCounter(), Counter(), set()
    for is_added, some in history:
        if is_added:
            naive.update(some)
            for prefix in counter.add(some):
                assert prefix not in asked
                asked.add(prefix)
        else:
            for prefix in some:
                naive[prefix] = max(0, naive[prefix] - 1)
            for prefix in counter.remove(some):
                asked.remove(prefix)
        assert asked == {prefix for prefix, count in naive.items() if count}


@given(steps, st.binary(max_size=5))
def test_a_subject_fulfils_the_wishes_whose_prefix_it_begins_with(history, subject):
    counter, naive = PrefixCounter(), Counter()
    for is_added, some in history:
        if is_added:
            counter.add(some)
            naive.update(some)
    for one in (subject, b"a.b.c", b""):
        assert counter.count(one) == sum(n for prefix, n in naive.items() if one.startswith(prefix))
    assert counter.count() == naive.total()


def test_many_wishes_are_counted_for_a_short_subject():
    counter = PrefixCounter()
    counter.add(b"%d" % number for number in range(1000))
    assert counter.count(b"123") == 3


def test_subscription_frames_are_learned_and_others_passed_over():
    interest = PlainInterest()
    for frame in (b"\x01a.", b"\x01a.", b"\x01", b"\x02a.", b"", b"hello"):
        interest.learn(frame)
    assert interest.count(b"a.b") == 3
    interest.learn(b"\x00a.")
    interest.learn(b"\x00never")
    assert interest.count(b"a.b") == 2
    assert interest.count() == 2
