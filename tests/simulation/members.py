"""Runs of nodes with keys, of which one has few rights: it is to get nothing else, and to inject nothing."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import chain
from random import Random

import msgpack
import zmq

import oz
from oz.configuration.settings import DEFINITIONS
from oz.protocol.node.presence import local_origin, network_origin, presence_pattern, to_text
from oz.protocol.node.reserved_subjects import ADVISORY, INBOX, INTEREST, NAMING, OWN
from oz.security.identity import make_uuid_of
from oz.testing.context import Context
from oz.testing.nodes import VirtualNode
from oz.testing.places import VirtualProcess
from oz.transport.node.opening import node_settings
from oz.transport.security import credentials_of
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array, pack_control
from oz.wire.codec import Introduction
from oz.wire.keys import ID_SIZE, STREAM, Declaration, Declared, pattern_key
from simulation.ledger import check
from simulation.nodes import NAMES, NodeWorld
from simulation.processes import NOBLOCK
from simulation.rights import ASK, CLOSED, MEMBER, OPEN, keyring, security_of

FORGED, IMPOSTOR = "forged", "forged by another"
"""What the member says, wherever it may and where it may not; and in the names of others."""

SECRET = re.compile(rb"(news\.[xyz]|open\.secret|question) [0-9]")
"""What payloads hold that the member may not have over a connection on which it asks for nothing else."""

ACTS = 24
"""What the member does in a run."""

CALM = 0.5
"""The share of runs in which nothing else goes wrong."""

CONTRADICTS = 0.3
"""The share of runs in which the member contradicts itself too, so that its messages may be doubted."""

SOON = 0.25
"""Virtual seconds in which what is refused is counted, where nothing goes wrong."""

LAST_EPOCH = 2**32 - 1

WANTED = (
    ("news.x", "nats"), ("news.*", "nats"), (">", "nats"), ("open.*", "nats"), (CLOSED, "nats"),
    ("svc.>", "nats"), ("news.#", "rv"), (r"n[a-z.]*", "regex"), ("news*", "redis"), ("#", "mqtt"),
    (f"{INBOX}>", "nats"), (f"{OWN}>", "nats"), (f"{NAMING}>", "nats"), (r"_.*", "regex"),
    (r"(_INBOX|x)\..*", "regex"),
)  # fmt: skip
"""Patterns that it may not subscribe to."""

PREFIXES = b"", b"n", b"news.", b"open.", b"open.s", b"svc.desk", b"_INBOX.", b"_", b"_OZ.NAMING."
"""Plain subscriptions that it may not have."""


class Member:
    """A node that does what its engine can, and plain sockets beside it that say whatever it likes.

    Attributes:
        heard: what it has received.
        inbox: what its inboxes begin with.
        contradicts: it also says in its own name what contradicts what it said before.
    """

    def __init__(self, world):
        self._world, self._random = world, Random(world.seed + 9)
        place = VirtualProcess(world.network, MEMBER)
        security = security_of(MEMBER)
        self._credentials = credentials_of(security)
        defaults = {one.name: one.default() for one in DEFINITIONS} | {"name": MEMBER}
        uuid = make_uuid_of(security.public_key, world.random_bytes)
        settings = replace(node_settings(**defaults, echo=False, security=security), uuid=uuid)
        self._shell = VirtualNode(settings, place.kinds)
        self._engine = self._shell.engine
        self._context = Context(world.network, MEMBER)
        self._lines, self._asked_for = {}, set()
        self.inbox = self._engine.requests.prefix
        self.heard, self.contradicts = [], self._random.random() < CONTRADICTS

    async def start(self):
        await self._shell.start()
        self._ask_for(OPEN)
        self._ask_for(ASK, handler=self._answer)

    async def close(self):
        self.read_lines()
        self._context.destroy(0)
        await self._shell.close(drain=False, timeout=1.0)

    def act(self):
        """Do something, once it knows all others; return how often that is refused at least."""
        others = [one for one in self._engine.membership.up if one.name in NAMES]
        if len(others) < len(NAMES) or not self._streams():
            return 0
        acts = (
            self._say_what_is_denied, self._say_what_is_granted, self._ask, self._want, self._join,
            self._pretend, self._introduce, self._forge, self._spoil, self._listen, self._speak_for_others,
        )  # fmt: skip
        act = self._random.choice(acts)
        self._world.mechanisms[f"node member: {act.__name__[1:]}"] += 1
        return act(self._random.choice(others)) or 0

    # by its engine ---------------------------------------------------------------------------------------

    def _ask_for(self, text, dialect="nats", handler=None, group=None):
        sub, pattern = self._engine.sockets.sub, oz.compile(text, dialect)
        self._shell.call(lambda: sub.subscribe(pattern, handler or self.heard.append, group=group))

    def _say(self, subject, value=FORGED):
        engine = self._engine.sockets.main.engine
        engine.sender.publish(engine.socket, subject, value)

    def _answer(self, message):
        """Answer what another was asked: who reads that knows where the answer is waited for."""
        self.heard.append(message)
        if message.reply_to and not message.reply_to.startswith(self.inbox):
            self._world.mechanisms["node member: answers"] += 1
            self._say(message.reply_to)

    def _say_what_is_denied(self, other):
        subject, by = self._random.choice(
            (
                *((one, len(NAMES)) for one in ("news.x", "news.z", CLOSED)),
                (f"svc.{other.name}", 1),
                (f"{INBOX}{other.uuid.hex()}.1{'7' * 39}", 1),
                (f"{ADVISORY}LOST", 0),
                (f"{INTEREST}{other.uuid.hex()}", 0),
            )
        )
        self._say(subject)
        return by

    def _say_what_is_granted(self, _):
        self._world.granted += 1
        self._say(OPEN)

    def _ask(self, other):
        """Ask where it may not, or have another get the answer."""
        own, theirs = self.inbox, f"{INBOX}{other.uuid.hex()}."
        subject, inbox = self._random.choice(((f"svc.{other.name}", own), (ASK, theirs), (ASK, "news.x")))
        steps = self._engine.sockets.main.send_request(subject, FORGED, None, None, f"{inbox}1{'7' * 39}")
        for _ in steps or ():
            pass
        return 1

    def _want(self, other):
        """Subscribe to what it may not; what it asks for once more is not declared again."""
        text, dialect = self._random.choice((*WANTED, (f"{INBOX}{other.uuid.hex()}.>", "nats")))
        is_new = (text, dialect) not in self._asked_for
        self._asked_for.add((text, dialect))
        self._ask_for(text, dialect)
        return len(NAMES) * is_new

    def _join(self, _):
        """Join a queue group whose messages it may read, but not take from others."""
        is_new = ASK not in self._asked_for
        self._asked_for.add(ASK)
        self._ask_for(ASK, group="workers")
        return len(NAMES) * is_new

    def _pretend(self, other):
        """Announce another's presence, or that of somebody who is not there, as its own."""
        own = self._engine.sockets.announcement
        key = self._random.choice((other.key, own.key))
        uuid = self._random.choice((other.uuid, make_uuid_of(other.key, self._world.random_bytes)))
        lie = replace(self._random.choice((own, other)), uuid=uuid, key=key)
        self._ask_for(str(presence_pattern(lie).text))
        return len(NAMES)

    def _introduce(self, other):
        """Tell somebody that another is where it listens itself."""
        own = self._engine.sockets.announcement
        told = replace(other, local_endpoint=own.local_endpoint, key=own.key)
        someone = self._random.choice([one for one in self._engine.membership.up if one.name in NAMES])
        self._say(f"{NAMING}{someone.uuid.hex()}", Introduction(to_text(told)))
        return 1

    # frames ----------------------------------------------------------------------------------------------

    def _streams(self):
        """Return the streams of others that it knows, of which each of its publishers is told."""
        return [one for one in self._engine.sockets.main.streams() if one.listeners]

    def _frame(self, origin, epoch, sequence):
        """Make a frame that a publisher might send: it says who it is not, unless it is its own."""
        said = FORGED if origin == local_origin(self._engine.settings.uuid) else IMPOSTOR
        key = self._random.choice(self._streams()).key
        count, body = self._random.choice(
            (
                (0, b""),
                (0, pack_control(bye=True)),
                (1, pack_array([OPEN.encode(), msgpack.packb(said)])),
                (0, pack_control(live=[], refused={1: "no", 2: "no"}, paths=1)),
            )
        )
        return (
            head_start(key, MESSAGES if count else CONTROL, origin, epoch) + head_end(sequence, count) + body
        )

    def _send(self, frame):
        self._engine.sockets.main.engine.socket.send(frame, NOBLOCK)

    def _forge(self, other):
        """Speak in the name of another's publisher."""
        origin = self._random.choice((local_origin, network_origin))(other.uuid)
        epoch, sequence = self._random.choice((0, 1, LAST_EPOCH)), self._random.choice((0, 3, 10**6, 10**15))
        self._send(self._frame(origin, epoch, sequence))
        return 1

    def _spoil(self, other):
        """Send a frame in its own name or another's of which something is changed, or cut off."""
        uuid = self._engine.settings.uuid if self.contradicts else other.uuid
        frame = bytearray(self._frame(local_origin(uuid), 1, 1))
        place = self._random.randrange(len(frame))
        if self._random.random() < 0.3:
            del frame[place:]
        else:
            frame[place] = self._random.randrange(256)
        self._send(bytes(frame))

    # keys of ZeroMQ's, by connections of its own ---------------------------------------------------------

    def _line(self, other):
        line = self._lines.get(other.uuid)
        if line is None:
            line = self._lines[other.uuid] = self._context.socket(zmq.XSUB)
            self._credentials.call(line, other.local_endpoint)
            line.connect(other.local_endpoint)
        return line

    def _tell(self, other, key, *, comes=True):
        # Not as an XSUB does, which takes back only what it has asked for itself.
        self._line(other)._behaviour._send_to_all(((b"\1" if comes else b"\0") + key,))

    def _listen(self, other):
        """Subscribe as any socket of ZeroMQ's does."""
        has_line = other.uuid in self._lines
        key = self._random.choice((*PREFIXES, pattern_key(Declared(1, b"news.*")), OPEN.encode()))
        self._tell(other, key)
        return has_line and key != OPEN.encode()

    def _speak_for_others(self, other):
        """Ask for a stream of another's, or end it, or declare something on it.

        A name is the first one's who uses it, also when a publisher has forgotten whose it was.
        """
        if self._world.faults:
            return
        key = self._random.choice(self._streams()).key
        if not key.startswith(STREAM):
            return
        name, number = key[len(STREAM) :][:ID_SIZE], self._random.choice((1, 2, 9))
        declared = Declared(1, b"none.x")
        said = self._random.choice(
            (
                key,
                Declaration(name, number, is_closing=True).encode(),
                Declaration(name, number, patterns=(declared,)).encode(),
            )
        )
        self._tell(other, said, comes=self._random.random() < 0.7)

    def read_lines(self):
        """Look at what has come by these connections."""
        for line in self._lines.values():
            while line.has_in():
                frames = line.recv_multipart(NOBLOCK)
                self._world.mechanisms["node member: got something"] += 1
                check(not SECRET.search(b"".join(frames)), "the member was given {}", frames)


class MemberWorld(NodeWorld):
    """One run: three nodes that ask each other and tell each other news, and a member with few rights.

    Attributes:
        granted: messages of the member that all may have.
    """

    asked = (*NodeWorld.asked, ASK)
    told = (*NodeWorld.told, OPEN, CLOSED)
    kinds = {"cut": 4, "stall": 3, "half_open": 2, "kill": 2, "close": 2}  # noqa: RUF012
    other = MEMBER

    def __init__(self, seed, faults=None, mechanisms=None):
        is_calm = faults is None and Random(seed + 5).random() < CALM
        super().__init__(seed, [] if is_calm else faults, mechanisms)
        self.granted, self._foreign = 0, defaultdict(list)

    async def _begin(self):
        self.member = Member(self)
        await self.member.start()
        for name in NAMES:
            await self._start(name)
        await asyncio.gather(*(node.wait_for_peers(3, timeout=5.0) for node in self.nodes.values()))
        await asyncio.gather(*(node.wait_ready(5.0) for node in self.nodes.values()))

    def _jobs(self):
        return [*super()._jobs(), self._act()]

    def _make_node(self, name):
        return self.bus.node(name, security=security_of(name))

    async def _start(self, name):
        node = await super()._start(name)
        for subject in (OPEN, CLOSED):
            node.subscribe(subject, handler=partial(self._hear, node))
        return node

    def _hear(self, node, message):
        if FORGED in message.payload:
            self._foreign[node].append((message.subject, message.payload))
        else:
            super()._hear(node, message)

    async def _act(self):
        for _ in range(ACTS):
            before, least = self._refused(), self.member.act()
            await asyncio.sleep(SOON)
            self.member.read_lines()
            counted = self._refused() - before
            self.mechanisms["node member: refused"] += counted
            if not (self.faults or self.member.contradicts):
                check(counted >= least, "{} of {} are counted", counted, least)

    def _refused(self):
        """Count what nodes have refused."""
        stats = [node.stats for node in self.nodes.values()]
        return sum(
            one.denied + one.refused_introductions + one.refused_announcements + one.refused_replies
            for one in stats
        )  # fmt: skip

    async def _be_ready(self, node):
        try:
            await super()._be_ready(node)
        except oz.Timeout as error:
            # An origin that contradicts itself is not believed, nor are its answers.
            missing = str(error).partition(": ")[2].split("; ")
            is_its = all(one.startswith(MEMBER) for one in missing)
            check(self.member.contradicts and is_its, "{}: {}", node.announcement.name, error)

    async def _settle(self):
        await super()._settle()
        await self.member.close()

    def _names_of(self, peers):
        """Return who some peers are, by their keys; of the member there may be any number, or none."""
        ring = keyring()
        return [name for one in peers for name in NAMES if one.key == ring.public(name)]

    async def _ask(self):
        node, subject = self.nodes[self.random.choice(NAMES)], self.random.choice(self.asked)
        await self._request(node, subject, must_succeed=not self.faults)

    def _check_news(self):
        super()._check_news()
        own = self.member.inbox
        for message in self.member.heard:
            is_its = message.subject in (OPEN, ASK) or message.subject.startswith(own)
            check(is_its, "the member was given {}", message)
        check(not self.served[FORGED], "{} requests of the member were handled", self.served[FORGED])
        for subject, payload in chain(*self._foreign.values()):
            # Of what it says in its own name something may be changed; in others' it says more.
            may = subject == OPEN and len(payload) <= len(FORGED)
            check(may, "{} was heard on {}", payload, subject)
        if not (self.faults or self.member.contradicts):
            self._check_calm()

    def _check_calm(self):
        """What others say is whole where nothing else goes wrong, and so is what the member may say."""
        for node, heard in self.heard.items():
            name, stats = node.announcement.name, node.stats
            whole = sorted(number for _, number in heard) == sorted(self.published)
            check(whole, "{} has not heard all news, or more", name)
            check(len(self._foreign[node]) == self.granted, "{} has not heard all of the member", name)
            check(not (stats.lost or stats.contradictions), "{} counts what was not: {}", name, stats)
        self.mechanisms["node member: calm"] += 1
