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


class Recording:
    """A publisher of numbers, and a recorder that listens to it and to one that uses its name."""

    def __init__(self, directory, pub, recorder):
        self._directory, self._pub, self.recorder, self.sent = directory, pub, recorder, 0

    def publish(self):
        self._pub.publish("a.b", b"%d" % self.sent)
        self._pub.flush()
        self.sent += 1

    def recorded(self):
        return [int(one.payload) for one in Journal(self._directory).read("a.b")]

    def is_noticed(self):
        self.publish()
        return self.recorder.told()["contradictions"] >= 100

    def has_a_run(self, count):
        """Publish numbers; tell whether so many in a row were recorded last."""
        for _ in range(count):
            self.publish()
            self.recorder.told()
        last = self.recorded()[-count:]
        return len(last) == count and last[-1] - last[0] == count - 1

    def gaps(self):
        return [one for one in Journal(self._directory).read(gaps=True) if not one.is_message]

    def missing(self):
        """Give the numbers behind which some are missing without a gap."""
        before, is_told, silent = -1, False, []
        for one in Journal(self._directory).read(gaps=True):
            if not one.is_message:
                is_told = True
            elif one.subject == "a.b":
                number = int(one.payload)
                if number != before + 1 and not is_told:
                    silent.append(before)
                before, is_told = number, False
        return silent


@contextmanager
def recording_both(directory, what):
    """Have a recorder listen to both; it has heard the honest one, and then the other begins."""
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("a.>")
            sub.wait_ready(DEADLINE)
            pub.publish("a.learn", b"")
            origin = sub.receive(timeout=DEADLINE).origin
        with started(HERE / "forging.py", origin.hex(), what) as forging:
            endpoint = forging.stdout.readline().strip()
            with victim("recorder", directory, pub.endpoint, endpoint) as recorder:
                assert forging.stdout.readline() == "ready\n", forging.stderr.read()
                until(lambda: pub.interest("a.b"))
                both = Recording(directory, pub, recorder)
                both.publish()
                until(lambda: both.recorded() == [0])
                print(file=forging.stdin, flush=True)
                yield both
                assert forging.poll() is None


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
        sub.wait_ready(DEADLINE)
        until(lambda: pub.interest("a.b"))
        for number in range(COUNT):
            pub.publish("a.b", b"%d" % number)
            pub.flush()
            assert int(sub.receive(timeout=DEADLINE).payload) == number
        assert sub.stats.lost == 0
        until(lambda: gateway.told()["sent"] >= COUNT)
