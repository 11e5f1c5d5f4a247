import pytest

import oz
from support.waiting import DEADLINE


@pytest.fixture
def kept(make):
    """A node that keeps last values and has published some, and one that came after."""
    keeps = make("keeps", last_value=True)
    keeps.subscribe("svc", handler=lambda message: message.reply("answer"))
    for price in (1, 2, 3):
        keeps.publish("price.sap", price)
    keeps.publish("price.bmw", 9)
    keeps.publish("_LOCAL.price", 5)
    assert keeps.request("svc", "question", timeout=DEADLINE).payload == "answer"
    late = make("late")
    late.wait_for_peers(1, timeout=DEADLINE)
    return keeps, late


def test_a_late_subscription_gets_last_values_and_then_live_traffic(kept):
    keeps, late = kept
    got = late.subscribe("price.*", last_value=True)
    first = [got.receive(timeout=DEADLINE) for _ in range(2)]
    assert [(one.subject, one.payload) for one in first] == [("price.sap", 3), ("price.bmw", 9)]
    late.wait_ready(timeout=DEADLINE)
    keeps.publish("price.sap", 4)
    assert got.receive(timeout=DEADLINE).payload == 4


def test_who_does_not_ask_for_last_values_gets_none(kept):
    keeps, late = kept
    got = late.subscribe("price.*")
    late.wait_ready(timeout=DEADLINE)
    keeps.publish("price.sap", 4)
    assert got.receive(timeout=DEADLINE).payload == 4


def test_requests_replies_and_reserved_subjects_are_not_kept(kept):
    keeps, late = kept
    everything = late.subscribe([">", "_LOCAL.>"], last_value=True)
    late.wait_ready(timeout=DEADLINE)
    keeps.publish("end")
    subjects = [everything.receive(timeout=DEADLINE).subject for _ in range(3)]
    assert subjects == ["price.sap", "price.bmw", "end"]
    with pytest.raises(oz.Timeout):
        everything.receive(timeout=0)
