"""How long a node listens to a peer that is gone."""

import pytest

from oz.transport.node.draining_peer import LONGEST, LOOK_EVERY, LOOKS, DrainingPeer


@pytest.fixture
def draining_peer():
    return DrainingPeer(None, "ipc://there", 1, 0.0)


def test_it_is_over_when_nothing_has_come_for_some_looks(draining_peer):
    seen = [draining_peer.is_over(1, (look + 1) * LOOK_EVERY) for look in range(LOOKS)]
    assert seen == [False] * (LOOKS - 1) + [True]


def test_what_is_new_begins_the_looks_anew(draining_peer):
    assert not any(draining_peer.is_over(1, (look + 1) * LOOK_EVERY) for look in range(LOOKS - 1))
    assert not draining_peer.is_over(2, LOOKS * LOOK_EVERY)
    assert [draining_peer.is_over(2, (LOOKS + 1 + look) * LOOK_EVERY) for look in range(LOOKS)][-2:] == [
        False,
        True,
    ]


def test_a_process_that_stood_still_itself_reads_first_what_had_come(draining_peer):
    assert not draining_peer.is_over(1, LOOKS * LOOK_EVERY * 2)
    assert not draining_peer.is_over(1, LOOKS * LOOK_EVERY * 2)


def test_it_has_an_end_also_when_something_comes_again_and_again(draining_peer):
    assert not draining_peer.is_over(2, LONGEST - LOOK_EVERY)
    assert draining_peer.is_over(3, LONGEST)
