"""Publishers of the simulation: the state machines of one, on an XPUB of the model."""

from __future__ import annotations

import zmq

from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.interest import PLAIN, ROUTED
from oz.protocol.publisher.interest_queue import SWEEP_EVERY, InterestQueue
from oz.protocol.publisher.last_value_cache import LastValueCache, NodeLastValueCache
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS
from oz.transport.publisher.sink import XpubSink
from oz.wire.extras import Extras, Rich, rich
from simulation.ledger import check
from simulation.processes import MALFORMED, NOBLOCK, SUBSCRIBE, UNSUBSCRIBE, Process

FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.25
REPLY_TO = {"rich": None, "request": "inbox.1"}
"""Where messages with extras are to be answered, by their form."""


class SimPublisher(Process):
    """A publisher."""

    def __init__(self, world, name, *, binds, connects=(), drops, mark):
        super().__init__(world, name)
        self.binds, self.connects, self.drops, self.mark = binds, connects, drops, mark
        self.keeps_requests, self.limits = name != "p2", DEFAULT_LIMITS

    def begin(self):
        self.origin = self.world.random_bytes(16)
        self.world.oracle.began(self)
        options = {"SNDHWM": self.mark, "XPUB_MANUAL": 1, "IMMEDIATE": 1}
        self.xpub = self.socket(zmq.XPUB, **options, XPUB_NODROP=int(not self.drops))
        for endpoint in self.binds:
            self.xpub.bind(endpoint)
        for endpoint in self.connects:
            self.xpub.connect(endpoint)
        self.stats = PublisherStats()
        self.router = Router(
            self.origin, self.stats, pattern_time=self.world.pattern_time_of(self), limits=self.limits
        )
        self.queue = InterestQueue(self.router, self.limits, self.is_there, self.world.access_of(self))
        self.sink = XpubSink(self.xpub, drops=self.drops)
        self.batches = Batches(self.router, self.sink, self.clock, drops=self.drops)
        self.last_values = LastValueCache() if self.keeps_requests else NodeLastValueCache()
        self.records = Records(self.router, self.batches, self.last_values, self.sink, self.clock)
        self._accumulated, self._identified = [], []
        self._known, self.asking = {}, {}
        self.spoiled, self.revoked_at = 0, None
        self._pause = FIRST_PAUSE

    def publish(self, subject, number, form="plain"):
        """Publish one message; tell whether it was taken.

        Args:
            subject: bytes.
            number: its payload.
            form: "plain"; "rich" or "request", with headers; "large", in a frame of its own; "frames";
                "with id", and "again" with the id of one before.
        """
        recipients = self._known.get(subject)
        if recipients is None:
            recipients = self._known[subject] = self.router.find(subject, subject)
        if recipients.kind & ROUTED and self.batches.is_blocked:
            self.batches.retry()
            if self.batches.is_blocked:
                check(not self.drops, "{} is held up, and may drop messages", self.name)
                self.world.mechanisms["publisher held up"] += 1
                return False
        held_up = [one for one in self.batches.full if one.unsent and one.delivery.overflow is None]
        check(
            self.drops or not (recipients.kind & ROUTED and held_up),
            "{} goes on while {} frames wait",
            self.name,
            len(held_up),
        )
        payload = b"%d" % number
        if recipients.kind & PLAIN and not self.hand_over(subject, payload):
            self.world.mechanisms["publisher held up"] += 1
            return False
        if form in REPLY_TO:
            payload = rich(payload, Extras({"number": number}, REPLY_TO[form]))
        elif form == "frames":
            payload = rich([payload, b"more"])
        elif form in ("with id", "again"):
            form, message_id = self._identify(number, form)
            payload = rich(payload, Extras(message_id=message_id))
        self.last_values.put(subject, payload, self.batches.position + len(self._accumulated) // 3)
        self.world.oracle.published(self, subject, number, form)
        if recipients.kind & ROUTED and form == "large":
            self.flush()
            self.stats.sent += 1
            self.batches.send_large([recipients, subject, payload])
        elif recipients.kind & ROUTED:
            self._accumulated += (recipients, subject, payload)
        else:
            self.stats.unwanted += not recipients.kind
            # It has a position all the same, as `Accumulator.pass_over` gives it.
            if self._accumulated:
                self._accumulated += (recipients, subject, payload)
            else:
                self.batches.position += 1
        return True

    def _identify(self, number, form):
        """Return the form of a message, and its id, which another has had if it comes again."""
        if form == "again" and self._identified:
            at, first = self.world.choose(self._identified)
            self.world.oracle.repeats[number] = first
        else:
            form, at = "with id", len(self._identified)
            self._identified.append((at, number))
        # Not quite in a row, as with those who publish side by side; and some without a number.
        place = at // 4 * 4 + (0, 3, 1, 2)[at % 4]
        return form, (self.origin, place) if at % 5 else b"%b %d" % (self.origin, at)

    def hand_over(self, subject, payload):
        """Send it to those who filter by prefixes; tell whether they had room, or may be left out."""
        self.batches.make_lossy()
        try:
            self.xpub.send_multipart([subject, payload], NOBLOCK)
        except zmq.Again:
            return False
        return True

    def flush(self):
        accumulated, self._accumulated = self._accumulated, []
        if not accumulated:
            return
        self.stats.sent += sum(some.kind & ROUTED > 0 for some in accumulated[0::3])
        waits_for_none = any(
            one.delivery.overflow is None for some in accumulated[0::3] for one in some.streams
        )
        most = sum(len(some.streams) + len(some.choices) for some in accumulated[0::3])
        missed = self.stats.missed
        if len(accumulated) == 3:
            self.batches.send_alone(*accumulated)
        else:
            is_rich = any(type(payload) is Rich for payload in accumulated[2::3])
            first = self.batches.position
            self.batches.position += len(accumulated) // 3
            self.batches.send(accumulated, first, is_rich=is_rich)
            check(self.batches.size > 0 or not waits_for_none, "{} has sent a batch of nothing", self.name)
        missed = self.stats.missed - missed
        check(0 <= missed <= most, "{} has missed {} of {} at once", self.name, missed, most)

    def skip(self, count):
        """Say that messages were lost before they came here: how many, or None."""
        self.flush()
        self.world.oracle.skipped(self, count)
        self.batches.skip(count)
        self.world.mechanisms["lost before it came"] += 1
        self.wake()

    def _listen(self):
        has_in, put = self.xpub.has_in, self.xpub.set
        if not has_in():
            return
        recv = self.world.receiver_of(self)
        take, now = self.queue.take, self.clock()
        while has_in():
            self.asking.clear()
            while has_in():
                frame, peer = recv(self.xpub, NOBLOCK)
                self.spoiled += frame[1:] == MALFORMED
                wanted, dropped = take(frame, peer, now)
                for key in wanted:
                    put(SUBSCRIBE, key)
                for key in dropped:
                    put(UNSUBSCRIBE, key)
            self._cut()
            self.queue.work(self.clock)
            self._forget()
            if self.router.to_answer or self.router.acceptance.to_serve:
                self.flush()
                self._answer()

    def _cut(self):
        for peer in self.queue.to_cut:
            self.context.backend.cut(peer)
        self.queue.to_cut.clear()

    def _revoke(self):
        """Take back what others may not have any more, once rights have changed."""
        access = self.router.acceptance.access
        if access is not None and access.has_changed():
            self.revoked_at = self.network.now
            # What waits was let in by the rights of before.
            may = {*self.queue.to_cut, *(one.peer for one in self.queue.turns.accounts())}
            self.queue.revoke(self.clock())
            for peer in self.queue.to_cut:
                check(peer in may or self.world.has_lost_rights(peer), "{} is cut, and lost no right", peer)
            self._cut()

    def is_there(self, peer):
        return self.context.backend.inode(peer.descriptor) == peer.inode

    def look(self):
        """Take in subscriptions while messages wait for others, as `publish` does."""
        self._listen()

    def _answer(self):
        self._tell(self.records.answer)

    def _tell(self, record, *arguments):
        """Have records told, and count the last values that are given with them."""
        before = {stream: stream.sequence for stream in self.router.streams.values()}
        result = record(*arguments)
        for stream, sequence in before.items():
            if stream.sequence != sequence:
                self.world.oracle.gave_last_values(self, stream, stream.sequence - sequence)
        return result

    def _forget(self):
        interest = self.router.interest
        if interest.has_changed:
            interest.has_changed = False
            self._known.clear()

    def turn(self):
        if self._accumulated:
            self.flush()
        self._revoke()
        self._listen()
        if self.batches.full:
            before = self.sink.taken
            self.batches.retry()
            has_moved = self.sink.taken != before
            self._pause = FIRST_PAUSE if has_moved else min(2 * self._pause, LONGEST_PAUSE)
        if self.is_ending:
            if not self.batches.full and self._tell(self.records.say_goodbye):
                self.close()
                return None
            return self.clock() + FIRST_PAUSE * 8
        records, now = self.records, self.clock()
        records.is_halfway = False
        self.asking.clear()
        if records.is_serving:
            self._tell(records.beat, now)
        else:
            records.beat(now)
        is_halfway = records.is_halfway
        self._forget()
        self._listen()
        self.queue.sweep(now)
        self.queue.work(self.clock)
        self.asking.clear()
        self._forget()
        self.world.rest.check_room(self)
        due = now + FIRST_PAUSE if is_halfway else records.next_deadline(now)
        if self.queue.has_doubts:
            due = now + SWEEP_EVERY if due is None else min(due, now + SWEEP_EVERY)
        if self.batches.full:
            later = now + self._pause
            due = later if due is None else min(due, later)
        return due

    def begin_end(self):
        self.asking.clear()
        self.flush()
        self.world.oracle.closed.add(self.origin)

    def _give_up(self, life):
        if self.is_alive and self.is_ending and self.life == life:
            self.records.part_with_the_rest()
        super()._give_up(life)
