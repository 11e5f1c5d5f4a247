"""A gateway whose subscribers keep no rules."""

from pathlib import Path

import pytest

import oz
from hostile.attacked import attacker, victim
from support.sizes import size
from support.waiting import DEADLINE, until

HERE = Path(__file__).parent
COUNT = size(100, 3_000)


@pytest.mark.sized
@pytest.mark.parametrize(
    "attack",
    [
        "subscribing.py subscribe_to_long_prefixes ENDPOINT",
        *(
            pytest.param(attack, marks=pytest.mark.heavy)
            for attack in (
                "subscribing.py declare_without_end ENDPOINT",
                "subscribing.py listen_on_many_streams ENDPOINT",
                "subscribing.py declare_empty_chunks ENDPOINT",
                "subscribing.py read_no_batches ENDPOINT",
                "costing.py ENDPOINT dear",
                "costing.py ENDPOINT heavy",
                "claiming.py ENDPOINT",
            )
        ),
    ],
)
def test_a_gateway_passes_on_whatever_its_subscribers_ask_for(attack):
    with (
        victim("gateway") as gateway,
        oz.Publisher(connect=gateway.said["publishers"]) as pub,
        oz.Subscriber(gateway.said["subscribers"], filtering="publisher") as sub,
        attacker(*attack.replace("ENDPOINT", gateway.said["subscribers"]).split()),
    ):
        sub.subscribe("a.>")
        sub.wait_ready(timeout=DEADLINE)
        until(lambda: pub.has_subscribers("a.b"))
        for number in range(COUNT):
            pub.publish("a.b", b"%d" % number)
            pub.flush()
            assert int(sub.receive(timeout=DEADLINE).payload) == number
        assert sub.stats.lost == 0
        until(lambda: gateway.told()["sent"] >= COUNT)
