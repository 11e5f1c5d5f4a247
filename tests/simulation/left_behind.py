"""What must be so of connections: who is there has what it asked for, and of others nothing is left."""

from __future__ import annotations

from oz.wire.keys import OWN, STREAM, is_goodbye, parse_declaration, stream_key
from simulation.connected import BOTH, DESCRIPTORS, LIMITS, MOST_LEFT, SUBJECTS
from simulation.leaks import count_reached
from simulation.ledger import check, matches


def check_each(world):
    """Messages go to all who have asked, and to nobody else: each of its own, and plain ones of all."""
    granted = {one for link in world.links.values() for one in link.granted if not one.startswith(OWN)}
    for subject in SUBJECTS:
        expected = any(subject.startswith(one) for one in granted)
        found = world.router.plain.matches(subject)
        if any(subject.startswith(one) for one in world.refused):
            # Who ends may be the one that was refused it: rather an interest that lasts too long.
            expected |= found
        check(found == expected, "{!r} is asked for: {}, and goes out: {}", subject, expected, found)


def check_kept(world):
    """Who is there has what it has asked for, whatever others did; who asks once more is answered."""
    for link in world.links.values():
        for key in link.held:
            if world.is_late and (len(key) > LIMITS.plain_size or key.startswith(OWN)):
                continue
            if key in link.granted and not key.startswith(OWN):
                check(world.router.plain.matches(key), "{!r} is held, and nobody gets it", key)
            # Those that are asked for no more are counted for a while.
            has_room = len(link.streams) <= LIMITS.streams
            if has_room and key in link.granted and key.startswith(STREAM):
                stream = world.router.streams.get(key)
                check(stream is not None and stream.listeners, "a stream is held, and nobody listens")
    most = 5 * DESCRIPTORS
    check(len(world.queue.accounts) <= most, "{} accounts are known", len(world.queue.accounts))


def check_left(world, link, name):
    """Who has said goodbye to a stream that nobody else has is given nothing more on it."""
    key = stream_key(name)
    world.mechanisms["left at a publisher"] += 1
    if key not in link.granted or any(key in one.held for one in world.links.values() if one is not link):
        return
    world.mechanisms["left alone"] += 1
    for subject in SUBJECTS:
        found = [one.key for one in world.router.find(subject, subject).streams]
        check(key not in found or key in world.refused, "{!r} goes out to {}, which has left", subject, name)


def check_streams(world, *, is_swept=False):
    """Who asks for something is given it on its stream until it has left, and nobody else is."""
    asked, given = {}, {}
    for link in world.links.values():
        # Those that are asked for no more are counted for a while, and the next may have no room.
        has_room = len(link.streams) <= LIMITS.streams
        for key in link.granted.intersection(link.held):
            if key.startswith(OWN + b"D") and not is_goodbye(key) and key not in link.ended:
                said = parse_declaration(key)
                stream = world.router.streams.get(stream_key(said.stream))
                is_there = said.stream not in link.left and stream_key(said.stream) in link.granted
                if is_there and stream is not None and said.chunk not in stream.refused:
                    texts = [one.text.decode() for one in said.patterns]
                    asked.setdefault(stream, []).extend(texts)
                    given.setdefault(stream, []).extend(texts if has_room else ())
    there = [link.granted - link.returned for link in world.links.values() if not link.is_inside]
    for subject in SUBJECTS:
        found = world.router.find(subject, subject).streams
        for stream, texts in given.items():
            if any(matches(text, subject.decode()) for text in texts):
                check(stream in found, "{!r} is asked for on {}, and does not go out", subject, stream.name)
        if is_swept:
            for stream in found:
                texts = asked.get(stream, ())
                is_asked = any(matches(text, subject.decode()) for text in texts)
                # Who was cut off is counted on for a while, and may be inside the process.
                is_cut = stream.name.startswith(BOTH) or not any(stream.key in one for one in there)
                check(
                    is_asked or is_cut or stream.refused or stream.key in world.refused,
                    "{!r} goes out on {}, and nobody asks for it", subject, stream.name,
                )  # fmt: skip


def check_counts(world):
    """Subscriptions are as many as those who are there have asked for and not been refused."""
    for subject in SUBJECTS:
        if any(subject.startswith(one) for one in world.refused):
            continue
        expected = sum(
            subject.startswith(key)
            for link in world.links.values()
            for key in link.held
            if key in link.granted and not key.startswith(OWN)
        )
        found = world.router.plain.count(subject)
        check(found == expected, "{} are counted for {!r}, and there are {}", found, subject, expected)


def check_empty(world):
    """Of who has gone nothing is left."""
    queue, router, holders = world.queue, world.router, world.queue.holders
    left = [holders.held(), holders.refusals.unknown, queue.turns.accounts(), router.streams]
    # What was refused is remembered where it was taken back, and another had the descriptor by then.
    left += [holders.refusals.counts] * (not world.is_late)
    check(not any(left), "of those who have gone there is {}", left)
    check(not queue.has_doubts, "of those who have gone something is doubted")
    check(not queue.plain_bytes and not queue.turns.size, "bytes of those who have gone are counted")
    check(not router.interest.pattern_count, "patterns of those who have gone are counted")
    for subject in SUBJECTS:
        check(not router.find(subject, subject).kind, "{!r} goes out to nobody", subject)
    for account in (*queue.accounts.values(), *queue.closed.values()):
        sums = account.keys, account.streams, account.plain, account.plain_bytes, account.key_bytes
        sums += account.patterns, account.pattern_weight, account.own_streams, account.beating
        check(not any(sums) or account.peer is None, "{} has gone, and is counted {}", account.peer, sums)
    # Accounts are kept for a while, and the newest of each descriptor.
    most = len(queue.accounts) + DESCRIPTORS + sum(len(one.refused) for one in queue.accounts.values())
    held = count_reached(queue, router, beside=(world, world.alive))
    check(held <= most + MOST_LEFT, "{} entries are left of those who have gone", held - most)
    world.mechanisms["descriptor used again"] += world.inodes > DESCRIPTORS
