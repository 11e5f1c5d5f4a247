"""Runs of what a subscriber makes of the frames that come, next to a list of what each of them is.

Two publishers send what a few streams ask for, and more; some frames are lost, some come twice, some are
malformed. After each frame every counter is what it has to be, each loss is told with its number, and all
that is given has what it was published with: in order, with what was lost before it, or dropped by the rule
of its overflow.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import oz
from oz.protocol.subscriber import decoder, dedupe, losses, receiver
from oz.protocol.subscriber.columns import MessageBatch
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import key_size
from oz.wire.codec import find_codec
from oz.wire.extras import Extras, Rich, rich
from oz.wire.keys import OWN, Declaration, Declared, DeliveryOptions
from simulation.changing import changed
from simulation.inboxes import check_inboxes
from simulation.interrupted import check_interrupted, check_timeouts
from simulation.ledger import check, matches
from simulation.schedule import Fault
from simulation.speaking import LIMIT, Reader, Sent, Speaker

STEPS = 60
MOST_FRAMES, FRAMES = 32_768, 8
"""Frames that are remembered to have been given, by docs/limits.md; and half as many as are in a run."""

SUBJECTS = "a.x", "a.y", "b.x", "b.y", "c"
DELIVERIES = (
    DeliveryOptions(),
    DeliveryOptions(overflow="drop_oldest", limit=LIMIT),
    DeliveryOptions(overflow="drop_newest", limit=LIMIT),
    DeliveryOptions(overflow="conflate", limit=LIMIT),
)
PATTERNS = ("a.*", "b.x"), ("a.*",), (">",), ("a.*", "b.*")
"""What is asked for on each stream; publishers send all."""

NS = 1_000_000_000
LARGE = b'"%b"' % (b"x" * 70_000)
LOST, AGAIN, SPOILED = 0.15, 0.1, 0.05
ACTIONS = {"publish": 16, "take": 6, "beat": 5, "forget": 1, "unsubscribe": 1, "drop_in": 1}


class ReadingWorld:
    """A subscriber, and two publishers."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 24)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        kinds = random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        every = [Fault(at, kind, (str(random.randrange(2)),), 0.0) for at, kind in enumerate(kinds)]
        self.faults = every if faults is None else faults
        self.now, self.number, self.gaps, self.told = 100.0, 0, [], []
        self.is_json, dedupe = random.random() < 0.3, random.random() < 0.5
        self.streams = Streams(random.randbytes, dedupe=dedupe)
        self.hears, self.warned, self.kinds = random.random() < 0.8, [], set()
        on_gap = self.gaps.append if self.hears else None
        self.decoder = BatchDecoder(self.streams, find_codec("json") if self.is_json else None, on_gap)
        self.decoder.in_batches = not self.is_json and random.random() < 0.4
        self.readers, self.subscriptions = [], {}
        for delivery, texts in zip(DELIVERIES, PATTERNS, strict=True):
            one = Reader(delivery, texts)
            self.readers.append(one)
            for text in texts:
                subscription = Subscribed([oz.compile(text)], None, print)
                self.streams.add(subscription, delivery, last_value=False)
                self.subscriptions[one, text] = subscription
            one.stream = self.streams.stream(subscription)
            one.key = one.stream.key
        self.speakers = [Speaker(self, number) for number in range(2)]
        self.counts, self.line, self.losses = Counter(), [], set()

    def clock(self):
        return self.now

    def run(self):
        """Let everything happen, and check what must be so after each step."""
        check(2 * dedupe.FRAMES == MOST_FRAMES, "{} frames are remembered", 2 * dedupe.FRAMES)
        with changed((losses, "_log", self), (receiver, "_log", self), (decoder, "FRAMES", FRAMES)):
            for fault in self.faults:
                self.now += self.random.choice((0.0, 0.01, 0.4))
                getattr(self, f"_{fault.kind}")(self.speakers[int(fault.who[0])])
                self._bring()
                self._check()
            self._take(None, most=10_000)
            self._check()
        self._check_warned()
        check_interrupted(self.random)
        check_timeouts(self.random)
        check_inboxes(self.random)
        return self

    def warning(self, text, *values):
        """Be told what a subscriber logs."""
        self.warned.append(text % values)

    def _check_warned(self):
        """What is malformed is logged once for each kind, and losses once of each publisher, unless told."""
        lost = sum("were lost" in one for one in self.warned)
        check(
            lost == (0 if self.hears else len(self.losses)),
            "{} have lost, and {} were logged",
            len(self.losses),
            lost,
        )
        found = len(self.warned) - lost
        check(found == len(self.kinds), "{} are malformed, and that was logged: {}", self.kinds, self.warned)

    # what is published -----------------------------------------------------------------------------------

    def _publish(self, speaker):
        messages = [self._message() for _ in range(self.random.choice((1, 1, 1, 2, 5)))]
        batches, first = speaker.batches, speaker.batches.position
        for at, (sent, _) in enumerate(messages):
            speaker.sent[first + at] = sent
        everybody = speaker.router.find(b"a", b"a")
        accumulated = [part for sent, body in messages for part in (everybody, sent.subject.encode(), body)]
        if len(messages) == 1 and messages[0][0].payload == LARGE:
            batches.send_large(accumulated)
        elif len(messages) == 1:
            batches.send_alone(*accumulated)
        else:
            batches.position += len(messages)
            batches.send(accumulated, first, is_rich=any(type(body) is Rich for _, body in messages))

    def _message(self):
        """Make a message as it is to come, and as it is given to a publisher."""
        self.number += 1
        subject, payload = self.random.choice(SUBJECTS), b"%d" % self.number
        kind = self.random.choice(("plain",) * 5 + ("headers", "request", "id", "frames", "large", "spoiled"))
        extras, frames = None, [payload]
        if kind == "headers":
            extras = Extras({"n": self.number})
        elif kind == "request":
            extras = Extras(None, "inbox.1")
        elif kind == "id":
            extras = Extras(message_id=b"%d" % self.random.randrange(20))
        elif kind == "frames":
            frames = [payload, b"more"]
        elif kind == "large":
            frames = [payload] = [LARGE]
            extras = Extras({"n": self.number}) if self.random.random() < 0.5 else None
        elif kind == "spoiled" and self.is_json:
            frames = [payload] = [b"{"]
        body = payload
        if extras is not None or len(frames) > 1:
            body = rich(frames if len(frames) > 1 else payload, *([extras] if extras else []))
        return Sent(subject, frames[0], extras or Extras(), [subject.encode(), *frames]), body

    def _beat(self, speaker):
        self.now += 1.0
        speaker.records.beat(self.now)

    def _forget(self, speaker):
        """A stream begins anew at its publisher."""
        one = self.random.choice(self.readers)
        speaker.router.renumber(speaker.router.streams[one.key])

    # what comes ------------------------------------------------------------------------------------------

    def _bring(self):
        """Bring what was sent, but for what is lost; some of it comes twice."""
        for speaker in self.speakers:
            for one in self.readers:
                taken, speaker.sink.taken[one.key] = speaker.sink.taken[one.key], []
                for head, frames, _ in taken:
                    if self.random.random() >= LOST:
                        self._hear(speaker, one, head, frames)
                    if self.random.random() < SPOILED:
                        self._hear_spoiled(frames)

    def _hear(self, speaker, one, head, frames):
        self._advance(speaker, one, head)
        if head.count:
            self._read(speaker, one, head)
        self._accept(frames)
        if head.count and self.random.random() < AGAIN:
            self.counts["received"] += head.count
            self.counts["filtered"] += head.count
            self._accept(frames)
        self._check()

    def _accept(self, frames):
        waiting = len(self.decoder.waiting)
        message = self.decoder.accept(list(frames), self._ns())
        if message is not None:
            check(not waiting, "a message comes before {} that wait", waiting)
            self._check_message(message)

    def _ns(self):
        return round(self.now * NS)

    def _hear_spoiled(self, frames):
        """What is cut off in its middle is counted, and nothing else."""
        head = frames[0]
        self.counts["received"] += 1
        self.counts["malformed"] += 1
        spoiled = head[: self.random.randrange(1, key_size(head) + 2)]
        self.kinds.add("batch" if spoiled.startswith(OWN) else "plain")
        self._accept([spoiled])

    def _drop_in(self, speaker):
        """Something comes on a stream that has ended."""
        sent, _ = self._message()
        other = Speaker(self, 7)
        name = b"gone".ljust(16)
        key = b"\0" + b"1S" + name
        other.router.learn(b"\1" + key, self.now, other.account)
        said = Declaration(name, 1, patterns=(Declared(1, b">"),)).encode()
        other.router.learn(b"\1" + said, self.now, other.account)
        raw = sent.subject.encode()
        other.batches.send_alone(other.router.find(raw, raw), raw, b"1")
        for head, frames, _ in other.sink.taken[key]:
            self.counts["received"] += head.count
            self.counts["filtered"] += head.count
            self._accept(frames)

    def _advance(self, speaker, one, head):
        """Follow the numbers: what is left out is told as lost, and what of an epoch nobody knows, too."""
        known = one.places.get(speaker.origin)
        epoch, expected = known or (head.epoch, 0)
        only = None
        if len(one.texts) == 1:
            only = self.subscriptions[one, one.texts[0]]
        if head.epoch != epoch:
            self._lose(speaker, one, only, None, None)
        elif head.sequence > expected:
            lost = head.sequence - expected
            self._lose(speaker, one, only, lost, expected)
            self.counts["lost"] += lost
            self.mechanisms["reading: loss told"] += 1
            one.unreported[speaker.origin] += lost
        one.places[speaker.origin] = head.epoch, head.sequence + head.count

    def _lose(self, speaker, one, only, count, sequence):
        self.losses.add((one.key, speaker.origin))
        if self.hears:
            self.told.append((speaker.origin, only, count, sequence))

    def _read(self, speaker, one, head):
        """Say what becomes of each message of a frame."""
        self.counts["received"] += head.count
        new = []
        for at in range(head.count):
            sent = speaker.sent[head.position + at]
            if not one.wants(sent.subject):
                self.counts["filtered"] += 1
            elif self.is_json and sent.payload == b"{":
                self.counts["malformed"] += 1
                self.kinds.add("codec")
            elif self._is_repeated(one, sent.extras.message_id):
                self.counts["repeated"] += 1
            else:
                gap = 0 if new else one.unreported.pop(speaker.origin, 0)
                new.append((sent, speaker.origin, head.sequence + at, head.position + at, gap, self._ns()))
        if one.delivery.overflow is None:
            self.line += [(one, each) for each in new]
            dropped = 0
        else:
            dropped = one.hold(new)
        self.counts["dropped"] += dropped
        self.mechanisms["reading: dropped by an overflow"] += dropped
        self.counts["delivered"] += len(new) - dropped

    def _is_repeated(self, one, message_id):
        if not self.streams.dedupe or message_id is None:
            return False
        is_repeated = message_id in one.ids
        one.ids.add(message_id)
        return is_repeated

    def _take(self, _, most=None):
        """Have the application take some of what waits: what waits in line first, then what streams hold."""
        for _ in range(self.random.randrange(8) if most is None else most):
            message = self.decoder.next()
            if message is None:
                left = len(self.line) + sum(len(one.held) for one in self.readers)
                check(not left, "nothing is given, and {} wait", left)
                return
            if type(message) is MessageBatch:
                check(self.decoder.in_batches and len(message) == len(message.payloads), "columns came")
                for each in message.messages():
                    self._check_message(each)
            else:
                self._check_message(message)

    def _unsubscribe(self, _):
        """End one of two subscriptions of a stream: what waits for nobody else is not given any more."""
        one = self.random.choice((self.readers[0], self.readers[3]))
        if self.decoder.in_batches or len(one.texts) < 2:
            return
        text = one.texts.pop(self.random.randrange(2))
        self.streams.remove(self.subscriptions[one, text])
        self.decoder.retain(lambda message: any(each.active for each in message.subscriptions))
        self.line = [
            (other, each) for other, each in self.line if other is not one or one.wants(each[0].subject)
        ]
        one.held = [each for each in one.held if one.wants(each[0].subject)]

    # what must be so -------------------------------------------------------------------------------------

    def _check_message(self, message):
        """A message is the one that comes next, and has all that it was published with."""
        if self.line:
            one, expected = self.line.pop(0)
        else:
            one = next((one for one in self.readers if one.held), None)
            check(one is not None, "{} is given, and nothing waits", message)
            expected = one.held.pop(0)
        sent, *place = expected
        payload = json.loads(sent.payload) if self.is_json else sent.payload
        found = [message.origin, message.sequence, message.position, message.gap, message.time_ns]
        check(found == place, "a message comes as {}, and is {}", found, place)
        check(
            message.subject == sent.subject and message.payload == payload, "{} is not {}", message, payload
        )
        check(message.frames == sent.frames, "{} has the frames {}", payload, message.frames)
        extras = message.headers or None, message.reply_to, message.message_id
        check(extras == sent.extras[:3], "{} has {}, and not {}", payload, extras, sent.extras)
        for_whom = {self.subscriptions[one, text] for text in one.texts if matches(text, sent.subject)}
        active = {each for each in message.subscriptions if each.active}
        check(active == for_whom, "{} is for {}, and not {}", payload, active, for_whom)

    def _check(self):
        """Each counter is what it has to be, and each loss was told."""
        stats = self.decoder.stats
        for name in STATS:
            found = getattr(stats, name)
            check(found == self.counts[name], "{} are {}, and counted {}", name, self.counts[name], found)
        told = [(gap.origin, gap.subscription, gap.count, gap.sequence) for gap in self.gaps]
        check(told == self.told, "what is lost is told as {}, and is {}", told[-2:], self.told[-2:])
        for one in self.readers:
            buffered = one.stream.receive_buffer
            count = 0 if buffered is None else len(list(buffered))
            check(len(self.decoder.given) <= 2 * FRAMES, "{} frames are remembered", len(self.decoder.given))
            check(count == len(one.held) and bool(buffered) == bool(count), "{} are held", count)


STATS = (
    "received", "delivered", "filtered", "malformed", "lost", "contradictions", "dropped", "denied",
    "repeated", "timed_out", "failed",
)  # fmt: skip
