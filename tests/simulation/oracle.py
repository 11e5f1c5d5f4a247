"""What must be so after each run, whatever went wrong on the way.

A publisher's messages for one stream are numbered from 0 in each epoch of it, and the oracle writes down
which they are when they are published. A subscriber's ledger says which of them it was given and which it was
told to be lost: each is one of both, once, or was dropped by the subscriber's own overflow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count as counting
from itertools import islice

from simulation.ledger import Ledger, Violation, check, matches
from simulation.positions import Positions

__all__ = ["Oracle", "Violation", "check"]

NS = 1_000_000_000


class Oracle:
    """Knows all that was published, and what became of it."""

    def __init__(self, world):
        self.world = world
        self.mechanisms, self.time = world.mechanisms, world.network.clock
        self.subjects, self.published_at = {}, {}
        self.origins = {}
        self.publishers = {}
        self.ledgers = []
        self.books = defaultdict(list)
        self.newest = defaultdict(dict)
        self.groups = defaultdict(list)
        self.closed, self.outlived = set(), set()
        self.forms, self.repeats = {}, {}
        self.positions = Positions()
        self._skipped, self.unheard = counting(-1, -1), set()

    # what happens ----------------------------------------------------------------------------------------

    def began(self, publisher):
        self.publishers[publisher.origin] = publisher

    def joined(self, subscriber):
        ledger = Ledger(self, subscriber)
        self.ledgers.append(ledger)
        return ledger

    def published(self, publisher, subject, number, form="plain"):
        text = subject.decode()
        origin = publisher.origin
        self.subjects[number] = text
        self.published_at[number] = self.time.now
        self.origins[number] = origin
        self.forms[number] = form
        if form != "request" or publisher.keeps_requests:
            self.newest[origin][text] = number
        groups = set()
        asking = publisher.asking.get(text)
        if asking is None:
            # It stands until the publisher takes in something else, or its time comes.
            asking = [stream for stream in publisher.router.streams.values() if _asks(stream, text)]
            publisher.asking[text] = asking
        for stream in asking:
            if stream.delivery.group:
                groups.add(stream.delivery.group)
            elif stream.has_messages:
                self.books[origin, stream.key, stream.epoch].append(number)
                if stream.goodbyes:
                    self.outlived.add((stream.key, number))
        for group in groups:
            self.groups[origin, group].append(number)

    def skipped(self, publisher, number):
        """Write down that so many messages were lost before they came to a publisher; None: some were."""
        if number is None:
            # It numbers anew at once, and whoever had heard nothing of it hears nothing of those before.
            for (origin, _), numbers in self.groups.items():
                if origin == publisher.origin:
                    self.unheard.update(one for one in numbers if one < 0)
            return
        seniors = {}
        for stream in publisher.router.counted():
            if stream.is_closing and stream not in publisher.router.to_answer:
                # It was told that this is all, and hears nothing more.
                continue
            if stream.delivery.group:
                senior = seniors.setdefault(stream.delivery.group, stream)
                if stream.joined < senior.joined:
                    seniors[stream.delivery.group] = stream
                continue
            book = self.books[publisher.origin, stream.key, stream.epoch]
            waiting = len(stream.send_buffer.take(stream, 1 << 30)[1]) // 2 if _numbers(stream) else 0
            at = len(book) - waiting
            skipped = list(islice(self._skipped, number))
            book[at:at] = skipped
            if stream.goodbyes:
                self.outlived.update((stream.key, one) for one in skipped)
        for group in seniors:
            self.groups[publisher.origin, group].extend(islice(self._skipped, number))

    def gave_last_values(self, publisher, stream, count):
        """Write down that so many numbers of a stream are those of last values."""
        book = self.books[publisher.origin, stream.key, stream.epoch]
        book.extend([dict(self.newest[publisher.origin])] * count)

    # what must be so -------------------------------------------------------------------------------------

    def check_order(self):
        """Nothing comes twice, and each subject of each publisher in the order of publishing."""
        self._index()
        subjects = self.subjects
        for ledger in self.ledgers:
            has_last_values = ledger.subscriber.last_value
            for origin, messages in ledger.by_origin.items():
                if self.may_be_late(ledger, origin):
                    self._check_once(ledger, messages)
                    continue
                last, seen = {}, set()
                for number, sequence, _ in messages:
                    if has_last_values and self._is_last_value(ledger, number, sequence):
                        continue
                    subject = subjects[number]
                    if number in seen or last.get(subject, -1) >= number:
                        check(number not in seen, "{}: message {} came twice", ledger.name, number)
                        check(
                            False, "{}: {} came after {} of {!r}", ledger.name, number, last[subject], subject
                        )
                    seen.add(number)
                    last[subject] = number

    def may_be_late(self, ledger, origin):
        """Tell whether one of two ways was slower than any is taken to be: what it brings is given late."""
        publisher = self.publishers[origin]
        return ledger.decoder.stats.contradictions > 0 and publisher.binds and publisher.connects

    def _check_once(self, ledger, messages):
        for number, count in Counter(number for number, _, _ in messages).items():
            check(
                count == 1 or ledger.subscriber.last_value, "{}: message {} came twice", ledger.name, number
            )

    def _has_come(self, ledger, first, but):
        """Tell whether a message with an id has come, or another of those that repeat it."""
        same = [one for one, repeated in self.repeats.items() if repeated == first and one != but]
        return first is not None and not ledger.numbers().union(ledger.unwanted).isdisjoint((first, *same))

    def _is_last_value(self, ledger, number, sequence):
        """Tell whether a message came as the last value, which may be old, and for a second time."""
        if not ledger.subscriber.last_value:
            return False
        subject, origin = self.subjects[number], self.origins[number]
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

    def is_alive(self, origin):
        publisher = self.publishers[origin]
        return publisher.is_alive and publisher.origin == origin

    def is_current(self, ledger):
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
        if self.is_current(ledger):
            dropped = ledger.decoder.stats.dropped + ledger.decoder.stats.repeated
            check(
                total.silent <= dropped + total.conflated,
                "{}: {} are missing, and {} were dropped", ledger.name, total.silent, dropped,
            )  # fmt: skip

    def _check_epoch(self, ledger, origin, key, epoch, *, is_last):
        book = self.books[origin, key, epoch]
        subscriber = ledger.subscriber
        place = {number: at for at, number in enumerate(book) if not isinstance(number, dict)}
        conflates = ledger.delivery.overflow == "conflate"
        given, perhaps = {}, set()
        for number, sequence, _ in ledger.by_origin.get(origin, ()):
            if self._is_last_value(ledger, number, sequence):
                # Of a later epoch, where it may have by chance the number that it has in this one.
                perhaps.add(sequence if place.get(number) == sequence else None)
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
        if not (ledger.delivery.is_shared or ledger.delivery.overflow or subscriber.last_value):
            taken = given | {number: place[number] for number in ledger.unwanted if number in place}
            self._check_before(ledger, taken, lost, self._late(ledger, origin, given, lost))
        false = lost.intersection(given.values())
        check(
            not false or self.may_be_late(ledger, origin),
            "{}: {} were given and told as lost", ledger.name, sorted(false)[:5],
        )  # fmt: skip
        if lost and not ledger.delivery.is_shared:
            check(max(lost) < len(book), "{}: {} were told as lost of {}", ledger.name, max(lost), len(book))
        source = self._source(ledger, origin)
        is_done = self._has_ended(ledger, origin, epoch)
        if not is_done and (source is None or not self.is_current(ledger)):
            return Tally()
        begins_unknown = (ledger.delivery.is_shared) or any(count is None for _, count in gaps)
        known = lost | {place[number] for number in given}
        missing = [at for at in range(len(book)) if at not in known and at not in perhaps]
        missing = [at for at in missing if not self.may_be_refused(ledger, book[at])]
        if begins_unknown:
            first = min(known, default=len(book))
            if ledger.delivery.is_shared:
                first = max(first, 0)
            missing = [at for at in missing if at >= first]
        if is_done:
            # It said that this is all, or answered that it sends nothing more.
            self.mechanisms["end checked"] += 1
            if ledger.is_over:
                # But over another connection, of which nobody has told it yet that it has ended.
                missing = [at for at in missing if (key, book[at]) not in self.outlived]
        elif not (is_last and self.is_alive(origin)):
            # Of an epoch that is over nobody knows how it ended.
            last = max(known, default=-1)
            if source.epoch is not None and source.epoch > epoch and known:
                self._check_told(ledger, origin, epoch, missing)
            missing = [at for at in missing if at <= last]
        elif source.epoch != epoch:
            # Nothing has been published in a later one; but that one began may be all that it was told.
            if known or not self._was_never_heard_before(source, book):
                self._check_told(ledger, origin, epoch, missing)
            missing = [at for at in missing if at <= max(known, default=-1)]
        if begins_unknown and self.may_be_late(ledger, origin):
            # It was told that an unknown number is missing: behind what came late nobody can count.
            missing = []
        if ledger.delivery.overflow is None:
            check(
                not missing,
                "{}: of {} in epoch {} {} are missing: {}", ledger.name, self.publishers[origin].name, epoch,
                len(missing), [book[at] for at in missing[:5]],
            )  # fmt: skip
        return Tally(silent=len(missing))

    def _check_before(self, ledger, taken, lost, late):
        """Each message but the first of an epoch says how many were lost since the one before it.

        One whose subscription ended while it waited is no exception, though nobody was given it. What came
        late says it of what was given before it, and so does what is next in order.
        """
        before, is_behind = None, False
        for number, sequence in sorted(taken.items(), key=lambda one: one[1]):
            if before is not None and number not in late and not is_behind:
                count = sum(at in lost for at in range(before + 1, sequence))
                said = ledger.says_lost[number]
                check(said == count, "{}: {} says {} are lost, and {} are", ledger.name, number, said, count)
            before, is_behind = sequence, number in late

    def _late(self, ledger, origin, given, lost):
        """Return what was given behind messages that were published after it, or that were told as lost."""
        if not self.may_be_late(ledger, origin):
            return set()
        late, newest = set(), -1
        for number, _, _ in ledger.by_origin.get(origin, ()):
            if number in given:
                if given[number] < newest or given[number] in lost:
                    late.add(number)
                newest = max(newest, given[number])
        return late

    def _was_never_heard_before(self, source, book):
        """Tell whether a publisher was heard for the first time when all of an epoch had been published."""
        numbers = [number for number in book if not isinstance(number, dict) and number >= 0]
        last = max((self.published_at[number] for number in numbers), default=0.0)
        return source.first_at > (last + 1_000) * NS

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
        # In this epoch: of those before it nobody knows how they ended.
        ended = stream.ended.get(origin) if stream is not None and self.is_current(ledger) else None
        return ended is not None and ended.epoch == epoch

    def _source(self, ledger, origin):
        stream = ledger.streams.by_key.get(ledger.key)
        return None if stream is None else stream.sources.get(origin)

    def may_be_refused(self, ledger, number):
        """Tell whether a subscriber may have passed a message over, as it asked no longer for it."""
        if isinstance(number, dict):
            # Last values that were given before, as they were asked for again.
            return True
        if number < 0:
            return False
        if ledger.streams.dedupe and self._has_come(ledger, self.repeats.get(number), but=number):
            return True
        subject = self.subjects[number]
        if any(matches(text, subject) for text in ledger.ended):
            return True
        if self.world.has_stranger and not ledger.asked_for(subject, self.published_at[number]):
            # Somebody else had asked for it in its name.
            return True
        # A verbose proxy hides that one of two connections is gone: publishers go on for what was drained.
        at = self.published_at[number]
        publisher = self.publishers[self.origins[number]]
        # It answers by the quicker of two ways, while a message may still be on its way by the other.
        has_two_ways = bool(publisher.binds and publisher.connects)
        # Nor is one waited for that is silent, or of which nothing has come yet.
        return any(
            matches(text, subject) and (has_two_ways or at >= since or self.origins[number] not in answered)
            for text, (since, answered) in ledger.drained.items()
        )


class Tally:
    def __init__(self, silent=0, conflated=0):
        self.silent, self.conflated = silent, conflated

    def add(self, other):
        self.silent += other.silent
        self.conflated += other.conflated


def _numbers(stream):
    """Tell whether a stream has messages waiting that are numbered."""
    return bool(stream.send_buffer) and stream.send_buffer.is_numbered


def _asks(stream, subject):
    """Tell whether some of the declarations of a stream match, or the pattern that it is of."""
    # In loops without a generator: this is asked of each stream for each message.
    for chunks in (stream.chunks, stream.ending):
        for chunk in chunks.values():
            for pattern in chunk.patterns:
                if matches(pattern.text, subject):
                    return True
    return stream.is_shared and any(matches(pattern.text, subject) for pattern in stream.patterns)
