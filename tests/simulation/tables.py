"""What the tables of subscribers say of routes and publishers; and that in the end they are empty."""

from __future__ import annotations

import zmq

import oz
from oz.protocol.subscriber.columns import MessageBatch
from oz.protocol.subscriber.publishers import SILENCE
from oz.protocol.subscriber.receiver import PrefixReceiver, SplittingReceiver
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import key_size, pack_control, parse_head
from oz.wire.codec import find_codec
from oz.wire.keys import stream_key
from simulation.ledger import check, matches
from simulation.processes import DELIMITER

NS = 1_000_000_000

PLAIN = "a.x"

LISTENED = 12
"""Turns beside those in which something came, of a subscriber to which nothing happens for two seconds."""


def check_route(ledger, message):
    """A message says for whom it is: all that ask for its subject, by a handler or by `receive`.

    A route stands until other patterns do, so it is looked at once till then.
    """
    route, subject = message.route, message.subject
    if ledger.routes.get(subject) is route:
        return
    ledger.routes[subject] = route
    subscriptions, handled = route.subscriptions, route.handled
    check(
        handled == tuple(one for one in subscriptions if one.handler is not None)
        and route.is_listed == (len(handled) < len(subscriptions))
        and route.is_counted == any(one.left is not None for one in subscriptions)
        and route.is_only_listed == (not handled and not route.is_counted),
        "{}: the route of {!r} is wrong", ledger.name, subject,
    )  # fmt: skip
    if not (ledger.delivery.overflow or ledger.delivery.is_shared or ledger.subscriber.last_value):
        # What waits in line, or is a last value, may be for fewer.
        count = sum(matches(text, subject) for text in ledger.standing)
        found = sum(one.active for one in subscriptions)
        check(found == count, "{}: {!r} is for {} of {}", ledger.name, subject, found, count)


def check_batch(subscriber, batch):
    """Columns are for those who receive only, and say how large they were."""
    if type(batch) is MessageBatch:
        tables = [one.table for one in subscriber.streams.by_key.values()]
        check(all(one.handler is None for table in tables for one in table), "columns came to a handler")
        check(batch.size > sum(map(len, batch.payloads)), "columns of {} bytes came", batch.size)


def check_dropped(subscriber, before, frame):
    """Where there is no room the first that wait stay, or the last that came do, as was asked for."""
    after = subscriber.held()
    if subscriber.delivery.overflow == "drop_newest":
        check(after[: len(before)] == before, "{}: others than the newest were dropped", subscriber.name)
    else:
        known, head = set(map(id, before)), parse_head(frame, key_size(frame))
        new = [one for one in after if id(one) not in known]
        # Of several the last may be on a subject that waits for longer than others.
        check(new or head.count > 1, "{}: the newest was dropped", subscriber.name)


def check_heard(subscriber, publishers):
    """When publishers were heard is the same whichever way it is asked; what they have learned is all."""
    streams, now_ns, may_lie = subscriber.streams, subscriber.now_ns(), subscriber.world.has_stranger
    for origin, at in streams.publishers.last_heard().items():
        check(
            streams.publishers.heard_at(origin) == at,
            "{}: a publisher was heard at two times",
            subscriber.name,
        )
    ends = [at / NS + SILENCE - now_ns / NS for at in streams.publishers.answering().values()]
    expected = min((left for left in ends if left >= 0), default=None)
    check(
        streams.publishers.next_silence(now_ns) == expected, "{}: silence begins otherwise", subscriber.name
    )
    asked = streams.asked()
    more = {name: number + 1_000_000 for name, number in asked.items()}
    for publisher in publishers:
        if not publisher.connects:
            learned = publisher.router.has_learned
            check(
                learned(asked) and (may_lie or not learned(more)), "{} has not learned what {} asks for",
                publisher.name, subscriber.name,
            )  # fmt: skip


def check_paths(subscriber, publisher):
    """Where there was one way all the time publishers say that there is one."""
    for stream in subscriber.streams.by_key.values():
        if not (stream.is_shared or publisher.connects or subscriber.world.has_stranger):
            paths = stream.sources[publisher.origin].paths
            check(paths == 1, "{} serves {} by {} ways", publisher.name, subscriber.name, paths)


def check_taken(receiver, expected):
    """What comes is given and counted, the first of a subject and the next."""
    is_splitting = isinstance(receiver, SplittingReceiver)
    frames = [PLAIN.encode() + DELIMITER + b"1"] if is_splitting else [PLAIN.encode(), b"1"]
    for count in (1, 2, 3):
        message = receiver.accept(frames, count)
        is_right = message is not None and message.payload == expected and message.subject == PLAIN
        check(is_right and message.time_ns == count, "plain: {!r} comes as {}", frames, message)
        found = receiver.stats.received, receiver.stats.delivered
        check(found == (count, count), "plain: of {} {} are counted", count, found)


def check_plain(world, numbers):
    """Who filters by a prefix is given what it asks for, in order, and all of it where all is well."""
    oracle, subscriber, last, seen = world.oracle, world.plain, {}, set()
    for number, subject in subscriber.given:
        check(subject == oracle.subjects[number], "plain: {!r} came", subject)
        check(number not in seen, "plain: {} came twice", number)
        seen.add(number)
        place = oracle.origins[number], subject
        check(last.get(place, -1) < number, "plain: {} came after {}", number, last.get(place))
        last[place] = number
    direct = [one.origin for one in world.publishers[:2]]
    sent = {
        one
        for one in numbers
        if oracle.origins[one] in direct
        and any(matches(text, oracle.subjects[one]) for text in subscriber.standing)
    }
    check(sent <= seen, "plain: {} did not come", sorted(sent - seen))
    splitting = subscriber.splitting
    splitting.accept([b"nodelimiter"], 0)
    splitting.accept([b"a.x {"], 0)
    subscriber.receiver.accept([b"a.x", b"{"], 0)
    for receiver, spoiled in ((splitting, 2), (subscriber.receiver, 1)):
        spoiled += subscriber.spoiled
        check(receiver.stats.malformed == spoiled, "plain: of {} {} are malformed", receiver.stats, spoiled)
        is_reported = {"codec", *["subject"] * bool(subscriber.spoiled)} <= receiver.refusals.reported
        check(is_reported, "plain: reported is {}", receiver.refusals.reported)
    for stats in (subscriber.receiver.stats, splitting.stats):
        count = stats.delivered + stats.filtered + stats.malformed
        check(stats.received == count, "plain: {} is not all", stats)
        check(stats.delivered == len(subscriber.given), "plain: {} came", stats)
    check(
        len(subscriber.refused) == 2 * (stats.filtered + subscriber.spoiled), "plain: {} refused of {}",
        len(subscriber.refused), stats,
    )  # fmt: skip
    table = subscriber.receiver.table
    for codec, handler in ((None, None), (None, print), (find_codec("json"), None)):
        for one in (PrefixReceiver(codec), SplittingReceiver(DELIMITER, codec)):
            subscription = Subscribed([oz.compile(PLAIN)], handler, print)
            one.table.add(subscription)
            is_simple = type(one) is PrefixReceiver and codec is None and handler is None
            check(one.is_simple == is_simple, "plain: {} is simple: {}", one, one.is_simple)
            check(one.decodes == (codec is not None), "plain: {} decodes: {}", one, one.decodes)
            check_taken(one, b"1" if codec is None else 1)
            one.table.remove(subscription)
            check(not (subscription.active or list(one.table)), "plain: what has ended goes on")
    found = [table.find(one.patterns) for one in table]
    check(found == list(subscriber.standing.values()), "plain: {} stand", found)


def refuse(publisher, subscriber):
    """Have a publisher refuse something that a subscriber asks for, and what it does not ask for."""
    for name, number in subscriber.streams.asked().items():
        stream = publisher.router.streams[stream_key(name)]
        answer = pack_control(live=list(stream.chunks), refused={number: "no", 1 << 20: "never"}, paths=1)
        publisher.sink.try_send(stream.record(stream.sequence, publisher.batches.position, answer))


def check_refused(subscriber):
    """It says what it was refused, of what it still asks for."""
    said = subscriber.streams.publishers.refusals()
    check(said == ["no"] * len(said), "{} says that it is refused {}", subscriber.name, said)


def check_goodbye(subscriber, publisher):
    """A publisher that has said goodbye is not waited for, unless somebody else used its name."""
    for stream in subscriber.streams.by_key.values():
        source = stream.sources.get(publisher.origin)
        if source is not None and source.is_contested:
            continue
        has_ended = stream.has_said_goodbye(publisher.origin) and publisher.origin not in stream.sources
        check(has_ended, "{} waits for {}, which has ended", subscriber.name, publisher.name)


def check_left(subscriber):
    """Of who asks for nothing any more there is nothing: no stream, no key, no message."""
    streams = subscriber.streams
    left = [
        streams.by_key, streams.buffered, streams.interests, streams.homes, streams.draining,
        streams.asked(), subscriber.decoder.waiting, subscriber.asked, list(subscriber.decoder.table),
    ]  # fmt: skip
    check(not any(left), "{} has ended all, and there is {}", subscriber.name, left)
    check(streams.next_deadline() is None, "{} has ended all, and something is due", subscriber.name)
    topics = subscriber.sub.get(zmq.TOPICS_COUNT)
    check(not topics, "{} has ended all, and asks ZeroMQ for {}", subscriber.name, topics)
