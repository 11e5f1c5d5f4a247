"""Runs in which everybody has a key, and one few rights: it is to get nothing else, and to inject nothing."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from random import Random

import oz
from oz.errors import ProtocolError
from oz.protocol.publisher import access
from oz.protocol.publisher.access import Access, Rights
from oz.protocol.publisher.accounts import Peer
from oz.protocol.subscriber.publish_access import PublishAccess
from oz.security.permissions import Permissions, Rule, User
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    HEAD_SIZE,
    LAST_VALUES,
    MESSAGES,
    head_end,
    head_start,
    key_size,
    pack_array,
    pack_control,
    parse_body,
    parse_head,
)
from oz.wire.keys import STREAM, Declaration, Declared, DeliveryOptions, pattern_key, stream_key
from simulation.hostile import ACTS, FORGED, LAST_EPOCH, Stranger
from simulation.ledger import check
from simulation.processes import NOBLOCK
from simulation.publishers import SimPublisher
from simulation.schedule import BUSY
from simulation.spoiling import MARK
from simulation.world import World

access.beginning_with = beginning_with = lru_cache(maxsize=4_096)(access.beginning_with)
"""The same few prefixes are asked for in each run."""

MEMBER, PUBLISHES = "member", "member.pub"
"""The hosts of the member with few rights: there it asks, and there it publishes."""

PLACE = "tcp://10.0.0.9:7000"

MAY, MAY_NOT = "b.>", "a.>"
"""What it may publish and subscribe to, and what not."""

LATER = "b.z"
"""What it may not have either, from some time on."""

DENIED = b"a.x", b"a.y", b"a.x.deep", b"c", b"_INBOX.x"
"""Subjects that it publishes all the same."""


def key_of_host(host):
    """Return the public key of whoever has a host: the member has one for both of its."""
    return host.partition(".")[0].ljust(40, "0")


def _rules(*denied):
    for action in ("publish", "subscribe", "request"):
        for effect, text in (("allow", MAY), *(("deny", one) for one in denied)):
            yield Rule(action, effect, text, oz.compile(text), "here")


def check_prefixes():
    """What a plain subscription is held against is all subjects that begin so, and no others."""
    subjects = [f"{one}.{other}" for one in ("a", "ab", "b") for other in ("x", "xy", "x.y")]
    for prefix in ("", "a", "a.", "ab.x", "a.x.", "a.x.y", "c"):
        pattern = beginning_with(prefix.encode(), "nats")
        for subject in subjects:
            found, begins = pattern.matches(subject), subject.startswith(prefix)
            check(found == begins, "{!r} begins with {!r}: {}", subject, prefix, found)
        if prefix.endswith("."):
            # Who may have all below it may have it.
            check(oz.compile(f"{prefix}>").covers(pattern), "{!r} is more than what is below it", prefix)


class Member(Stranger):
    """Asks for what it may not have, in its own name and in others', and looks at all that it gets."""

    def turn(self):
        while self.xsub.has_in():
            frames = self.xsub.recv_multipart(NOBLOCK)
            self.world.mechanisms["member: got something"] += 1
            for subject, payload in self._messages(frames[0]):
                check(subject.startswith(b"b."), "{} was given {}", self.name, subject)
                if subject == LATER.encode() and type(payload) is bytes:
                    self._check_later(int(payload))

    def _check_later(self, number):
        oracle = self.world.oracle
        revoked_at = oracle.publishers[oracle.origins[number]].revoked_at
        is_later = revoked_at is not None and oracle.published_at[number] > revoked_at
        check(not is_later, "{} was given {}, which it may have no more", self.name, number)

    def _messages(self, frame):
        """Return the subjects and payloads of what came, on a key that is its own or that several share."""
        if MARK in frame:  # It is malformed, and made up.
            return []
        try:
            size = key_size(frame)
        except ProtocolError:
            return [(frame, None)]
        key = frame[:size]
        is_of_others = any(key in one.streams.by_key for one in self.world.oracle.ledgers)
        check(not (is_of_others and key.startswith(STREAM)), "{} was given what is on {}", self.name, key)
        head = parse_head(frame, size)
        if head.flags & CONTROL:
            return []
        at = size + HEAD_SIZE + CHUNK_FIELD * bool(head.flags & LAST_VALUES) + head.width * (head.count - 1)
        body = parse_body(frame, at, head.count)
        return zip(body[0::2], body[1::2], strict=True)

    def act(self):
        """Do something, once the others are known: a name belongs to the first who uses it."""
        known = [one.router.streams for one in self.world.publishers[:2] if one.is_alive]
        names = [key for one in self.world.subscribers if one.is_alive for key in one.streams.by_key]
        if len(known) == 2 and all(key in one for one in known for key in names if key.startswith(STREAM)):
            super().act()

    def _ask_for_much(self):
        """Ask for what it may not have, in other ways than by declarations of its own."""
        for one in self._random.sample(PREFIXES, 3):
            self._say(True, one)
            if self._random.random() < 0.5:
                self._say(False, one)
        text = self._random.choice((b">", b"a.*", b"a.x", b"*.x", b"b.>"))
        self._say(True, pattern_key(Declared(1, text)))
        # A publisher grants the keys of shared patterns with their declaration: a proxy may have lost them.
        name, shared = self._random.choice(self._own), DeliveryOptions(is_shared=True)
        said = Declaration(name, 20 + self._random.randrange(9), shared, patterns=(Declared(1, text),))
        for key in (said.encode(), stream_key(name)):
            self._say(True, key)


PREFIXES = b"", b"a", b"a.x", b"b", b"b.", b"a.x.", b"\0", b"\x001", b"\x001S", b"\x001P", b"_", b"a.x\xff"
"""Plain subscriptions: of subjects, and of keys that messages for others come on."""


class MemberPublisher(SimPublisher):
    """A publisher of the same member: says what it may not, in its own name and in those of others."""

    def act(self):
        """Do something."""
        if not self.is_alive:
            return
        self.world.mechanisms["member: publishes"] += 1
        choice = self.world.member_random.choice
        if choice((True, False)):
            subject = choice(DENIED + (LATER.encode(),) * self.world.has_changed)
            recipients = self.router.find(subject, subject)
            self.batches.send_alone(recipients, subject, FORGED)
        else:
            self._forge(choice)
        self.wake()

    def _forge(self, choice):
        others = [one for one in self.world.publishers if one.is_alive]
        there = [one for one in self.world.subscribers if one.is_alive]
        if not (others and there):
            return
        other, subscriber = choice(others), choice(there)
        for key, stream in list(subscriber.streams.by_key.items()):
            source = stream.sources.get(other.origin)
            # Of a name that nobody has used it would be the first; on a shared key it comes to all, and to a
            # subscriber that has just begun anew.
            if source is None or source.epoch is None or stream.is_shared:
                continue
            epoch = choice((source.epoch, source.epoch + 1, LAST_EPOCH))
            sequence = choice((source.expected, source.expected + 3, 10**15, 0))
            count, body = choice(
                (
                    (0, b""),
                    (0, pack_control(bye=True)),
                    (1, pack_array([b"b.x", FORGED])),
                    (0, pack_control(live=[], refused={1: "no", 2: "no"}, paths=1)),
                )
            )
            head = head_start(key, MESSAGES if count else CONTROL, other.origin, epoch)
            self.xpub.send(head + head_end(sequence, count) + body, NOBLOCK)
            self.world.mechanisms["member: forged"] += 1


class SecureWorld(World):
    """A run in which everybody has a key, and one few rights."""

    has_stranger = True

    def __init__(self, seed, faults=None, mechanisms=None):
        self.asked, self.has_changed = Counter(), False
        self._rights = self._make_rights(MAY_NOT)
        self.member_random = Random(seed + 9)
        super().__init__(seed, faults, mechanisms)
        self.member = Member(self, MEMBER)
        self.member_publisher = MemberPublisher(self, PUBLISHES, binds=[PLACE], drops=True, mark=1000)
        # A name is the first one's who uses it, also when a publisher has forgotten whose it was.
        lives = {one.name for one in self.publishers}
        self.faults = [
            fault._replace(kind="freeze")
            if fault.kind in ("kill", "close") and lives & set(fault.who)
            else fault
            for fault in self.faults
        ]

    def _make_rights(self, *denied):
        users = {"member": User("member", (key_of_host(MEMBER),), rules=tuple(_rules(*denied)))}
        return Rights(AnyKey(), Asked("allow", users, self.asked, denied))

    def _change(self):
        """Have the member have fewer rights from now on."""
        self._rights, self.has_changed = self._make_rights(MAY_NOT, LATER), True

    def _check_changed(self):
        for publisher in self.publishers:
            if publisher.is_alive and not publisher.is_frozen:
                check(publisher.revoked_at is not None, "{} goes by rights of before", publisher.name)

    def _make_processes(self, random):
        super()._make_processes(random)
        for publisher in self.publishers[:2]:
            # Whoever is heard by a proxy has its key, and cannot have another one as well.
            publisher.connects = []
        for subscriber in self.subscribers:
            subscriber.endpoints = [*subscriber.endpoints, PLACE]

    def key_of(self, number, host):
        """Return the key at the other end of a connection."""
        (other,) = self.network.ends[number] - {host}
        return key_of_host(other)

    def has_lost_rights(self, peer):
        return peer.key == key_of_host(MEMBER)

    def access_of(self, publisher):
        return Access(lambda: self._rights, "nats")

    def publish_access_of(self, subscriber):
        return PublishAccess(lambda: self._rights, subscriber.decoder.stats)

    def receiver_of(self, publisher):
        receive = publisher.context.backend.recv_named

        def receive_with_key(socket, flags):
            frame, peer = receive(socket, flags)
            if peer is not None:
                peer = Peer(peer.descriptor, peer.inode, self.key_of(peer.descriptor, publisher.name))
            return frame, peer

        return receive_with_key

    def run(self):
        call_at, uniform = self.network.call_at, self.member_random.uniform
        changes_at = uniform(1.0, BUSY)
        call_at(changes_at, self._change)
        for process in (self.member, self.member_publisher):
            call_at(uniform(0.0, 0.5), process.start)
        for _ in range(ACTS):
            call_at(uniform(0.1, BUSY), partial(self.member.act))
            call_at(uniform(0.1, BUSY), partial(self.member_publisher.act))
        super().run()
        check_prefixes()
        self._check_changed()
        again = max(self.asked.values(), default=0)
        lives = sum(one.life for one in self.publishers) + self.member_publisher.life
        check(again <= lives, "permissions were asked the same {} times", again)
        for ledger in self.oracle.ledgers:
            check(not ledger.decoder.stats.contradictions, "{}: somebody is contradicted", ledger.name)
            self.mechanisms["member: denied as a publisher"] += ledger.decoder.stats.denied
        for publisher in self.publishers:
            self.mechanisms["member: denied as a subscriber"] += publisher.stats.denied
        return self

    def _end_all(self):
        self.member.kill()
        self.member_publisher.kill()
        super()._end_all()


_VERDICTS = {}
"""What was decided, as the same is asked in each run."""


class Asked(Permissions):
    """Permissions that count what they are asked: each publisher remembers what it was told."""

    def __init__(self, default, users, counter, denied):
        super().__init__(default, users)
        self._counter, self._denied = counter, denied

    def decide(self, user, action, asked, group=None):
        if user is None:
            return super().decide(user, action, asked, group)
        self._counter[id(self), user.name, action, asked, group] += 1
        question = self._denied, action, asked, group
        verdict = _VERDICTS.get(question)
        if verdict is None:
            verdict = _VERDICTS[question] = super().decide(user, action, asked, group)
        return verdict


class AnyKey:
    """All keys that are trusted: those of all hosts."""

    def __contains__(self, key):
        return key != ""
