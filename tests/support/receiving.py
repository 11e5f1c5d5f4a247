"""Receiving until a condition holds."""

import pytest

import oz
from support.waiting import DEADLINE


def receive_until(sub, is_so):
    """Receive until a condition holds, and check that no message is delivered."""
    while not is_so():
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.01)


def received(sub, count):
    return [sub.receive(timeout=DEADLINE).subject for _ in range(count)]
