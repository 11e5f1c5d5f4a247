"""Runs in which every counter is held against what happened: of publishers, subscribers and nodes.

The engines are those of `oz.asyncio`, on the model of ZeroMQ. There is little room, and who receives is slow;
nothing breaks, so that it is known of each message where it went.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random

import oz
import oz.testing
from simulation.failing import unfailing
from simulation.ledger import check, matches
from simulation.schedule import Fault

SUBJECTS = "a.x", "a.y", "a.x.deep", "b.x", "b.y", "none.x"
PLAIN = "a.*"
BURSTS, NEWS, REQUESTS = 25, 12, 8
SOON, CALM = 5.0, 3.0
"""Seconds in which all are ready, and after which hearts have told all that was lost."""


class Listener:
    """A subscriber, the messages that it was given, and those published that it asks for."""

    def __init__(self, subscriber, patterns):
        self.subscriber, self.patterns = subscriber, patterns
        self.given, self.wanted = [], []

    def wants(self, subject):
        return any(matches(one, subject) for one in self.patterns)

    async def take(self, most):
        with suppress(oz.Timeout):
            self.given += await self.subscriber.receive_many(most, timeout=0)


class CounterWorld:
    """Two publishers, four subscribers and two nodes."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = Random(seed + 20)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.faults = [Fault(1.0, "full", ("p1",), 1.0)] if faults is None else faults
        self.bus = oz.testing.Bus(seed)
        self.published, self.refused, self.unwanted, self.number = Counter(), Counter(), Counter(), 0
        self.raised, self.repeats, self.ids = 0, 0, []

    def run(self):
        """Let everything happen, and check what is counted."""
        with self.bus:
            self.bus.run(unfailing(self._sockets()))
            self.bus.run(unfailing(self._nodes()))
        return self

    # publishers and subscribers --------------------------------------------------------------------------

    async def _sockets(self):
        self._open()
        for publisher in self.publishers:
            await publisher.wait_for_subscribers(len(self.listeners), timeout=SOON)
        await asyncio.gather(*(one.subscriber.wait_ready(SOON) for one in self._routed()))
        running = asyncio.create_task(self.handling.subscriber.run())
        for _ in range(BURSTS):
            await self._burst()
            one = self.random.choice(self.listeners)
            if one is not self.handling and self.random.random() < 0.7:
                await one.take(self.random.choice((1, 5, 50)))
            await asyncio.sleep(self.random.choice((0.0, 0.001, 0.05)))
        await self._calm_down()
        running.cancel()
        self._check_publishers()
        for one in self.listeners:
            self._check_subscriber(one)

    def _open(self):
        random, bus = self.random, self.bus
        mark = lambda: random.choice((2, 5)) if self.faults else 1000  # noqa: E731
        self.publishers = [
            bus.publisher(high_water_mark=mark()),
            bus.publisher(high_water_mark=mark(), on_full="error"),
        ]
        routed = [bus.subscriber(filtering="publisher", high_water_mark=mark()) for _ in range(2)]
        handling = bus.subscriber(filtering="publisher", dedupe=True)
        self.listeners = [
            Listener(routed[0], ["a.*", "b.x"]),
            Listener(routed[1], ["a.>", "b.*"]),
            Listener(handling, ["*.x"]),
            Listener(bus.subscriber(high_water_mark=1000), [PLAIN]),
        ]
        _, self.dropping, self.handling, self.plain = self.listeners
        for one in self.listeners:
            options = {}
            if one is self.dropping:
                options = {"overflow": random.choice(("drop_newest", "drop_oldest")), "max_pending": 3}
            if one is self.handling:
                options = {"handler": self._handle}
            one.subscriber.subscribe(one.patterns, **options)

    def _routed(self):
        return [one for one in self.listeners if one is not self.plain]

    def _handle(self, message):
        self.handling.given.append(message)
        if self.random.random() < 0.3:
            self.raised += 1
            raise ValueError("as an application does")

    async def _burst(self):
        publisher = self.random.choice(self.publishers)
        for _ in range(self.random.choice((1, 2, 5, 20))):
            self.number += 1
            subject, known = self.random.choice(SUBJECTS), None
            if self.random.random() < 0.2:
                # An id of somebody else's is another's; a publisher sends its own again.
                known = self.random.choice(self.ids) if self.ids and self.random.random() < 0.5 else None
                known = known or (subject, b"%d" % self.number)
                subject = known[0]
            await self._publish(publisher, subject, known and known[1])
            if self.random.random() < 0.2:
                await asyncio.sleep(0)

    async def _publish(self, publisher, subject, message_id):
        self.published[publisher] += 1
        options = {} if message_id is None else {"message_id": message_id}
        try:
            await publisher.publish(subject, b"%d" % self.number, **options)
        except oz.WouldBlock:
            self.refused[publisher] += 1
            self.mechanisms["message refused"] += 1
            return
        asking = [one for one in self.listeners if one.wants(subject)]
        for one in asking:
            one.wanted.append((publisher, self.number, message_id))
        # What begins as the plain subscriber's pattern goes out too, as ZeroMQ filters no better.
        self.unwanted[publisher] += not asking and not subject.startswith("a.")
        if message_id is not None:
            self.ids.append((subject, message_id))

    async def _calm_down(self):
        """Take all that comes, until hearts have told what else was lost."""
        ends = self.bus.now() + CALM
        while self.bus.now() < ends:
            for one in self.listeners:
                if one is not self.handling:
                    await one.take(1000)
            await asyncio.sleep(0.05)

    # what must be so -------------------------------------------------------------------------------------

    def _check_publishers(self):
        missed = 0
        for one in self.publishers:
            stats, refused, unwanted = one.stats, self.refused[one], self.unwanted[one]
            check(
                stats.published == self.published[one], "{} and not {} published", stats, self.published[one]
            )
            check(stats.dropped == refused, "{} and not {} dropped", stats, refused)
            check(stats.unwanted == unwanted, "{} and not {} unwanted", stats, unwanted)
            none = (stats.timed_out, stats.suspended, stats.malformed, stats.refused, stats.denied, stats.cut)
            check(not any(none), "{} counts what was not", stats)
            missed += stats.missed
            self.mechanisms["message missed"] += stats.missed
        lost = sum(one.subscriber.stats.lost for one in self._routed())
        check(missed == lost, "{} are missed, and {} lost", missed, lost)

    def _check_subscriber(self, one):
        """What was published for it was given, lost, dropped, or had come before."""
        stats, given = one.subscriber.stats, [int(message.payload) for message in one.given]
        check(stats.delivered == len(given), "{}: {} were given", stats, len(given))
        numbers = [number for _, number, _ in one.wanted]
        check(set(given) <= set(numbers) and len(set(given)) == len(given), "{}: what was given", stats)
        rest = len(numbers) - len(given)
        if one is self.plain:
            # Whoever has no room for plain messages drops them, and nobody knows.
            check(stats.lost == stats.dropped == 0 <= rest, "{}: {} are gone", stats, rest)
            check(stats.received == len(given) + stats.filtered, "{} were filtered", stats.filtered)
        else:
            gone = stats.lost + stats.dropped + stats.repeated
            check(rest == gone, "{}: {} of {} are gone", stats, rest, len(numbers))
            received = len(given) + stats.dropped + stats.repeated
            check(stats.received == received, "{}: {} were received", stats, received)
            check(not stats.filtered, "{}: nothing is filtered here", stats)
        check(stats.failed == (self.raised if one is self.handling else 0), "{}: {}", stats, self.raised)
        if one is self.handling:
            least = len(numbers) - len({known or number for _, number, known in one.wanted})
            check(stats.repeated <= least, "{}: {} came again at most", stats, least)
            check(stats.lost or stats.repeated == least, "{}: {} came again", stats, least)
        none = stats.malformed, stats.contradictions, stats.denied, stats.timed_out, stats.reconnects
        check(not any(none), "{} counts what was not", stats)

    # nodes -----------------------------------------------------------------------------------------------

    async def _nodes(self):
        async with self.bus.node("asks") as asks, self.bus.node("answers") as answers:
            handled = Counter()

            def hear(message):
                handled["news"] += 1
                if int(message.payload) % 3 == 0:
                    handled["raised"] += 1
                    raise ValueError("as an application does")

            async def answer(message):
                handled["asked"] += 1
                await message.reply(b"yes")

            answers.subscribe("news.*", handler=hear)
            answers.subscribe("svc.it", handler=answer)
            await asyncio.gather(*(one.wait_for_peers(1, timeout=SOON) for one in (asks, answers)))
            await asyncio.gather(*(one.wait_ready(SOON) for one in (asks, answers)))
            before = asks.stats, answers.stats
            unheard = 0
            for number in range(NEWS):
                subject = self.random.choice(("news.x", "news.y", "other.x"))
                unheard += subject == "other.x"
                await asks.publish(subject, str(number))
            nobody = 0
            for _ in range(REQUESTS):
                subject = self.random.choice(("svc.it", "svc.it", "svc.nobody"))
                try:
                    await asks.request(subject, b"?", timeout=SOON)
                except oz.NoResponders:
                    nobody += 1
            await asyncio.sleep(1.0)
            self._check_nodes(asks, answers, before, handled, unheard, nobody)

    def _check_nodes(self, asks, answers, before, handled, unheard, nobody):
        first = Counter({name: getattr(asks.stats, name) - getattr(before[0], name) for name in NODE_COUNTS})
        second = Counter(
            {name: getattr(answers.stats, name) - getattr(before[1], name) for name in NODE_COUNTS}
        )
        asked = REQUESTS - nobody
        check(handled["news"] == NEWS - unheard, "{} news are handled", handled["news"])
        check(first["requests"] == asked, "{} requests of {}", first["requests"], asked)
        check(
            first["no_responders"] == nobody, "{} that nobody answers of {}", first["no_responders"], nobody
        )
        check(first["unwanted"] >= unheard, "{} unwanted of {}", first["unwanted"], unheard)
        check(first["published"] >= NEWS + asked, "{} published", first["published"])
        check(second["replies"] == handled["asked"] == asked, "{} replies to {}", second["replies"], asked)
        whole = handled["news"] + asked
        check(second["handled"] + second["failed"] == whole, "{} of {}", second, whole)
        check(second["failed"] == handled["raised"], "{} failed of {}", second["failed"], handled["raised"])
        check(second["received"] >= whole, "{} received of {}", second["received"], whole)
        for counts in (first, second):
            check(not any(counts[name] for name in NONE), "{} counts what was not", counts)
        self.mechanisms["node counted"] += 1


NONE = (
    "missed", "lost", "dropped", "waiting", "late_replies", "replies_dropped", "malformed", "refused_replies",
    "refused_introductions", "refused_announcements", "denied", "contradictions",
)  # fmt: skip
"""What nodes do not count while nothing goes wrong."""

NODE_COUNTS = (
    *NONE, "published", "unwanted", "received", "handled", "failed", "requests", "replies", "no_responders",
)  # fmt: skip
