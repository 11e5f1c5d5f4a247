"""Who stands where in one stream and on one key, next to counts of the same."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import oz
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.key_holders import SETTLED, KeyHolders
from oz.protocol.publisher.stream import AcceptedChunk, OutStream
from oz.wire.keys import DeliveryOptions
from simulation.ledger import check, matches

STEPS = 40
TEXTS = "a.*", "a.b", "*.b", "c"
SUBJECTS = "a.b", "a.c", "d.b", "c"


def check_places(random):
    """Have two declare under the same numbers, and several hold one key."""
    _check_numbers(random)
    _check_alone(random)
    _check_sure(random)
    _check_ends(random)
    for _ in range(8):
        _check_conserved(random)


def _check_sure(random):
    """Where each has a key of its own, and what it says is read in time, nothing is doubted."""
    alive = {Peer(number, number): None for number in range(1, 5)}
    holders, held = KeyHolders(alive.__contains__), {}
    accounts = {peer: Account(peer) for peer in alive}
    for number in range(STEPS):
        peer, key = random.choice(list(alive)), b"%d" % number
        check(
            holders.add(key, accounts[peer], peer),
            "{} holds a key, and not for the first time",
            peer,
        )
        held[key] = accounts[peer]
        if random.random() < 0.3:
            gone = random.choice(list(held))
            found = holders.take_back(gone, held[gone])
            check(
                found == (1, [held.pop(gone)]),
                "a key was taken back, and that is {}",
                found,
            )
    leaver = random.choice(list(alive))
    del alive[leaver]
    for key in [one for one, account in held.items() if account is accounts[leaver]]:
        check(holders.end_one(key) == (1, [held.pop(key)]), "the one holder of a key has ended, and holds it")
    check(not holders.has_doubts, "each has keys of its own, and something is doubted")
    check(sorted(holders.held()) == sorted(held), "{} are held, not {}", holders.held(), list(held))
    check(all(holders.accounts(key) == [one] for key, one in held.items()), "keys are held by others")


def _check_ends(random):
    """An end is that of who alone held a key and is gone; what nobody has is taken from nobody."""
    alive, key, closed = {Peer(1, 1), Peer(2, 2)}, b"k", Account(is_limited=True)
    holders = KeyHolders(alive.__contains__)
    check(holders.end_one(key) == (1, []) and not holders.has_doubts, "nobody held it, and that is doubted")
    owner, other = Account(Peer(1, 1)), Account(Peer(2, 2))
    holders.add(key, owner, owner.peer)
    holders.refuse(key, other, other.peer)
    alive.remove(owner.peer)
    check(holders.end_one(key) == (1, [owner]), "the one holder of a key has ended, and holds it on")
    often = random.randrange(1, 4), random.randrange(1, 4)
    for descriptor, times in enumerate(often, 8):
        for _ in range(times):
            holders.refuse(b"r", closed, Peer(descriptor, None))
    for _ in range(often[0] + random.randrange(3)):
        check(holders.take_back_closed(b"r", 8) == (0, []), "what was refused is taken from somebody")
    left = holders.refusals.counts[b"r"]
    check(left == often[1], "{} were refused and have not ended, not {}", often[1], left)
    names = {Account(Peer(5, inode)).name for inode in range(3)}
    check(len(names) == 3, "connections that had one descriptor after each other have the names {}", names)


def _check_numbers(random):
    """Each of two who use one number has what it asks for, and takes back its own."""
    accounts = Account(Peer(1, 1)), Account(Peer(2, 2))
    stream = OutStream(b"n" * 16, b"k" * 19, DeliveryOptions(), bytes(16), 1, accounts[0])
    patterns = {text: oz.compile(text) for text in TEXTS}
    held, ended, texts = Counter(), {}, random.sample(TEXTS, 2)
    for _ in range(STEPS):
        who, number, text = random.randrange(2), random.randrange(1, 3), random.choice(texts)
        content = crc32(b"%d.%d.%b" % (number, who, text.encode()))
        said = number, who, text, content
        if random.random() < 0.4:
            place = stream.place(number, content)
            chunk = stream.come_back(place)
            chunk = chunk or AcceptedChunk((patterns[text],), account=accounts[who])
            if not held[said]:
                stream.patterns[patterns[text]] = stream.patterns.get(patterns[text], 0) + (said not in ended)
            ended.pop(said, None)
            stream.hold(place, chunk, content)
            held[said] += 1
        elif held[said]:
            held[said] -= 1
            place = stream.place(number, content)
            chunk = stream.chunks.get(place)
            check(chunk is not None and chunk.content == content, "{} has not its own place", said)
            chunk.holders -= 1
            check(chunk.holders == held[said], "{} is held {} times", said, chunk.holders)
            if not chunk.holders:
                stream.ending[place] = stream.chunks.take(place)
                ended[said] = True
        elif said in ended:
            del ended[said]
            _end(stream, stream.ending.take(stream.place(number, content)))
        _check_stream(stream, accounts, held, ended, random.randrange(1, 5))


def _end(stream, chunk):
    (pattern,) = chunk.patterns
    stream.patterns[pattern] -= 1
    if not stream.patterns[pattern]:
        del stream.patterns[pattern]


def _check_stream(stream, accounts, held, ended, number):
    standing = [said for said, count in held.items() if count]
    live = {said[0] for said in standing}
    check(set(stream.live()) == live, "{} stand, and it is said {}", live, stream.live())
    for who, account in enumerate(accounts):
        own = sum(said[1] == who for said in standing)
        check(
            stream.chunks.owners[account] == own, "{} are counted of {}", stream.chunks.owners[account], own
        )
    stream.refused.clear()
    stream.refuse(number, "no")
    is_there = number in live or any(said[0] == number for said in ended)
    check((number in stream.refused) != is_there, "{} is refused: {}", number, stream.refused)
    for subject in SUBJECTS:
        wanted = any(matches(said[2], subject) for said in standing)
        is_known = wanted or any(matches(said[2], subject) for said in ended)
        found = stream.still_wants(subject.encode())
        check(
            not is_known or found == wanted,
            "{!r} is still wanted: {}, and is said to be {}",
            subject,
            wanted,
            found,
        )


def _check_alone(random):
    """Who holds a key alone is told so, and nobody else is."""
    alive, key = set(), b"k"
    holders, inside, closed = KeyHolders(alive.__contains__), Account(), Account(is_limited=True)
    accounts = [Account(Peer(number, number)) for number in range(1, 4)]
    alive.update(one.peer for one in accounts)
    held = Counter()
    for _ in range(STEPS // 2):
        one = random.choice((*accounts, *accounts, inside, closed))
        if random.random() < 0.6:
            peer = Peer(9, None) if one is closed else one.peer
            holders.add(key, one, peer)
            held[one] += 1
        elif held[one]:
            held[one] -= 1
            if one is closed:
                holders.take_back_closed(key, 9)
            elif one is inside:
                holders.end_one(key)
            else:
                holders.take_back(key, one)
        for other in (*accounts, inside, closed):
            # Of those inside each is one, and of those that had closed all are gone.
            rest = sum(held.values()) - held[other] + (max(0, held[other] - 1) if other is inside else 0)
            is_alone = holders.hold_alone(key, (other,))
            check(is_alone == (not rest), "{} others hold a key, and one holds it alone: {}", rest, is_alone)


def _check_conserved(random):
    """Whatever is held is taken back as often, and nothing of it is left once all have ended."""
    alive, key, closed = set(), b"k", Account(is_limited=True)
    holders, accounts, held, unread = KeyHolders(alive.__contains__), [], Counter(), 0
    added = less = refused = 0
    for number in range(STEPS // 2):
        if len(accounts) < 3:
            accounts.append(Account(Peer(number % 5 + 1, number)))
            alive.add(accounts[-1].peer)
        one, chance = random.choice(accounts), random.random()
        if chance < 0.4:
            holders.add(key, one, one.peer)
            held[one], added = held[one] + 1, added + 1
        elif chance < 0.5:
            # It had closed before it was read; ZeroMQ takes back what it had asked for all the same.
            holders.add(key, closed, Peer(9, None))
            unread, added = unread + 1, added + 1
        elif chance < 0.6 and unread:
            less += holders.take_back_closed(key, 9)[0]
            unread -= 1
        elif chance < 0.8 and held[one]:
            less += holders.take_back(key, one)[0]
            held[one] -= 1
        elif chance < 0.85:
            # Nor does what is refused take anything from anybody.
            if refused and random.random() < 0.7:
                less += holders.take_back_closed(key, 8)[0]
                refused -= 1
            else:
                holders.refuse(key, closed, Peer(8, None))
                refused += 1
        elif chance < 0.95:
            accounts.remove(one)
            alive.discard(one.peer)
            # ZeroMQ takes back once what somebody has asked for twice.
            less += holders.end_one(key)[0] if held.pop(one, 0) else 0
    alive.clear()
    for one in [*accounts, *range(bool(unread))]:
        less += holders.end_one(key)[0] if one == 0 or held[one] else 0
    for _ in range(3 * SETTLED):
        less += sum(one.less for one in holders.sweep(random.choice((1, 1_000))))
    check(not holders.held(), "{} are held by nobody", holders.held())
    check(less == added, "{} were held, and {} taken back", added, less)
