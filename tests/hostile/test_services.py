"""A recorder and a gateway whose publishers and subscribers keep no rules."""

from contextlib import contextmanager
from pathlib import Path

import pytest

import oz
from hostile.attacked import attacker, victim
from oz.journal import Journal
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE, until

HERE = Path(__file__).parent
COUNT = size(100, 3_000)


def publish_until(pub, is_noticed):
    """Publish numbers until the attacker is noticed, then `COUNT` more; return which those are."""
    sent = 0
    while not is_noticed():
        pub.publish("a.b", b"%d" % sent)
        pub.flush()
        sent += 1
    for number in range(sent, sent + COUNT):
        pub.publish("a.b", b"%d" % number)
        pub.flush()
    return sent, sent + COUNT


def recorded(directory):
    return [one.payload for one in Journal(directory).read("a.b")]


@contextmanager
def recording_both(directory, pub, origin, what):
    """Have a recorder listen to a publisher and to one that uses its name."""
    with started(HERE / "forging.py", origin.hex(), what) as forging:
        endpoint = forging.stdout.readline().strip()
        with victim("recorder", directory, pub.endpoint, endpoint) as recorder:
            assert forging.stdout.readline() == "ready\n", forging.stderr.read()
            yield recorder
            assert forging.poll() is None


@pytest.mark.parametrize("what", ["cannot be", "can be"])
def test_a_recorder_records_whoever_else_uses_the_name_of_its_publisher(tmp_path, what):
    directory = tmp_path / "journal"
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("a.>")
            sub.wait_ready(DEADLINE)
            pub.publish("a.b", b"0")
            origin = sub.receive(timeout=DEADLINE).origin
        with recording_both(directory, pub, origin, what) as recorder:
            start, end = publish_until(pub, lambda: recorder.told()["contradictions"] >= 100)
            until(lambda: str(end - 1).encode() in recorded(directory))
        numbers = [int(one) for one in recorded(directory)]
        assert numbers[numbers.index(start) :] == list(range(start, end))
        gaps = [one for one in Journal(directory).read(gaps=True) if not one.is_message]
        assert len(gaps) < 1_000
        assert all(one.lost is None or one.lost < 10**9 for one in gaps)


@pytest.mark.parametrize("attack", ["declare_without_end", "subscribe_to_long_prefixes"])
def test_a_gateway_passes_on_whatever_its_subscribers_ask_for(attack):
    with (
        victim("gateway") as gateway,
        oz.Publisher(connect=gateway.said["publishers"]) as pub,
        oz.Subscriber(gateway.said["subscribers"], filtering="publisher") as sub,
        attacker("subscribing.py", attack, gateway.said["subscribers"]),
    ):
        sub.subscribe("a.>")
        sub.wait_ready(DEADLINE)
        until(lambda: pub.interest("a.b"))
        start, end = publish_until(pub, lambda: True)
        assert [int(sub.receive(timeout=DEADLINE).payload) for _ in range(end)] == list(range(start, end))
        assert sub.stats.lost == 0
        until(lambda: gateway.told()["sent"] >= end)
