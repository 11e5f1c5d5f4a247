"""The book of who is known to a publisher, kept by the rules of docs/wire.md.

It knows nothing of how oz does that.
"""

from __future__ import annotations

from collections import defaultdict

from oz.wire.batch import key_size, parse_head
from oz.wire.keys import ID_SIZE, stream_key
from simulation.ledger import matches

GRACE, DELAY = 30.0, 1.0
"""Seconds for which a stream is kept that was cut off, and after which ends what was taken back."""


OWNER_SIZE = 14
"""Bytes that the names of all streams of one subscriber have in common: docs/wire.md."""


class Taker:
    """A sink with room for everything.

    Attributes:
        taken: what came on each key: the head, all frames, and where the head begins.
    """

    def __init__(self):
        self.taken = defaultdict(list)

    def try_send(self, frames, backlog=None):
        size = key_size(frames[0])
        self.taken[frames[0][:size]].append((parse_head(frames[0], size), frames, size))
        return True

    def try_send_one(self, frame):
        return self.try_send((frame,))

    def look(self):
        """Know of room at once."""

    make_lossless = make_lossy = look


class Chunk:
    """A declaration: what it asks for, and by whom it stands."""

    def __init__(self, texts, first):
        self.texts, self.first = texts, first
        self.holders, self.ends_at = set(), None


class Subscriber:
    """One stream, as the book has it.

    Attributes:
        owner: whose it is.
        keys: what it asks for: the texts of each declaration, by number and key.
        connections: by which it comes, and what it has said by each.
        chunks: declarations that stand, or have not ended yet, by number.
        life: changes when it is counted anew.
        cut_as: the how manieth cut the last of it was.
        kept: the life and the number of a member of a group that was cut off, and when that was.
    """

    def __init__(self, number, delivery):
        # Two streams may be of one subscriber: then all but the end of their names is the same.
        self.owner = number if number != 2 else 1
        name = (b"%d" % self.owner).ljust(OWNER_SIZE)
        self.name = (name + b"%d" % number).ljust(ID_SIZE)
        self.key, self.delivery = stream_key(self.name), delivery
        self.asked, self.number, self.connections = {}, 0, {}
        self.kept, self.epochs, self.life, self.sequence = None, [], 0, 0
        self.cut_as = 0
        self.forget()

    def forget(self):
        """Have nothing known of it."""
        self.is_known, self.is_closing, self.vanished_at = False, False, None
        self.chunks, self.goodbyes, self.newest, self.joined = {}, set(), 0, 0

    @property
    def group(self):
        """Its queue group, once it has declared something: its own key says nothing of that."""
        return self.delivery.group if self.newest else ""

    @property
    def listeners(self):
        return [one for one, said in self.connections.items() if self.key in said]

    def standing(self):
        return {number: one for number, one in self.chunks.items() if one.ends_at is None}

    def texts(self, *, with_ending):
        some = self.chunks.values() if with_ending else self.standing().values()
        return {text for one in some for text in one.texts}

    def wants(self, subject, *, with_ending=True):
        return any(matches(text, subject) for text in self.texts(with_ending=with_ending))


class Book:
    """What is known of some subscribers.

    Attributes:
        answered: those that are to be answered.
        most_kept: streams that were cut off and are kept, and so many members of groups.
    """

    most_kept = 1_000

    def __init__(self, mechanisms):
        self.mechanisms, self.now, self.answered = mechanisms, 100.0, set()
        self._joined = self._life = self._cuts = 0

    def _begin(self, one, connection):
        """A stream begins, goes on, or is back."""
        if one.is_closing and connection not in one.goodbyes:
            one.is_closing, one.goodbyes = False, set()
            self._number_anew(one)
            self.mechanisms["standing: went on behind a goodbye"] += 1
        if not one.is_known:
            self._joined += 1
            one.is_known, one.joined = True, self._joined
            kept, one.kept = one.kept, None
            if kept is None:
                self._number_anew(one)
            else:
                one.life, one.sequence = kept[:2]
                self.mechanisms["standing: member is back"] += 1
        if one.vanished_at is not None:
            one.vanished_at = None
            for chunk in one.chunks.values():
                chunk.ends_at = self.now + GRACE
            self.mechanisms["standing: back in time"] += 1
        self.answered.add(one)

    def _number_anew(self, one):
        self._life += 1
        one.life, one.sequence = self._life, 0

    def _listen(self, one, connection):
        self._begin(one, connection)

    def _hear(self, one, connection, number, texts):
        self._begin(one, connection)
        chunk = one.chunks.setdefault(number, Chunk(texts, connection))
        if chunk.ends_at is not None:
            chunk.ends_at = None
        chunk.holders.add(connection)
        one.newest = max(one.newest, number)

    def _let_go(self, one, number, connection, delay):
        chunk = one.chunks.get(number)
        if chunk is None or connection not in chunk.holders:
            return
        chunk.holders.discard(connection)
        if chunk.holders:
            return
        if one.group:
            del one.chunks[number]
        else:
            chunk.ends_at = self.now + delay
        if delay == GRACE:
            self.answered.add(one)

    def _listen_no_more(self, one):
        if one.listeners or not one.is_known:
            return
        if one.is_closing:
            one.forget()
        elif one.group:
            one.kept = one.life, one.sequence, self.now
            one.forget()
            self._keep_few(one, [other for other in self.subscribers if other.kept is not None])
        else:
            one.vanished_at = self.now
            self._keep_few(one, [other for other in self.subscribers if other.vanished_at is not None])

    def _keep_few(self, one, kept):
        """Forget the one that was cut off first, where there are too many."""
        self._cuts += 1
        one.cut_as = self._cuts
        if len(kept) > self.most_kept:
            first = min(kept, key=lambda other: other.cut_as)
            if first.kept is None:
                first.forget()
            first.kept = None
            self.mechanisms["standing: cut off, and too many were"] += 1

    def _hear_goodbye(self, one, connection, number):
        one.goodbyes.add(connection)
        if set(one.listeners) <= one.goodbyes:
            one.is_closing, one.chunks = True, {}
        else:
            for at, chunk in list(one.chunks.items()):
                if chunk.ends_at is None and chunk.holders == {connection} and chunk.first == connection:
                    del one.chunks[at]
                    self.mechanisms["standing: ended by one goodbye of two"] += bool(chunk.texts)
        one.chunks.setdefault(number, Chunk((), connection)).holders.add(connection)
        self.answered.add(one)

    def _expire(self, one):
        if one.vanished_at is None:
            ended = [
                at
                for at, chunk in one.chunks.items()
                if chunk.ends_at is not None and chunk.ends_at <= self.now
            ]
            for at in ended:
                del one.chunks[at]
        elif self.now - one.vanished_at >= GRACE:
            one.forget()
        if one.kept is not None and self.now - one.kept[2] >= GRACE:
            one.kept = None
