"""Publishing and receiving until something is so."""

import pytest

import oz
from support.waiting import DEADLINE


def receive_until(sub, is_so):
    """Look at what comes, of which nothing is to be delivered."""
    while not is_so():
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.01)


def received(sub, count):
    return [sub.receive(timeout=DEADLINE).subject for _ in range(count)]
