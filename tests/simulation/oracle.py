"""What must be so after each run, whatever went wrong on the way.

A publisher's messages for one stream are numbered from 0 in each epoch of it, and the oracle writes down
which they are when they are published. A subscriber's ledger says which of them it was given and which it was
told to be lost: each is one of both, once, or was dropped by the subscriber's own overflow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache


@cache
def matches(text, subject):
    """Tell whether a pattern matches a subject: the oracle's own reading of the nats dialect."""
    tokens, parts = text.split("."), subject.split(".")
    for place, token in enumerate(tokens):
        if token == ">":
            return len(parts) > place
        if place >= len(parts) or token not in ("*", parts[place]):
            return False
    return len(tokens) == len(parts)


SOON = 1.5
"""Virtual seconds in which a message comes where nothing goes wrong."""


class Violation(AssertionError):
    """Something that must be so is not.

    Attributes:
        kind: what, without saying who.
    """

    def __init__(self, text, kind):
        super().__init__(text)
        self.kind = kind


def check(condition, text, *values):
    if not condition:
        raise Violation(text.format(*values), text)


class Ledger:
    """What one life of a subscriber was given and told."""

    def __init__(self, oracle, subscriber):
        self.oracle, self.subscriber = oracle, subscriber
        self.name = f"{subscriber.name}/{subscriber.life}"
        self.streams, self.decoder = subscriber.streams, subscriber.decoder
        self.delivery = subscriber.delivery
        self.messages = []
        self.gaps = []
        self.standing, self.ended, self.drained = [], set(), {}
        self.is_over = False
        self.answered = {}
        self.by_origin = defaultdict(list)
        self.ready = {}

    @property
    def key(self):
        """The key that its messages come on."""
        keys = [key for key, stream in self.streams.by_key.items() if not stream.only_answers]
        return keys[0] if keys else self.last_key

    def subscribed(self, text):
        self.standing.append(text)

    def unsubscribed(self, text):
        self.standing.remove(text)
        self.ended.add(text)

    def begins_drain(self, text):
        """Nothing more is asked for; what was published before still comes."""
        self.drained[text] = self.oracle.world.network.now

    def left(self):
        self.is_over = True
        self.last_key = self.key

    def was_answered(self, number):
        """Write down which publishers have answered the goodbye, and so have sent all they had."""
        sources = self.streams.by_key[self.last_key].sources
        self.answered = {origin: one.epoch for origin, one in sources.items() if number in one.answered}

    def given(self, message):
        oracle = self.oracle
        subject, number = message.subject, int(message.payload)
        origin = oracle.origin_of(number)
        check(message.origin == origin, "{}: message {} says it is of another publisher", self.name, number)
        check(oracle.subjects[number] == subject, "{}: message {} came as {!r}", self.name, number, subject)
        check(
            any(matches(text, subject) for text in self.standing),
            "{}: {!r} matches nothing that it asks for", self.name, subject,
        )  # fmt: skip
        self.by_origin[origin].append((number, message.sequence, oracle.world.network.now))

    def gap(self, subscriber, gap):
        stream = self.streams.by_key[self.key]
        source = stream.sources[gap.origin]
        self.gaps.append((gap.origin, source.epoch, gap.sequence, gap.count))
        self.oracle.mechanisms["gap with a count" if gap.count else "gap without a count"] += 1


class Oracle:
    """Knows all that was published, and what became of it."""

    def __init__(self, world):
        self.world = world
        self.mechanisms = world.mechanisms
        self.subjects, self.published_at = {}, {}
        self._origins = {}
        self.publishers = {}
        self.ledgers = []
        self.books = defaultdict(list)
        self.newest = defaultdict(dict)
        self.groups = defaultdict(list)
        self.closed = set()

    # what happens ----------------------------------------------------------------------------------------

    def began(self, publisher):
        self.publishers[publisher.origin] = publisher

    def joined(self, subscriber):
        ledger = Ledger(self, subscriber)
        self.ledgers.append(ledger)
        return ledger

    def published(self, publisher, subject, payload):
        number = int(payload)
        text = subject.decode()
        origin = publisher.origin
        self.subjects[number] = text
        self.published_at[number] = self.world.network.now
        self._origins[number] = origin
        self.newest[origin][text] = number
        groups = set()
        for stream in publisher.router.streams.values():
            chunks = (*stream.chunks.values(), *stream.ending.values())
            if _has(chunks, text) or (stream.is_shared and _shares(stream, text)):
                if stream.delivery.group:
                    groups.add(stream.delivery.group)
                elif not stream.delivery.is_shared or stream.is_shared:
                    self.books[origin, stream.key, stream.joined].append(number)
        for group in groups:
            self.groups[origin, group].append(number)

    def gave_last_values(self, publisher, stream, count):
        """Write down that so many numbers of a stream are those of last values."""
        book = self.books[publisher.origin, stream.key, stream.joined]
        book.extend([dict(self.newest[publisher.origin])] * count)

    def origin_of(self, number):
        return self._origins[number]

    # what must be so -------------------------------------------------------------------------------------

    def check_order(self):
        """Nothing comes twice, and each subject of each publisher in the order of publishing."""
        self._index()
        for ledger in self.ledgers:
            for messages in ledger.by_origin.values():
                last, seen = {}, set()
                for number, sequence, _ in messages:
                    if self._is_last_value(ledger, number, sequence):
                        continue
                    subject = self.subjects[number]
                    check(number not in seen, "{}: message {} came twice", ledger.name, number)
                    seen.add(number)
                    check(
                        last.get(subject, -1) < number,
                        "{}: {} came after {} of {!r}", ledger.name, number, last.get(subject), subject,
                    )  # fmt: skip
                    last[subject] = number

    def _is_last_value(self, ledger, number, sequence):
        """Tell whether a message came as the last value, which may be old, and for a second time."""
        if not ledger.subscriber.last_value:
            return False
        subject, origin = self.subjects[number], self._origins[number]
        for one, key, epoch in self._epochs[ledger.key]:
            book = self.books[one, key, epoch]
            if one != origin or sequence >= len(book):
                continue
            if isinstance(book[sequence], dict) and book[sequence].get(subject) == number:
                return True
        return False

    def _index(self):
        self._epochs = defaultdict(list)
        for origin, key, epoch in self.books:
            self._epochs[key].append((origin, key, epoch))

    def check_groups(self):
        """A message for a group is given to one member at most, and to one unless that is told."""
        members = defaultdict(list)
        for ledger in self.ledgers:
            if ledger.delivery.group:
                members[ledger.delivery.group].append(ledger)
        for (origin, group), numbers in self.groups.items():
            given = Counter(
                number for ledger in members[group] for number, _, _ in ledger.by_origin.get(origin, ())
            )
            twice = [number for number, count in given.items() if count > 1]
            check(not twice, "group {}: {} came to several members", group, twice[:5])
            self._account_for_group(origin, group, numbers, given, members[group])

    def _account_for_group(self, origin, group, numbers, given, members):
        lost = sum(count or 0 for ledger in members for one, _, _, count in ledger.gaps if one == origin)
        missing = len(numbers) - len(given) - lost
        check(missing >= 0, "group {}: {} were told to be lost that were not", group, -missing)
        passed_over = sum(
            number not in given and any(self._may_be_refused(ledger, number) for ledger in members)
            for number in numbers
        )
        if missing > passed_over and self._is_alive(origin):
            # Nobody can tell of what a member was sent that is gone, or that was cut off and is a new one.
            is_told = any(
                ledger.is_over
                or not self._is_current(ledger)
                or any(one == origin and count is None for one, _, _, count in ledger.gaps)
                for ledger in members
            )
            check(is_told, "group {}: {} are missing and nobody knows", group, missing)

    def _is_alive(self, origin):
        publisher = self.publishers[origin]
        return publisher.is_alive and publisher.origin == origin

    def _is_current(self, ledger):
        subscriber = ledger.subscriber
        return subscriber.is_alive and subscriber.ledger is ledger and not ledger.is_over

    def check_streams(self):
        """What was published for a subscriber was given to it, told as lost, or dropped by its overflow."""
        for ledger in self.ledgers:
            if not ledger.delivery.group:
                self._check_ledger(ledger)

    def _check_ledger(self, ledger):
        key = ledger.key
        epochs = defaultdict(list)
        for origin, its_key, epoch in self.books:
            if its_key == key:
                epochs[origin].append(epoch)
        total = Tally()
        for origin, its_epochs in epochs.items():
            for epoch in sorted(its_epochs):
                is_last = epoch == max(its_epochs)
                total.add(self._check_epoch(ledger, origin, key, epoch, is_last=is_last))
        if self._is_current(ledger):
            dropped = ledger.decoder.stats.dropped
            check(
                total.silent <= dropped + total.conflated,
                "{}: {} are missing, and {} were dropped", ledger.name, total.silent, dropped,
            )  # fmt: skip

    def _check_epoch(self, ledger, origin, key, epoch, *, is_last):
        book = self.books[origin, key, epoch]
        subscriber = ledger.subscriber
        place = {number: at for at, number in enumerate(book) if not isinstance(number, dict)}
        conflates = ledger.delivery.overflow == "conflate"
        given = {}
        for number, sequence, _ in ledger.by_origin.get(origin, ()):
            if self._is_last_value(ledger, number, sequence):
                continue
            if number in place:
                given[number] = sequence
                if not conflates:
                    check(
                        sequence == place[number],
                        "{}: {} has the sequence {} and is {}", ledger.name, number, sequence, place[number],
                    )  # fmt: skip
        gaps = [
            (sequence, count)
            for one, its_epoch, sequence, count in ledger.gaps
            if one == origin and its_epoch == epoch
        ]
        lost = set()
        for sequence, count in gaps:
            if count:
                span = range(sequence, sequence + count)
                check(lost.isdisjoint(span), "{}: a loss was told twice", ledger.name)
                lost.update(span)
        if conflates:
            check(lost.isdisjoint(given.values()), "{}: one was given and told as lost", ledger.name)
            return Tally(conflated=len(book))
        false = lost.intersection(given.values())
        check(not false, "{}: {} were given and told as lost", ledger.name, sorted(false)[:5])
        if lost and not ledger.delivery.is_shared:
            check(max(lost) < len(book), "{}: {} were told as lost of {}", ledger.name, max(lost), len(book))
        source = self._source(ledger, origin)
        is_done = self._has_ended(ledger, origin, epoch)
        if not is_done and (source is None or not self._is_current(ledger)):
            return Tally()
        begins_unknown = (ledger.delivery.is_shared) or any(count is None for _, count in gaps)
        known = lost | {place[number] for number in given}
        missing = [at for at in range(len(book)) if at not in known]
        missing = [at for at in missing if not self._may_be_refused(ledger, book[at])]
        if begins_unknown:
            first = min(known, default=len(book))
            if ledger.delivery.is_shared:
                first = max(first, 0)
            missing = [at for at in missing if at >= first]
        if is_done:
            # It said that this is all, or answered that it sends nothing more.
            self.mechanisms["end checked"] += 1
        elif not (is_last and self._is_alive(origin)):
            # Of an epoch that is over nobody knows how it ended.
            last = max(known, default=-1)
            if source.epoch is not None and source.epoch > epoch and known:
                self._check_told(ledger, origin, epoch, missing)
            missing = [at for at in missing if at <= last]
        elif source.epoch != epoch:
            check(not missing, "{}: of epoch {} of {} it knows nothing", ledger.name, epoch, subscriber.name)
        if ledger.delivery.overflow is None:
            check(
                not missing,
                "{}: of {} in epoch {} {} are missing: {}", ledger.name, self.publishers[origin].name, epoch,
                len(missing), [book[at] for at in missing[:5]],
            )  # fmt: skip
        return Tally(silent=len(missing))

    def _check_told(self, ledger, origin, epoch, missing):
        later = [count for one, its_epoch, _, count in ledger.gaps if one == origin and its_epoch > epoch]
        check(
            not missing or None in later,
            "{}: an epoch of {} ended and nobody told", ledger.name, self.publishers[origin].name,
        )  # fmt: skip

    def _has_ended(self, ledger, origin, epoch):
        """Tell whether a subscriber was told that nothing more comes on a stream."""
        if ledger.is_over:
            return ledger.answered.get(origin) == epoch
        stream = ledger.streams.by_key.get(ledger.key)
        return self._is_current(ledger) and stream is not None and stream.has_ended(origin, epoch)

    def _source(self, ledger, origin):
        stream = ledger.streams.by_key.get(ledger.key)
        return None if stream is None else stream.sources.get(origin)

    def _may_be_refused(self, ledger, number):
        """Tell whether a subscriber may have passed a message over, as it asked no longer for it."""
        if isinstance(number, dict):
            # Last values that were given before, as they were asked for again.
            return True
        subject = self.subjects[number]
        if any(matches(text, subject) for text in ledger.ended):
            return True
        # A verbose proxy hides that one of two connections is gone: publishers go on for what was drained.
        at = self.published_at[number]
        return any(matches(text, subject) and at >= since for text, since in ledger.drained.items())

    def all_ready(self, publishers):
        return all(
            subscriber.is_ready(publisher.origin)
            for publisher in publishers
            for subscriber in self.world.subscribers
            if subscriber.is_alive and not subscriber.is_ending
        )

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
            check(not streams.refusals(), "{} is refused", subscriber.name)
            state = streams.unready()
            check(not state["unanswered"], "{} says that {} is missing", subscriber.name, state)
            check(not subscriber.decoder.waiting, "{}: messages wait in line", subscriber.name)

    def check_quiet(self, publisher, subscriber):
        """Where nothing went wrong nothing is lost, and nothing waits for those with whom something did."""
        publisher, subscriber = self.world.processes[publisher], self.world.processes[subscriber]
        ledger, origin = subscriber.ledger, publisher.origin
        gaps = [gap[1:] for gap in ledger.gaps if gap[0] == origin]
        check(not gaps, "{}: it was told of a loss of {}: {}", ledger.name, publisher.name, gaps[:3])
        if not publisher.drops or ledger.delivery.overflow is not None:
            return
        for number, _, came_at in ledger.by_origin[origin]:
            took = came_at - self.published_at[number]
            check(
                took < SOON or ledger.delivery.group or ledger.subscriber.last_value,
                "{}: message {} took {:.3f} s", ledger.name, number, took,
            )  # fmt: skip

    def check_last_values(self, ledger):
        """One that joins when all is well is given the last value of each subject of each publisher."""
        given = {number for messages in ledger.by_origin.values() for number, _, _ in messages}
        for publisher in self.world.publishers:
            if publisher.is_alive and not publisher.connects:
                newest = set(self.newest[publisher.origin].values())
                check(newest <= given, "{}: {} are no last values", ledger.name, sorted(newest - given)[:5])

    def check_newest(self, numbers):
        """What was published at the end, when all was well, has come to all who ask for it."""
        for ledger in self.ledgers:
            if not self._is_current(ledger) or ledger.delivery.group:
                continue
            given = {number for messages in ledger.by_origin.values() for number, _, _ in messages}
            if 0 < ledger.delivery.limit < len(set(self.subjects.values())):
                # It may well have had no room for all that subjects have at the end.
                continue
            if ledger.delivery.overflow == "conflate":
                # The newest of each subject, of whichever publisher that came last.
                given = {self.subjects[number] for number in given if number >= min(numbers)}
                asked = {self.subjects[number] for number in numbers}
                for subject in asked - given:
                    is_asked = any(matches(text, subject) for text in ledger.standing)
                    check(not is_asked, "{}: {!r} did not come at the end", ledger.name, subject)
                continue
            for number in numbers:
                if any(matches(text, self.subjects[number]) for text in ledger.standing):
                    check(
                        number in given or self._is_told(ledger, number),
                        "{}: {} did not come at the end", ledger.name, number,
                    )  # fmt: skip

    def _is_told(self, ledger, number):
        """Tell whether a message was told as lost, on the connection that carries more than has room."""
        origin, key = self._origins[number], ledger.key
        if not self.publishers[origin].connects:
            return False
        book = self.books[origin, key, ledger.streams.by_key[key].sources[origin].epoch]
        at = book.index(number) if number in book else -1
        return any(
            one == origin and (count is None or sequence <= at < sequence + count)
            for one, _, sequence, count in ledger.gaps
        )

    def check_counters(self):
        """The counters of subscribers say what they were given and told."""
        for ledger in self.ledgers:
            stats = ledger.decoder.stats
            given = sum(map(len, ledger.by_origin.values()))
            told = sum(count or 0 for _, _, _, count in ledger.gaps)
            check(stats.lost == told, "{}: it counted {} lost, and told {}", ledger.name, stats.lost, told)
            if not self._is_current(ledger):
                continue
            check(
                stats.delivered == given,
                "{}: it counted {}, and was given {}",
                ledger.name,
                stats.delivered,
                given,
            )
            rest = stats.received - stats.delivered - stats.dropped - stats.filtered - stats.malformed
            check(rest == 0, "{}: {} of {} are counted nowhere", ledger.name, rest, stats.received)
            check(not stats.malformed, "{}: {} were malformed", ledger.name, stats.malformed)

    def check_interests(self):
        """Publishers know who asks for what, and count them."""
        current = [ledger for ledger in self.ledgers if self._is_current(ledger)]
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
            check(not router.stats.malformed, "{}: keys were malformed", publisher.name)
            for subject in sorted(set(self.subjects.values())):
                asking = [one for one in current if any(matches(text, subject) for text in one.standing)]
                expected = sum(not one.delivery.is_shared for one in asking)
                expected += any(one.delivery.is_shared for one in asking)
                found = router.count(subject.encode(), subject.encode())
                check(
                    found == expected,
                    "{} counts {} for {!r}, and {} ask",
                    publisher.name,
                    found,
                    subject,
                    expected,
                )

    def count(self):
        """Count what shows only at the end."""
        for ledger in self.ledgers:
            self.mechanisms["dropped at the subscriber"] += ledger.decoder.stats.dropped
            origins = {origin for stream in ledger.streams.by_key.values() for origin in stream.sources}
            self.mechanisms["goodbye lost"] += self._is_current(ledger) and bool(origins & self.closed)

    def check_memory(self):
        """Nothing grows: streams are of those that are there, or were lately."""
        for publisher in self.world.publishers:
            if publisher.is_alive:
                most = 4 * len(self.ledgers)
                count = len(publisher.router.streams)
                check(count <= most, "{} has {} streams", publisher.name, count)


class Tally:
    def __init__(self, silent=0, conflated=0):
        self.silent, self.conflated = silent, conflated

    def add(self, other):
        self.silent += other.silent
        self.conflated += other.conflated


def _has(chunks, subject):
    """Tell whether some of the declarations of a stream match."""
    return any(matches(pattern.text, subject) for chunk in chunks for pattern in chunk.patterns)


def _shares(stream, subject):
    return any(matches(pattern.text, subject) for pattern in stream.patterns)
