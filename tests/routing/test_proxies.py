from contextlib import ExitStack, suppress

import pytest

import oz
from oz.protocol.publisher import lifetimes
from oz.protocol.subscriber.streams import Streams
from support.sizes import in_suite, size
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.timeout(300)

LONG = 3 * DEADLINE

MANY = size(1_200, 10_000)
"""Patterns of a subscriber in this process."""

OF_PROGRAMS = size(600, 10_000)
"""Patterns of a subscriber in a process of its own: several chunks of a declaration."""

SINGLE = size(1_200, 3_000)
"""Declarations of one pattern each: a plain proxy passes 1,000 at once to whoever comes late."""

SUBSCRIBERS = size(4, 6)
"""Of 500 patterns each, whose declarations a plain proxy does not pass all at once to a late publisher."""

SHARE = 500
"""Messages under way at once: fewer than the 1,000 that a plain proxy holds for a peer."""


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield lambda cls, *args, **options: stack.enter_context(cls(*args, **options))


def receive_all(subs):
    """Take what is there; and have ZeroMQ subscribe again where a connection came back."""
    for sub in subs:
        with suppress(oz.Timeout):
            while True:
                yield sub, sub.receive(timeout=0.005)


def check_each(pub, sub, count=MANY, start=0):
    """One message for each pattern: all arrive."""
    until(lambda: list(receive_all([sub])) or pub.interest(f"p.{count - 1}.x"), LONG)
    sub.wait_ready(timeout=LONG)
    wanted = [f"p.{number}.x" for number in range(start, count)]
    for first in range(0, len(wanted), SHARE):
        # A plain proxy drops what goes beyond its own limits: no more is under way than it may hold.
        share = wanted[first : first + SHARE]
        for subject in share:
            pub.publish(subject, b"")
        assert [sub.receive(timeout=DEADLINE).subject for _ in share] == share
    assert sub.stats.lost == 0


@pytest.mark.sized
@pytest.mark.parametrize("singly", [True, False])
def test_thousands_of_patterns_pass_a_plain_proxy(proxy, opened, singly):
    pub = opened(oz.Publisher, connect=proxy.publishers)
    sub = opened(oz.Subscriber, proxy.subscribers, filtering="publisher")
    patterns = [f"p.{number}.*" for number in range(MANY)]
    for one in patterns if singly else [patterns]:
        sub.subscribe(one)
    check_each(pub, sub)


def subscribe_over_time(sub, count, start=0):
    """Each subscription with a declaration of its own, as they come when messages are received between."""
    for number in range(start, start + count):
        sub.subscribe(f"p.{number}.*")
        with suppress(oz.Timeout):
            sub.receive(timeout=0)


@pytest.mark.sized
def test_a_late_publisher_gets_more_declarations_than_a_proxy_passes_at_once(proxy, opened):
    early = opened(oz.Publisher, connect=proxy.publishers)
    sub = opened(oz.Subscriber, proxy.subscribers, filtering="publisher")
    subscribe_over_time(sub, SINGLE)
    check_each(early, sub, SINGLE)
    late = opened(oz.Publisher, connect=proxy.publishers)
    check_each(late, sub, SINGLE)


@pytest.mark.sized
def test_a_subscriber_of_whom_nothing_reached_a_late_publisher_is_found(proxy, opened, monkeypatch):
    """Others have used up what the proxy passes at once."""
    monkeypatch.setitem(Streams.__init__.__kwdefaults__, "greet_every", 1.0)
    early = opened(oz.Publisher, connect=proxy.publishers)
    subs = [opened(oz.Subscriber, proxy.subscribers, filtering="publisher") for _ in range(SUBSCRIBERS)]
    for place, sub in enumerate(subs):
        subscribe_over_time(sub, 500, 500 * place)
    for sub in subs:
        sub.wait_ready(timeout=LONG)
    late = opened(oz.Publisher, connect=proxy.publishers)
    missing = list(range(500 * SUBSCRIBERS))

    def is_found():
        # A subscriber that has not heard it yet is ready, and some of its patterns may have come through.
        nonlocal missing
        list(receive_all(subs))
        missing = [number for number in missing if not late.interest(f"p.{number}.x")]
        return not missing

    until(is_found, LONG)
    for number in range(500 * SUBSCRIBERS):
        late.publish(f"p.{number}.x", b"")
    late.flush()
    for place, sub in enumerate(subs):
        wanted = [f"p.{number}.x" for number in range(500 * place, 500 * (place + 1))]
        assert [sub.receive(timeout=DEADLINE).subject for _ in wanted] == wanted
    del early


def test_a_proxy_that_was_killed_and_comes_back_loses_nothing_silently(proxy, opened, ledger, monkeypatch):
    # However long it takes to start again.
    monkeypatch.setattr(lifetimes, "GRACE", 3_600.0)
    pub = opened(oz.Publisher, connect=proxy.publishers)
    sub = opened(oz.Subscriber, proxy.subscribers, filtering="publisher", on_gap=ledger.note)
    sub.subscribe("n.*")
    sub.wait_ready(timeout=DEADLINE)
    count = 0

    def publish(least):
        nonlocal count
        ends = count + least
        while count < ends:
            pub.publish(f"n.{count % 5}", b"%d" % count)
            count += 1
        pub.flush()
        ledger.take(sub, 0)

    for _ in range(3):
        for _ in range(20):
            publish(50)
        proxy.kill()
        until(lambda: publish(50) or not pub.interest("n.0"))
        publish(1_000)
        proxy.restart()
        until(lambda: publish(50) or pub.interest("n.0"))
        publish(1_000)
        ledger.settle(sub, count)
    assert sub.stats.lost >= 3 * 1_000
    assert not any(gap.count is None for gap in ledger.gaps)


@pytest.mark.sized
def test_what_a_proxy_drops_at_its_high_water_mark_is_reported(proxy, opened, ledger):
    pub = opened(oz.Publisher, connect=proxy.publishers, max_batch=1)
    sub = opened(
        oz.Subscriber, proxy.subscribers, filtering="publisher", high_water_mark=1, on_gap=ledger.note
    )
    sub.subscribe("n.*")
    sub.wait_ready(timeout=DEADLINE)
    count = size(8_000, 20_000)
    for number in range(count):
        pub.publish("n.1", b"%012d" % number + bytes(1_000))
    ledger.settle(sub, count)
    assert sub.stats.lost > 100


class Rig:
    """Publisher, proxy and subscriber in processes of their own: p, x and s."""

    def __init__(self, program, proxy):
        self.pub = self.sub = None
        self._proxy = proxy
        self._program = program
        proxy.kill()

    def start(self, order):
        for one in order:
            if one == "x":
                self._proxy.restart()
            elif one == "p":
                self.pub = self._program("publisher", "connect", self._proxy.publishers)
                self.pub.hear()
            else:
                self.sub = self._program("subscriber", self._proxy.subscribers, OF_PROGRAMS)
        if "s" in order:
            assert self.sub.hear() == "ready"

    def kill(self, which):
        for one in which:
            {"x": self._proxy, "p": self.pub, "s": self.sub}[one].kill()

    def check(self):
        """What is published on a subject of each pattern arrives, each once."""
        self.sub.report("ready")
        before = self.sub.report()
        self.pub.ask(f"p.#.x {OF_PROGRAMS} 0")

        def count():
            self.now = self.sub.report()
            return self.now.delivered + self.now.lost - before.delivered - before.lost

        until(lambda: count() >= OF_PROGRAMS, LONG)
        assert self.now.delivered == before.delivered + OF_PROGRAMS
        assert self.now.lost == before.lost
        assert self.now.subjects == OF_PROGRAMS
        assert not self.now.doubles

    def until_served(self):
        """Wait until a publisher that came back knows of the last of the patterns."""

        def arrives():
            before = self.sub.report().delivered
            self.pub.ask(f"p.{OF_PROGRAMS - 1}.x 1 0")
            return self.sub.report().delivered > before

        until(arrives, LONG)


@pytest.mark.sized
@pytest.mark.parametrize("order", in_suite(["pxs", "sxp"], ["xsp", "psx", "xps", "spx"]))
def test_started_in_any_order_all_patterns_are_served(program, proxy, order):
    rig = Rig(program, proxy)
    rig.start(order)
    rig.check()


@pytest.mark.sized
@pytest.mark.parametrize("killed", in_suite(["x", "pxs"], ["p", "s", "px", "xs", "ps"]))
def test_whoever_is_killed_comes_back_and_all_patterns_are_served(program, proxy, killed):
    rig = Rig(program, proxy)
    rig.start("xps")
    rig.kill(killed)
    rig.start(killed)
    rig.until_served()
    rig.check()
