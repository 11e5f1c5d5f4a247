"""How long a node listens to a peer that is gone."""

import pytest

from oz.transport.parting import LONGEST, LOOK_EVERY, LOOKS, Parting


@pytest.fixture
def parting():
    return Parting(None, "ipc://there", 1, 0.0)


def test_it_is_over_when_nothing_has_come_for_some_looks(parting):
    seen = [parting.is_over(1, (look + 1) * LOOK_EVERY) for look in range(LOOKS)]
    assert seen == [False] * (LOOKS - 1) + [True]


def test_what_is_new_begins_the_looks_anew(parting):
    assert not any(parting.is_over(1, (look + 1) * LOOK_EVERY) for look in range(LOOKS - 1))
    assert not parting.is_over(2, LOOKS * LOOK_EVERY)
    assert [parting.is_over(2, (LOOKS + 1 + look) * LOOK_EVERY) for look in range(LOOKS)][-2:] == [
        False,
        True,
    ]


def test_a_process_that_stood_still_itself_reads_first_what_had_come(parting):
    assert not parting.is_over(1, LOOKS * LOOK_EVERY * 2)
    assert not parting.is_over(1, LOOKS * LOOK_EVERY * 2)


def test_it_has_an_end_also_when_something_comes_again_and_again(parting):
    assert not parting.is_over(2, LONGEST - LOOK_EVERY)
    assert parting.is_over(3, LONGEST)
