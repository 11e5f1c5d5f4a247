"""What must be so when all is well again: everybody is ready, nothing waits, and every count is right."""

from __future__ import annotations

from collections import Counter

import zmq

from oz.protocol.subscriber.declarations import MOST_SMALL
from simulation.accounts import check_accounts
from simulation.ledger import Violation, check, matches
from simulation.processes import UNKNOWN
from simulation.tables import LISTENED, check_heard, check_paths

SOON = 1.5
"""Virtual seconds in which a message comes where nothing goes wrong."""


SLACK = 10
"""Records beside those of heartbeats: answers to whoever renews a declaration."""

FEW = 5
"""Messages for which there is room, where some may be lost though all is well: others are sent at once."""

MOST_CHUNKS = MOST_SMALL + 8
"""Parts in which a subscriber has declared its patterns, once all is well."""

MOST_TURNS = 100
"""Turns of a process while nothing happens."""


class Rest:
    """Looks at publishers and subscribers once nothing goes wrong any more."""

    def __init__(self, world):
        self.world, self.oracle = world, world.oracle

    def all_ready(self, publishers):
        return all(
            # One that has lost its way a moment ago takes its time to find that out.
            subscriber.is_ready(publisher.origin) and _listens(publisher, subscriber)
            for publisher in publishers
            for subscriber in self.world.subscribers
            if subscriber.is_alive and not subscriber.is_ending
        )

    def is_settled(self):
        """Tell whether all is as it is to be already."""
        try:
            self.check_convergence()
        except Violation:
            return False
        return True

    def check_convergence(self):
        """All is as it is to be: everybody is ready, and nothing waits."""
        alive = [one for one in self.world.publishers if one.is_alive and not one.is_ending]
        for publisher in alive:
            check(not publisher.batches.full, "{}: something still waits", publisher.name)
            check(
                not any(stream.unsent for stream in publisher.router.streams.values()),
                "{}: frames are unsent", publisher.name,
            )  # fmt: skip
        for subscriber in self.world.subscribers:
            if not subscriber.is_alive or subscriber.is_ending:
                continue
            for publisher in alive:
                check(
                    subscriber.is_ready(publisher.origin), "{} is not ready for {}",
                    subscriber.name, publisher.name,
                )  # fmt: skip
            streams, now = subscriber.streams, subscriber.now_ns()
            check(streams.is_ready(len(alive), now), "{} says that it is not ready", subscriber.name)
            check(not streams.publishers.refusals(), "{} is refused", subscriber.name)
            state = streams.unready()
            check(not state["unanswered"], "{} says that {} is missing", subscriber.name, state)
            check(not subscriber.decoder.waiting, "{}: messages wait in line", subscriber.name)
            check(not subscriber.held(), "{}: messages are held back", subscriber.name)
            check(not subscriber.draining, "{} drains still", subscriber.name)
            check_heard(subscriber, alive)

    def check_quiet(self, publisher, subscriber):
        """Where nothing went wrong nothing is lost, and nothing waits for those with whom something did."""
        publisher, subscriber = self.world.processes[publisher], self.world.processes[subscriber]
        ledger, origin = subscriber.ledger, publisher.origin
        gaps = [gap[1:] for gap in ledger.gaps if gap[0] == origin]
        has_died = any(one.kind == "kill" and "hub" in one.who for one in self.world.faults)
        if publisher.connects and gaps and (has_died or gaps[0][1] == 0):
            # The proxy has dropped what came before the direct connection stood, or had it when it died.
            del gaps[0]
        check(not gaps, "{}: it was told of a loss of {}: {}", ledger.name, publisher.name, gaps[:3])
        check_paths(subscriber, publisher)
        if not publisher.drops or ledger.delivery.overflow is not None:
            return
        for number, _, came_at in ledger.by_origin[origin]:
            took = came_at - self.oracle.published_at[number]
            check(
                took < SOON or ledger.delivery.group or ledger.subscriber.last_value,
                "{}: message {} took {:.3f} s", ledger.name, number, took,
            )  # fmt: skip

    def check_last_values(self, ledger):
        """One that joins when all is well is given the last value of each subject of each publisher."""
        given = {number for messages in ledger.by_origin.values() for number, _, _ in messages}
        for publisher in self.world.publishers:
            if publisher.is_alive and not publisher.connects:
                newest = set(self.oracle.newest[publisher.origin].values())
                check(newest <= given, "{}: {} are no last values", ledger.name, sorted(newest - given)[:5])

    def check_newest(self, numbers):
        """What was published at the end, when all was well, has come to all who ask for it."""
        for ledger in self.oracle.ledgers:
            if not self.oracle.is_current(ledger) or ledger.delivery.group:
                continue
            given = {number for messages in ledger.by_origin.values() for number, _, _ in messages}
            if 0 < ledger.delivery.limit < len(set(self.oracle.subjects.values())):
                # It may well have had no room for all that subjects have at the end.
                continue
            if ledger.delivery.overflow == "conflate":
                # The newest of each subject, of whichever publisher that came last.
                given = {self.oracle.subjects[number] for number in given if number >= min(numbers)}
                asked = {self.oracle.subjects[number] for number in numbers}
                for subject in asked - given:
                    is_asked = any(matches(text, subject) for text in ledger.standing)
                    check(not is_asked, "{}: {!r} did not come at the end", ledger.name, subject)
                continue
            for number in numbers:
                if any(matches(text, self.oracle.subjects[number]) for text in ledger.standing):
                    check(
                        number in given or self._is_told(ledger, number),
                        "{}: {} did not come at the end", ledger.name, number,
                    )  # fmt: skip

    def _is_told(self, ledger, number):
        """Tell whether a message was told as lost, where there is room for few."""
        origin, key = self.oracle.origins[number], ledger.key
        publisher = self.oracle.publishers[origin]
        if not publisher.connects and min(publisher.mark, ledger.subscriber.mark) > FEW:
            return False
        book = self.oracle.books[origin, key, ledger.streams.by_key[key].sources[origin].epoch]
        at = book.index(number) if number in book else -1
        return any(
            one == origin and (count is None or sequence <= at < sequence + count)
            for one, _, sequence, count in ledger.gaps
        )

    def check_counters(self):
        """The counters of subscribers say what they were given and told, those of publishers no more."""
        for publisher in self.world.publishers:
            books = [book for (origin, _, _), book in self.oracle.books.items() if origin == publisher.origin]
            books += [book for (origin, _), book in self.oracle.groups.items() if origin == publisher.origin]
            missed, most = publisher.stats.missed, sum(map(len, books))
            check(missed <= most, "{} has missed {} of {}", publisher.name, missed, most)
        for ledger in self.oracle.ledgers:
            stats = ledger.decoder.stats
            lost = stats.lost - ledger.beside
            given = sum(map(len, ledger.by_origin.values())) + len(ledger.unwanted)
            told = sum(count or 0 for _, _, _, count in ledger.gaps)
            self._check_missed(ledger)
            check(lost == told, "{}: it counted {} lost, and told {}", ledger.name, lost, told)
            if not self.oracle.is_current(ledger):
                continue
            check(
                stats.delivered == given,
                "{}: it counted {}, and was given {}",
                ledger.name,
                stats.delivered,
                given,
            )
            rest = (
                stats.received
                - stats.delivered
                - stats.dropped
                - stats.filtered
                - stats.malformed
                - stats.repeated
            )
            # Records are denied, too, and are no messages.
            is_right = 0 <= rest <= stats.denied
            check(is_right, "{}: {} of {} are counted nowhere", ledger.name, rest, stats.received)
            check(stats.malformed == ledger.spoiled, "{}: {} were malformed", ledger.name, stats.malformed)

    def check_dedupe(self):
        """What is remembered of ids is as many spans as these have."""
        for ledger in self.oracle.ledgers:
            repeats = ledger.streams.by_key[ledger.key].repeats
            if repeats is None or ledger.delivery.overflow is not None or ledger.unwanted:
                continue
            spans = sum(type(one) is bytes or (one[0], one[1] - 1) not in ledger.ids for one in ledger.ids)
            check(
                len(repeats) == spans, "{}: {} spans are remembered of {}", ledger.name, len(repeats), spans
            )
            for one in ledger.ids:
                check(not repeats.add(one), "{}: {} is forgotten", ledger.name, one)

    def check_room(self, publisher):
        """Who may drop messages holds none back, but a group's, and last values."""
        for stream in publisher.batches.full if publisher.drops else ():
            if stream.unsent and not stream.delivery.group:
                its = [one for one in self.oracle.ledgers if one.key == stream.key]
                # What a stranger has made up may ask for last values, too.
                served = any(one.subscriber.last_value for one in its) or not its
                check(served, "{}: {} frames wait and are to be dropped", publisher.name, len(stream.unsent))

    def _check_missed(self, ledger):
        """Messages say how many were lost before them, but for those after which none has come yet."""
        told = Counter()
        for origin, _, _, count in ledger.gaps:
            told[origin] += count or 0
        left = Counter()
        for stream in ledger.streams.by_key.values():
            is_beside = stream.only_answers or stream is ledger.side
            for origin, source in () if is_beside else stream.sources.items():
                left[origin] += source.unreported
        for origin, count in told.items():
            said = ledger.missed[origin] + left[origin]
            is_there = origin in left and ledger.delivery.overflow is None
            check(
                said == count if is_there else ledger.missed[origin] <= count,
                "{}: {} are told to be lost of {}, and messages say {}",
                ledger.name, count, self.oracle.publishers[origin].name, said,
            )  # fmt: skip

    def check_interests(self):
        """Publishers know who asks for what, and count them."""
        current = [ledger for ledger in self.oracle.ledgers if self.oracle.is_current(ledger)]
        for publisher in self.world.publishers:
            if not publisher.is_alive:
                continue
            router = publisher.router
            streams = router.streams.values()
            count = sum(len(stream.patterns) for stream in streams)
            check(
                router.interest.pattern_count == count, "{} counts {} patterns and has {}", publisher.name,
                router.interest.pattern_count, count,
            )  # fmt: skip
            for stream in streams:
                if not stream.delivery.is_shared:
                    chunks = (*stream.chunks.values(), *stream.ending.values())
                    asked = Counter(pattern for chunk in chunks for pattern in chunk.patterns)
                    check(
                        asked == stream.patterns, "{}: {} is not {}", publisher.name, stream.patterns, asked
                    )
            if publisher.connects:
                continue
            malformed = router.stats.malformed
            is_right = (
                malformed >= publisher.spoiled if self.world.has_stranger else malformed == publisher.spoiled
            )
            check(
                publisher.spoiled > 0 and is_right, "{}: {} keys were malformed of {}", publisher.name,
                malformed, publisher.spoiled,
            )  # fmt: skip
            check(not router.reports_malformed, "{} has reported nothing", publisher.name)
            check_accounts(publisher)
            self.oracle.mechanisms["stranger: refused"] += router.stats.refused
            unknown = [one for one in streams if one.name == UNKNOWN.stream]
            refused = [len(one.refused) for one in unknown if not one.chunks]
            check(refused == [1], "{} has not refused what it does not know: {}", publisher.name, unknown)
            for subject in sorted(set(self.oracle.subjects.values())):
                asking = [one for one in current if any(matches(text, subject) for text in one.standing)]
                expected = sum(not one.delivery.is_shared for one in asking)
                expected += any(one.delivery.is_shared for one in asking)
                expected += sum(subject.startswith(text.rstrip("*>")) for text in self.world.plain.standing)
                found = router.count(subject.encode(), subject.encode())
                check(
                    found == expected or (self.world.has_stranger and found > expected),
                    "{} counts {} for {!r}, and {} ask",
                    publisher.name,
                    found,
                    subject,
                    expected,
                )

    def count(self):
        """Count what shows only at the end."""
        for ledger in self.oracle.ledgers:
            self.oracle.mechanisms["dropped at the subscriber"] += ledger.decoder.stats.dropped
            origins = {origin for stream in ledger.streams.by_key.values() for origin in stream.sources}
            self.oracle.mechanisms["goodbye lost"] += self.oracle.is_current(ledger) and bool(
                origins & self.oracle.closed
            )

    def begins(self):
        """Write down what everybody has done so far."""
        self._turns = {one: one.turns for one in self.world.processes.values()}
        self._frames = {one: one.frames for one in self.world.subscribers}
        self._sent = {one: one.sink.taken for one in self.world.publishers if one.is_alive}

    def check_idle(self, seconds):
        """Where nothing happens, each stream is told once a second where it stands, and nobody does more."""
        for publisher, before in self._sent.items():
            streams = [one for one in publisher.router.streams.values() if one.vanished_at is None]
            sent = publisher.sink.taken - before
            at_least, at_most = (seconds - 1) * len(streams), (seconds + 1) * len(streams) + SLACK
            check(
                at_least <= sent <= at_most or publisher.connects,
                "{} sent {} records in {} s to {} streams", publisher.name, sent, seconds, len(streams),
            )  # fmt: skip
        for process, before in self._turns.items():
            turns = process.turns - before
            check(turns <= MOST_TURNS, "{} took {} turns in {} s", process.name, turns, seconds)
            if process in self._frames:
                turns -= process.frames - self._frames[process]
                check(turns <= LISTENED, "{} took {} turns for nothing", process.name, turns)

    def check_positions(self):
        """Who is told where a stream stands is told where its publisher does."""
        there = {one.origin: one for one in self.world.publishers if one.is_alive}
        for subscriber in self.world.subscribers:
            for stream in subscriber.streams.by_key.values():
                for origin, source in stream.sources.items():
                    publisher = there.get(origin)
                    if publisher is None or source.is_contested:
                        continue
                    stands, found = publisher.batches.position, source.position
                    check(
                        found == stands, "{}: {} stands at {}, not {}",
                        subscriber.name, publisher.name, stands, found,
                    )  # fmt: skip

    def check_parted(self):
        """Nothing is left of streams that have taken their leave, and many patterns are few keys."""
        sides = {one.ledger.side.key for one in self.world.subscribers if one.ledger.side is not None}
        for publisher in self.world.publishers:
            if publisher.is_alive and not publisher.connects:
                streams = publisher.router.streams.values()
                left = [one for one in streams if one.key in sides and one.vanished_at is None]
                check(not left, "{}: {} streams have taken their leave", publisher.name, len(left))
                for stream in publisher.router.streams.values():
                    count = len(stream.chunks)
                    check(count <= MOST_CHUNKS, "{}: {} chunks stand", publisher.name, count)
        for subscriber in self.world.subscribers:
            found, expected = len(subscriber.streams.by_key), subscriber.count_keys()
            check(found == expected, "{} has {} keys and needs {}", subscriber.name, found, expected)

    def check_asked(self):
        """Of ZeroMQ is asked what is listened to and declared, and nothing else."""
        for subscriber in self.world.subscribers:
            streams = subscriber.streams
            needed = set(streams.by_key)
            for interest in streams.interests.values():
                declarations = interest.declarations
                needed.update(chunk.key for chunk in declarations.chunks.values())
                needed.add(declarations.greeting)
            needed.discard(None)
            asked = subscriber.asked
            check(
                asked == needed, "{}: asked for {} too much and {} too little", subscriber.name,
                len(asked - needed), len(needed - asked),
            )  # fmt: skip

    def check_death(self, dead, other, before):
        """Who heard a publisher that has died is told once; of another that is there nobody is."""
        for subscriber, gaps in before.items():
            if self.world.forged and subscriber.name in self.world.quiet:
                # Somebody has used its name on another connection, which may be its own.
                continue
            ledger = subscriber.ledger
            new = [gap for gap in ledger.gaps[len(gaps) :] if gap[3] is None]
            of_dead = sum(gap[0] == dead.origin for gap in new)
            self.oracle.mechanisms["death told"] += of_dead
            streams = [one for one in ledger.streams.by_key.values() if not one.only_answers]
            check(
                of_dead == len(streams), "{}: it was told {} times that {} is gone, on {} streams",
                ledger.name, of_dead, dead.name, len(streams),
            )  # fmt: skip
            check(not any(gap[0] == other.origin for gap in new), "{}: {} is there", ledger.name, other.name)

    def check_empty(self):
        """Nothing is left of those who have gone."""
        for publisher in self.world.publishers:
            if publisher.connects or not publisher.is_alive:
                # A proxy at its high-water mark drops what is taken back.
                continue
            router, interest = publisher.router, publisher.router.interest
            streams, lifetimes = router.streams.values(), router.lifetimes
            known = (streams, lifetimes.vanished, lifetimes.withdrawn, publisher.records.telling)
            left = [[one for one in some if one.name != UNKNOWN.stream] for some in known]
            left += [
                router.to_answer,
                router.acceptance.to_serve,
                publisher.batches.full,
                lifetimes.cut_members,
            ]
            check(not any(left), "{}: of those who have gone there is {}", publisher.name, left)
            check(not interest.groups, "{} has groups of nobody", publisher.name)
            check(not interest.pattern_count, "{} has {} patterns", publisher.name, interest.pattern_count)
            check(not publisher.batches.is_blocked, "{} is held up by nobody", publisher.name)
            check(not publisher.xpub.get(zmq.TOPICS_COUNT), "{}: ZeroMQ has topics", publisher.name)

    def check_memory(self):
        """Nothing grows: streams are of those that are there, or were lately."""
        for publisher in self.world.publishers:
            if publisher.is_alive:
                most = 4 * len(self.oracle.ledgers)
                streams = publisher.router.streams.values()
                # Those of a stranger that has gone are kept for a while, as any.
                count = sum(not (self.world.has_stranger and one.vanished_at is not None) for one in streams)
                check(count <= most, "{} has {} streams", publisher.name, count)


def _listens(publisher, subscriber):
    """Tell whether what a publisher sends comes to a subscriber."""
    stream = publisher.router.streams.get(subscriber.ledger.key)
    return stream is not None and stream.listeners > 0
