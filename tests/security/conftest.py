"""Publishers and subscribers with keys, and the rights that they have in most tests."""

import pytest

import oz
from support.keyring import Keyring


@pytest.fixture
def rules():
    """Permissions of the users of `ring`. A module may define other permissions."""
    return {
        "desk": 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }',
        "other": 'subscribe = { allow = ["x.>"] }',
    }


@pytest.fixture
def ring(tmp_path, rules):
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(**rules)
    return made


@pytest.fixture
def pub(ring):
    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as made:
        yield made


@pytest.fixture
def sub(ring, pub):
    with oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as made:
        yield made
