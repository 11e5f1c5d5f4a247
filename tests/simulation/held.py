"""What is held for those without room, next to lists that hold the same."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.send_buffer import SEND_BUFFERS
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.receive_buffer import ConflatingStore
from oz.wire.keys import ID_SIZE, Declaration, Declared, DeliveryOptions, stream_key
from simulation.books import Taker
from simulation.ledger import check

STEPS = 40


def check_held(random):
    """Have messages come and go where a publisher holds them, and where a node does."""
    _check_sent(random, random.choice(sorted(SEND_BUFFERS)), random.choice((1, 3, 6)))
    _check_stored(random)
    _check_said(random, random.choice(sorted(SEND_BUFFERS)))


class _Narrow(Taker):
    """A sink that has room for no message, as long as `is_full` says so, and for what is short."""

    is_full = False

    def try_send(self, frames, backlog=None):
        super().try_send(frames)
        (taken,) = self.taken.values()
        if self.is_full and taken[-1][0].count:
            taken.pop()
            return False
        return True


def _check_said(random, overflow):
    """What is held for who has no room is not lost, and no record says that it is: docs/wire.md."""
    sink, name = _Narrow(), b"n".ljust(ID_SIZE)
    router = Router(bytes(16), PublisherStats())
    batches = Batches(router, sink, lambda: 100.0, drops=True)
    records, account, key = (
        Records(router, batches, None, sink, lambda: 100.0),
        Account(Peer(1, 1)),
        stream_key(name),
    )
    delivery = DeliveryOptions(overflow=overflow, limit=9)
    said = Declaration(name, 1, delivery, patterns=(Declared(1, b">"),)).encode()
    for one in (key, said):
        router.learn(b"\1" + one, 100.0, account)
    records.answer()
    expected, now = 0, 100.0
    for number in range(STEPS // 4):
        sink.is_full = number % 4 > 0
        raw = b"%d" % number
        batches.send_alone(router.find(raw, raw), raw, b"x")
        now += 1.0
        records.beat(now)
        for head, _, _ in sink.taken[key]:
            check(
                head.sequence == expected,
                "{} comes next, and it is said that {} does",
                expected,
                head.sequence,
            )
            expected += head.count
        sink.taken[key].clear()
    sink.is_full = False
    batches.retry()
    count = sum(head.count for head, _, _ in sink.taken[key])
    check(expected + count == STEPS // 4, "{} were published, and {} sent", STEPS // 4, expected + count)


def _check_sent(random, overflow, limit):
    """The newest are held, of each subject or at all; what is missed has its number, as what goes out has."""
    buffer, stream, held, numbered, came = (
        SEND_BUFFERS[overflow](limit),
        SimpleNamespace(sequence=0),
        [],
        0,
        0,
    )
    for _ in range(STEPS):
        if random.random() < 0.5:
            new = [
                (random.choice((b"a", b"b", b"c", b"d", b"e")), came + at)
                for at in range(random.randrange(1, 4))
            ]
            came += len(new)
            missed = buffer.put(stream, [part for one in new for part in one], [at for _, at in new])
            for subject, at in new:
                same = [
                    place for place, one in enumerate(held) if one[0] == subject and overflow == "conflate"
                ]
                if same:
                    held[same[0]] = subject, at
                else:
                    held.append((subject, at))
            less = max(0, len(held) - limit)
            check(missed == less, "{} messages are missed, and {} are said to be", less, missed)
        else:
            less = min(len(held), random.randrange(3))
            buffer.drop(stream, less)
        held, numbered = held[less:], numbered + less
        sequence, items, positions = buffer.take(stream, random.choice((1, limit)))
        said = list(zip(items[0::2], items[1::2], strict=True))
        check(
            said == held[: len(said)] and bool(said) == bool(held),
            "{} are held, and {} are given",
            held,
            said,
        )
        check(positions == [at for _, at in said], "{} have the positions {}", said, positions)
        check(sequence == numbered, "the next has the number {} for {}", sequence, numbered)
        check(buffer.end(stream) == numbered + len(held), "what is held ends at {}", buffer.end(stream))


def _check_stored(random):
    """Of each subject the newest is held, in the place of the first."""
    store, held = ConflatingStore(), {}
    for number in range(STEPS):
        if random.random() < 0.6:
            message = SimpleNamespace(subject=random.choice("abcde"), number=number)
            check(store.replace(message) == (message.subject in held), "{} is in two places", message)
            if message.subject not in held:
                store.append(message)
            held[message.subject] = message
        else:
            first = held.pop(next(iter(held))) if held else None
            found = None
            with suppress(IndexError):
                found = store.popleft()
            check(found is first, "{} comes first, and {} was given", first, found)
        check(len(store) == len(held), "{} are held, and {} are counted", len(held), len(store))
