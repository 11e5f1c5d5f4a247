"""Random comparison of a SubSocket with a reference: a plain SUB on everything, and patterns in Python.

    python tests/dropin/differential.py SECONDS [SEED]

Each round makes sockets, and mixes subscriptions of all dialects, ends of subscriptions, messages of one to
four frames, and all ways to receive and to poll. Both sockets are connected to one publisher. Each change of
the subscriptions waits until the publisher knows of it. The reference decides by `Pattern.matches`, and by
`startswith` for prefixes. Messages that were not received before the end of their subscription are refused. A
subscription begins only while nothing waits, because it would match messages that wait, too.
"""

import asyncio
import random
import sys
import time
from collections import Counter

import zmq
import zmq.asyncio

import oz
import oz.asyncio

WORDS = ["a", "b", "ab", "x", "$SYS", "é", "foo"]
SEPARATORS = {"mqtt": "/", "redis": ":", "zmq": ":"}
WILD = {
    "nats": ["*", ">"],
    "rv": ["*", ">"],
    "kubemq": ["*", ">"],
    "redis": ["*", "?", "[ab]", "a*"],
    "raims.sub": ["*", ">"],
    "raims.rv": ["*", ">"],
    "raims.glob": ["*", "?"],
    "regex": [".*", "(a|b)", "[^.]+", "a?", r"\w"],
    "mqtt": ["+", "#"],
    "amqp": ["*", "#"],
    "zmq": ["a", "*"],
}
RECEIVES = ["multipart", "frames", "no copy", "poll", "events", "shadow", "into", "mixed"]


def random_pattern(chance):
    """Return the arguments of a `subscribe`, and the compiled pattern."""
    while True:
        dialect = chance.choice(oz.DIALECTS)
        separator = SEPARATORS.get(dialect, ".")
        words = [
            chance.choice(WILD[dialect] if chance.random() < 0.5 else WORDS)
            for _ in range(chance.randrange(1, 4))
        ]
        text = separator.join(words)
        if chance.random() < 0.15:
            prefix = text.encode()[: chance.randrange(len(text) + 1)]
            return (prefix,), oz.compile(prefix, "zmq")
        try:
            return (text, dialect), oz.compile(text, dialect)
        except oz.PatternError:
            continue


def random_message(chance):
    """Return frames."""
    separator = chance.choice("..../:")
    subject = separator.join(chance.choice([*WORDS, ""]) for _ in range(chance.randrange(1, 5))).encode()
    if chance.random() < 0.05:
        subject += b"\xff"
    return [
        subject,
        *(b"%d" % chance.randrange(1000) * chance.choice([1, 30]) for _ in range(chance.randrange(4))),
    ]


def matches(pattern, subject):
    """Decide as the reference does."""
    if pattern.dialect == "zmq":
        return subject.startswith(pattern.prefixes[0])
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


END = b"\xfeend"


class Round:
    """Sockets and subscriptions of one round."""

    def __init__(self, seed, context):
        self.chance = random.Random(seed)
        self.publisher = context.socket(zmq.XPUB)
        self.publisher.set(zmq.XPUB_VERBOSER, 1)
        self.publisher.sndhwm = 0
        self.publisher.bind("inproc://differential" if self.chance.random() < 0.5 else "tcp://127.0.0.1:*")
        endpoint = self.publisher.last_endpoint.decode()
        self.plain = context.socket(zmq.SUB)
        self.plain.rcvhwm = 0
        self.plain.connect(endpoint)
        self.plain.subscribe(b"")
        self.expect(b"\1")
        self.endpoint = endpoint
        self.counts = Counter({oz.compile(END, "zmq"): 1})
        self.calls = {}
        self.messages = 0
        self.delivered = 0

    def expect(self, *messages):
        """Wait for subscriptions, or ends of them, at the publisher."""
        found = set()
        for _ in messages:
            assert self.publisher.poll(20_000), "a subscription did not arrive"
            found.add(self.publisher.recv())
        assert found == set(messages), (found, messages)

    def trie(self):
        """Return the prefixes that libzmq must have."""
        return Counter(prefix for one, count in self.counts.items() for prefix in one.prefixes * count)

    def change(self, sub, pending):
        """Subscribe or unsubscribe once."""
        before = self.trie()
        if pending and not any(pattern.dialect != "zmq" for pattern in self.calls):
            # While there are only prefixes libzmq decides, and it has chosen the next message already.
            return
        if pending or (self.calls and self.chance.random() < 0.45):
            call, pattern = self.chance.choice(list(self.calls.values()))
            sub.unsubscribe(*call)
            if self.counts[pattern]:
                self.counts[pattern] -= 1
            self.counts = +self.counts
        else:
            call, pattern = random_pattern(self.chance)
            self.calls[pattern] = call, pattern
            sub.subscribe(*call)
            self.counts[pattern] += 1
        after = self.trie()
        # A SUB sends every subscription, and the last end of a prefix.
        begun = pattern.prefixes if after.total() > before.total() else ()
        self.expect(
            *(b"\1" + prefix for prefix in begun),
            *(b"\0" + prefix for prefix in before.keys() - after.keys()),
        )

    def send(self):
        """Send messages, and return the matching messages by the reference."""
        wanted = []
        # The last message matches always, so that all before it were seen when it is received.
        sent = [*(random_message(self.chance) for _ in range(self.chance.randrange(1, 12))), [END]]
        for frames in sent:
            self.publisher.send_multipart(frames)
        for frames in sent:
            assert self.plain.recv_multipart() == frames
            if any(matches(one, frames[0]) for one in self.counts):
                wanted.append(frames)
        self.messages += len(sent)
        self.delivered += len(wanted)
        return wanted

    def drop_unsubscribed(self, pending):
        """Return what of the messages that were not received yet still matches."""
        return [frames for frames in pending if any(matches(one, frames[0]) for one in self.counts)]

    def close(self):
        self.plain.close(0)
        self.publisher.close(0)


def receive(sub, way, chance):
    """Receive one message in a way, or return None if there is none for a while."""
    if way == "multipart":
        return sub.recv_multipart()
    if way == "frames":
        frames = [sub.recv()]
        while sub.rcvmore:
            frames.append(sub.recv(copy=chance.random() < 0.5))
        return [bytes(frame) for frame in frames]
    if way == "no copy":
        return [frame.bytes for frame in sub.recv_multipart(copy=False, track=chance.random() < 0.5)]
    if way == "poll":
        assert sub.poll(20_000) == zmq.POLLIN
        return sub.recv_multipart(zmq.NOBLOCK, chance.random() < 0.5)
    if way == "events":
        began = time.monotonic()
        while not sub.events & zmq.POLLIN:
            assert time.monotonic() - began < 20, "no message arrives"
        return [sub.recv(zmq.NOBLOCK), *(sub.recv_multipart() if sub.rcvmore else [])]
    if way == "shadow":
        return oz.SubSocket(sub).recv_multipart()
    if way == "into":
        buffer = bytearray(200)
        frames = [bytes(buffer[: sub.recv_into(buffer)])]
        while sub.rcvmore:
            frames.append(bytes(buffer[: sub.recv_into(buffer)]))
        return frames
    frames = [sub.recv()]
    if sub.rcvmore:
        assert sub.poll(0) == zmq.POLLIN
        frames += sub.recv_multipart(copy=False)
    return [bytes(frame) for frame in frames]


def as_bytes(frames):
    return [frame if isinstance(frame, bytes) else frame.bytes for frame in frames]


def run_blocking(seed, context):
    """Run a round with `oz.SubSocket`; return the numbers of messages and of matching messages."""
    one = Round(seed, context)
    sub = oz.SubSocket(context)
    sub.rcvtimeo = 20_000
    sub.rcvhwm = 0
    sub.connect(one.endpoint)
    sub.subscribe(END)
    one.expect(b"\1" + END)
    pending = []
    try:
        for _ in range(40):
            if one.chance.random() < 0.5:
                one.change(sub, pending)
                pending = one.drop_unsubscribed(pending)
            pending += one.send()
            for _ in range(
                one.chance.randrange(len(pending) + 1) if one.chance.random() < 0.5 else len(pending)
            ):
                found = as_bytes(receive(sub, one.chance.choice(RECEIVES), one.chance))
                assert found == pending[0], (seed, found, pending[0], one.counts)
                del pending[0]
            if not pending:
                for nothing in (lambda: sub.poll(0), lambda: sub.events & zmq.POLLIN):
                    assert not nothing(), (seed, one.counts)
                try:
                    raise AssertionError((seed, sub.recv_multipart(zmq.NOBLOCK), one.counts))
                except zmq.Again:
                    pass
        return one.messages, one.delivered
    finally:
        sub.close(0)
        one.close()


async def run_asyncio(seed, context):
    """Run a round with `oz.asyncio.SubSocket`, whose receives are cancelled at any time."""
    one = Round(seed, context)
    sub = oz.asyncio.SubSocket(context)
    sub.rcvhwm = 0
    sub.connect(one.endpoint)
    sub.subscribe(END)
    one.expect(b"\1" + END)
    pending = []

    async def receive_one():
        way = one.chance.choice(["multipart", "frames", "no copy", "poll", "string"])
        if way == "multipart":
            return await sub.recv_multipart()
        if way == "no copy":
            return as_bytes(await sub.recv_multipart(copy=False))
        if way == "poll":
            await sub.poll()
            return await sub.recv_multipart()
        if way == "string":
            return await sub.recv_serialized(list)
        frames = [await sub.recv()]
        while sub.rcvmore:
            frames.append(await sub.recv())
        return frames

    try:
        for _ in range(40):
            if one.chance.random() < 0.5:
                one.change(sub, pending)
                pending = one.drop_unsubscribed(pending)
            is_early = one.chance.random() < 0.5
            tasks = []
            if is_early:
                # A receive that waits already, and may be cancelled when the message is there.
                tasks.append(asyncio.ensure_future(sub.recv_multipart()))
                await asyncio.sleep(0)
            pending += one.send()
            for task in tasks:
                for _ in range(one.chance.randrange(8)):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    found = await task
                except asyncio.CancelledError:
                    continue
                assert found == pending[0], (seed, found, pending[0])
                del pending[0]
            while pending and one.chance.random() < 0.95:
                found = await asyncio.wait_for(receive_one(), 20)
                assert found == pending[0], (seed, found, pending[0], one.counts)
                del pending[0]
            if not pending:
                assert not await sub.poll(0), (seed, one.counts)
        return one.messages, one.delivered
    finally:
        sub.close(0)
        one.close()


def run_round(seed):
    """Run the round of a seed; return the numbers of messages and of matching messages."""
    context = zmq.Context()
    try:
        if seed % 3:
            return run_blocking(seed, context)
        return asyncio.run(run_asyncio(seed, context))
    finally:
        context.destroy(0)


def main():
    ends = time.monotonic() + float(sys.argv[1])
    seed = first = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    messages = delivered = 0
    while time.monotonic() < ends:
        sent, matched = run_round(seed)
        messages, delivered, seed = messages + sent, delivered + matched, seed + 1
    print(f"seeds {first} to {seed - 1}: {messages} messages, {delivered} matched, all as expected")


if __name__ == "__main__":
    main()
