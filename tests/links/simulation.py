"""Seeded schedules of sessions and links over modelled connections.

`python -m links.simulation SEED` (in `tests/`) runs one schedule and prints its statistics; with `--trace` it
prints each action.
"""

import random
import sys
import time
from collections import Counter
from unittest.mock import patch

import oz
from links.ledger import Ledger, Violation
from links.network import Handle, Listener, cut
from oz.publisher.last_values import LastValues
from oz.publisher.routing import Interest
from oz.publisher.session import Session, Settings, Stream
from oz.publisher.sessions import Sessions
from oz.subscriber.link import LIVE, Gap, Link, ListeningClock, Messages, Replace
from oz.subscriber.subscriptions import Subscriptions
from oz.wire.links import DIRECT, SID, UNKNOWN_EPOCH, StreamOptions, encode_body

SETTINGS = Settings(
    window=6, window_bytes=1_500, pending_bytes=4_000, total_bytes=9_000, high_water_mark=12,
    joined_bytes=120, batch=4, body_bytes=600, alone_bytes=200, largest_frame=10_000, resume_seconds=30.0,
)  # fmt: skip
LARGEST_FRAME = 700
LARGEST_MESSAGE = 1_000
HALF_OPEN_SECONDS = 10.0

PLAIN = [
    StreamOptions(),
    StreamOptions(overflow="drop_newest", max_pending=5),
    StreamOptions(overflow="drop_oldest", max_pending=5),
    StreamOptions(overflow="conflate", max_pending=4),
    StreamOptions(handled=True),
]
GROUPS = {
    "g1": StreamOptions("g1", "round_robin", None, 1_000, True, True, 4),
    "g2": StreamOptions("g2", "sticky", None, 1_000, True, True),
    "g3": StreamOptions("g3", "failover", None, 1_000, True, True, 3),
    "q": StreamOptions("q", "round_robin", "drop_oldest", 6),
}
PATTERNS = [oz.compile(text) for text in ("a.*", "a.1", "b.>", ">", "*.2")]
OF_GROUP = {name: oz.compile(f"{name}.>") for name in GROUPS}
SUBJECTS = [f"{head}.{tail}" for head in ("a", "b", *GROUPS) for tail in range(3)]


class PublisherProcess:
    """A publisher with its listening socket."""

    def __init__(self, world):
        self.world = world
        self.listener = Listener(world.choose, world.choose.choice((9, 30, 60)))
        self.sessions = Sessions(
            world.new_id(), SETTINGS, world.new_id, last_values=LastValues(subjects=5, size=2_000)
        )
        self.is_closing = False

    def read(self, count):
        listener, choose = self.listener, self.world.choose
        waiting = [one for one in listener.connections if one.to_publisher and not one.is_late]
        while waiting and count > 0:
            connection = choose.choice(waiting) if len(waiting) > 1 else waiting[0]
            self.sessions.on_frame(connection.name, connection.to_publisher.popleft(), self.world.now)
            count -= 1
            if not connection.to_publisher:
                waiting.remove(connection)

    def pump(self):
        sessions, send = self.sessions, self.listener.send
        while sessions.replies:
            send(*sessions.replies.popleft())
        blocked = []
        while sessions.ready:
            session = next(iter(sessions.ready))
            del sessions.ready[session]
            while (frames := session.next_frames()) is not None:
                for frame in frames:
                    result = send(session.route, frame)
                    if result != "ok":
                        break
                if result == "ok":
                    session.taken()
                elif result == "EAGAIN":
                    self.world.statistics["EAGAIN"] += 1
                    blocked.append(session)
                    break
                else:
                    sessions.unreachable(session, self.world.now)
                    break
        for session in blocked:
            sessions.ready[session] = None

    def step(self, reads, work):
        self.read(reads)
        self.sessions.work(work)
        self.sessions.tick(self.world.now)
        self.pump()
        self.world.check_groups()


class SubscriberProcess:
    """A subscriber with one link."""

    def __init__(self, world):
        self.world = world
        self.subscriptions = Subscriptions()
        self.link = Link(
            world.new_id(), self.subscriptions, world.new_id, largest_frame=LARGEST_FRAME, largest_window=64
        )
        self.clock = ListeningClock()
        self.is_busy = False
        self.active = []
        self.working = []
        self.seen = set()
        self.received = Counter()
        self.handle = None
        self.has_ever_connected = False

    @property
    def listened(self):
        return self.clock.time(self.world.now)

    def connect(self):
        if self.handle is not None:
            self.world.disconnect(self.handle)
        self.handle = Handle(b"\x01" + self.world.choose.randbytes(15))
        self.link.connect(self.listened)
        self.pump()

    def pump(self):
        link, outgoing, now = self.link, self.handle.outgoing, self.world.now
        while len(outgoing) < 12 and (frame := link.next_frame()) is not None:
            outgoing.append(frame)
            link.taken(now)

    def step(self, reads):
        if self.is_busy:
            return
        clock, link, now = self.clock, self.link, self.world.now
        clock.enter()
        incoming = self.handle.incoming
        has_read = bool(incoming) or bool(self.working)
        while reads > 0 and incoming:
            reads -= 1
            clock.read(now)
            if self.on_frame(incoming.popleft()):
                break
        incoming = self.handle.incoming
        if not incoming:
            clock.empty(now)
            self.effects(link.epoch, link.tick(self.listened))
            if has_read:
                # `receive` woke up and is about to wait again.
                link.before_wait(now)
        self.pump()

    def on_frame(self, frame):
        link = self.link
        epoch, unwanted = link.epoch, link.unwanted
        before = (frame[2] << 8) + frame[3] if frame and frame[0] == 5 else 0
        effects = link.on_frame(frame, self.listened)
        self.world.trace(
            lambda: f"  frame {frame[:1].hex()} {link.state} expected={link.expected} -> {effects}"
        )
        is_replaced = self.effects(epoch, effects)
        if link.unwanted != unwanted:
            self.world.ledger.accounts[link.epoch][before].unwanted += link.unwanted - unwanted
            self.world.statistics["withdrawn"] += link.unwanted - unwanted
        return is_replaced

    def effects(self, epoch, effects):
        is_replaced = False
        for effect in effects:
            if isinstance(effect, Messages):
                self.deliver(effect)
            elif isinstance(effect, Gap):
                self.gap(epoch, effect)
            elif isinstance(effect, Replace):
                self.world.statistics["replaced"] += 1
                is_replaced = True
        if is_replaced:
            self.connect()
        return is_replaced

    def gap(self, epoch, gap):
        world = self.world
        world.statistics[f"gap {gap.reason}"] += 1
        if gap.count is None:
            world.check_unknown_gap(self, epoch, gap)
            world.ledger.lost_unknown.add(epoch)
        elif gap.reason == "dropped":
            world.ledger.accounts[epoch][gap.stream].dropped += gap.count
        else:
            world.ledger.accounts[epoch][gap.stream].gaps += gap.count

    def deliver(self, messages):
        link, world = self.link, self.world
        epoch, stream = link.epoch, messages.stream
        if stream == DIRECT:
            self.deliver_direct(messages)
            return
        options = self.subscriptions.options_of(stream)
        account = world.ledger.accounts[epoch][stream]
        if options.overflow != "conflate" and not options.redeliver and link.state == LIVE:
            place = account.places.get(messages.positions[0])
            if place is not None and account.seen not in place:
                raise Violation(f"stream {stream}: message {place} arrives after {account.seen} messages")
        flat = messages.flat
        sequence = messages.sequence
        for index, position in enumerate(messages.positions):
            subject, payload, extras = flat[3 * index : 3 * index + 3]
            matching = self.subscriptions.match(stream, subject, extras)
            sid = extras.get(SID) if extras else None
            key = (link.origin, stream, position, sid, sid and epoch)
            if not messages.is_redelivered:
                if key in self.seen:
                    raise Violation(f"message {key} arrives twice and is not marked as redelivered")
                if sid is None:
                    if position <= account.last_position:
                        raise Violation(f"stream {stream}: position {position} after {account.last_position}")
                    account.last_position = position
            if payload[: len(subject)] != subject:
                raise Violation(f"the payload {payload!r} is of another subject than {subject!r}")
            self.seen.add(key)
            if not matching:
                account.unwanted += 1
                world.statistics["unwanted"] += 1
                if options.handled:
                    link.abandon(epoch, stream, sequence + index)
                continue
            account.delivered += 1
            world.statistics["delivered"] += 1
            world.statistics["redelivered"] += messages.is_redelivered
            for one in matching:
                self.received[one.sid, payload] += 1
            if options.handled:
                self.working.append((epoch, stream, sequence + index, options.group, position, matching))

    def deliver_direct(self, messages):
        """Check that direct messages arrive once and in order: each has its number in the epoch."""
        account = self.world.ledger.accounts[self.link.epoch][DIRECT]
        for payload in messages.flat[1::3]:
            if int(payload.split()[0]) != account.delivered:
                raise Violation(f"direct message {payload[:20]!r} arrives after {account.delivered} others")
            account.delivered += 1
            self.world.statistics["direct"] += 1

    def finish(self, count):
        """Return from up to `count` handlers, in any order."""
        choose = self.world.choose
        for _ in range(min(count, len(self.working))):
            at = choose.randrange(len(self.working))
            self.working[at], self.working[-1] = self.working[-1], self.working[at]
            epoch, stream, sequence, group, position, _ = self.working.pop()
            self.link.handled(epoch, stream, sequence)
            if group is not None and self.link.origin == self.world.origin:
                self.world.ledger.handled(group, position)

    def subscribe(self, pattern, options, last_value=False):
        self.active.append(self.subscriptions.add(pattern, options, last_value=last_value))
        self.link.declare()
        self.pump()

    def unsubscribe(self, one):
        self.active.remove(one)
        self.subscriptions.remove(one)
        kept = []
        for work in self.working:
            epoch, stream, sequence, _, _, matching = work
            if any(other.is_active for other in matching):
                kept.append(work)
            else:
                self.link.abandon(epoch, stream, sequence)
        self.working = kept
        self.link.declare()
        self.pump()


class World:
    """One schedule."""

    def __init__(self, seed, trace=False):
        self.seed = seed
        self.choose = random.Random(seed)
        self.now = 1_000.0
        self.ledger = Ledger()
        self.statistics = self.ledger.statistics
        self._trace = trace
        self._serial = 0
        self.dying = []
        self.publisher = PublisherProcess(self)
        self.origin = self.publisher.sessions.origin
        self.subscribers = []
        self.is_calm = False

    def trace(self, text):
        if self._trace:
            print(f"{self.now:.3f} {text()}")

    def new_id(self):
        self._serial += 1
        return self._serial.to_bytes(16, "big")

    # processes

    def start_subscriber(self):
        one = SubscriberProcess(self)
        one.connect()
        self.subscribers.append(one)
        return one

    def disconnect(self, handle):
        handle.is_closed = True
        connection = handle.connection
        handle.outgoing.clear()
        if connection is not None:
            loses = connection.loses_up
            cut(connection)
            if self.publisher and not loses and self.choose.random() < 0.7:
                self.publisher.listener.notice(connection)

    def kill_subscriber(self, one, is_graceful):
        if is_graceful:
            one.link.close()
            one.pump()
            if one.handle.connection is not None:
                one.handle.connection.transfer(100)
        connection = one.handle.connection
        self.disconnect(one.handle)
        if connection is not None and self.publisher:
            self.publisher.listener.notice(connection)
        self.subscribers.remove(one)
        self.ledger.lost_unknown.add(one.link.epoch)

    def kill_publisher(self, is_graceful):
        publisher = self.publisher
        if is_graceful:
            publisher.sessions.close()
            publisher.pump()
            for connection in publisher.listener.connections:
                connection.transfer(1_000)
        for session in publisher.sessions.by_id.values():
            self.ledger.legitimate_ends.add(session.epoch)
        for connection in publisher.listener.connections:
            cut(connection)
        for group in GROUPS:
            self.ledger.excuse(group)
        self.publisher = None
        self.origin = None

    def start_publisher(self):
        self.publisher = PublisherProcess(self)
        self.origin = self.publisher.sessions.origin

    # network

    def connections(self):
        return [one for one in self.publisher.listener.connections if one.is_alive] if self.publisher else []

    def reconnect(self):
        if self.publisher is None:
            return
        for one in self.subscribers:
            handle = one.handle
            if handle.connection is None and (self.is_calm or self.choose.random() < 0.7):
                self.publisher.listener.accept(handle)

    def expire_half_open(self):
        for one in self.connections():
            since = one.half_open_since
            if since is not None and self.now - since > HALF_OPEN_SECONDS:
                cut(one)
                self.publisher.listener.notice(one)

    # actions

    def publish(self, count=1):
        choose, sessions = self.choose, self.publisher.sessions
        for _ in range(count):
            subject = choose.choice(SUBJECTS)
            size = choose.choice((0, 0, 0, 10, 60, 250)) if choose.random() < 0.95 else LARGEST_MESSAGE
            self._serial += 1
            payload = f"{subject} {self._serial} ".encode() + b"x" * size
            extras = {"headers": {"n": self._serial}} if choose.random() < 0.2 else None
            sessions.publish(subject, payload, extras)
            self.statistics["published"] += 1
        if choose.random() < 0.8:
            sessions.flush()
        self.publisher.pump()

    def send_direct(self):
        choose, sessions = self.choose, self.publisher.sessions
        if sessions.by_id:
            session = choose.choice(list(sessions.by_id.values()))
            for _ in range(choose.randrange(1, 9)):
                number = self.ledger.accounts[session.epoch][DIRECT].offered
                payload = b"%d " % number + b"x" * choose.choice((0, 10, 250))
                is_sent = sessions.send_direct(session, encode_body([b"direct", payload, None]))
                self.statistics["direct refused"] += not is_sent
            self.publisher.pump()

    def change_interest(self, one):
        choose = self.choose
        if one.active and (len(one.active) > 4 or choose.random() < 0.4):
            one.unsubscribe(choose.choice(one.active))
        elif choose.random() < 0.45:
            name = choose.choice(list(GROUPS))
            if not any(other.options.group == name for other in one.active):
                one.subscribe(OF_GROUP[name], GROUPS[name])
        else:
            one.subscribe(choose.choice(PATTERNS), choose.choice(PLAIN), choose.random() < 0.2)

    def fault(self):
        choose = self.choose
        kind = choose.random()
        connections = self.connections()
        connection = choose.choice(connections) if connections else None
        one = choose.choice(self.subscribers) if self.subscribers else None
        if kind < 0.30 and connection:
            self.trace(lambda: f"cut {connection.name.hex()}")
            connection.transfer(choose.randrange(4))
            cut(connection)
            connection.is_late = choose.random() < 0.5
            if choose.random() < 0.6:
                self.publisher.listener.notice(connection)
        elif kind < 0.48 and connection:
            direction = choose.randrange(3)
            self.trace(lambda: f"half-open {connection.name.hex()} {direction}")
            connection.loses_up |= direction != 0
            connection.loses_down |= direction != 1
            connection.half_open_since = connection.half_open_since or self.now
        elif kind < 0.56 and connection:
            connection.is_stalled = not connection.is_stalled
        elif kind < 0.64 and connection:
            connection.room = choose.randrange(4)
        elif kind < 0.67 and connection:
            connection.is_late = not connection.is_late
        elif kind < 0.72 and one and self.publisher:
            self.outlive(one)
        elif kind < 0.80 and one:
            one.is_busy = not one.is_busy
            if one.is_busy:
                one.clock.leave(self.now)
        elif kind < 0.83 and one:
            self.trace(lambda: "kill subscriber")
            self.kill_subscriber(one, is_graceful=choose.random() < 0.4)
            self.start_subscriber()
            self.change_interest(self.subscribers[-1])
        elif kind < 0.855 and self.publisher:
            self.trace(lambda: "kill publisher")
            self.kill_publisher(is_graceful=choose.random() < 0.4)
        elif kind < 0.93:
            self.advance(choose.uniform(0.5, 5.0))
        elif kind < 0.945:
            self.advance(choose.uniform(25.0, 40.0))
        elif connection:
            # The dialling side resets: libzmq connects again under the same handle at once.
            cut(connection)
            connection.is_late = choose.random() < 0.7
            self.publisher.listener.accept(connection.handle)

    def outlive(self, one):
        """Let a session end while frames of its connection are unread; the link connects again."""
        choose, connection = self.choose, one.handle.connection
        if connection is None or one.link.state != LIVE:
            return
        self.trace(lambda: "outlive")
        connection.transfer(50)
        one.step(50)
        connection.transfer(50)
        connection.is_late = True
        one.clock.leave(self.now)
        one.connect()
        self.publisher.listener.notice(connection)
        for seconds in (1.1, 1.1, 31.0, 1.1):
            self.advance(seconds)
            self.publisher.step(0, 0)
        one.is_busy = False
        fresh = self.publisher.listener.accept(one.handle)
        for _ in range(4):
            fresh.transfer(20)
            self.publisher.step(20, 10)
            fresh.transfer(20)
            one.step(20)
        self.publish(choose.randrange(4, 20))
        # Frames of the first connection arrive while the second one carries messages.
        connection.is_late = choose.random() < 0.3
        self.publisher.step(20, 0)
        if choose.random() < 0.7:
            cut(fresh)

    def advance(self, seconds):
        self.now += seconds
        if self.publisher is not None:
            self.expire_half_open()

    def flow(self):
        """Carry frames and let the processes run, each with some probability."""
        choose = self.choose
        self.reconnect()
        for connection in self.connections():
            if choose.random() < 0.7:
                connection.transfer(choose.randrange(1, 12))
            if connection.room < 100 and choose.random() < 0.3:
                connection.room = 10**6
        for one in self.subscribers:
            if choose.random() < 0.7:
                one.step(choose.randrange(1, 10))
            if one.working and choose.random() < 0.6:
                one.finish(choose.randrange(1, 6))
        if self.publisher:
            for connection in self.publisher.listener.connections:
                if not connection.is_alive and connection.is_late and choose.random() < 0.1:
                    connection.is_late = False
                if not connection.is_alive and connection.is_known and choose.random() < 0.3:
                    self.publisher.listener.notice(connection)
            if choose.random() < 0.8:
                self.publisher.step(choose.randrange(1, 10), choose.randrange(0, 4))

    def run(self, steps=70):
        choose = self.choose
        for _ in range(choose.randrange(2, 4)):
            one = self.start_subscriber()
            for _ in range(choose.randrange(1, 4)):
                self.change_interest(one)
        for step in range(steps):
            if self.publisher is None:
                if choose.random() < 0.3:
                    self.start_publisher()
            elif choose.random() < 0.6:
                self.publish(choose.randrange(1, 9))
            if self.publisher and choose.random() < 0.2:
                self.send_direct()
            if choose.random() < 0.12:
                self.change_interest(choose.choice(self.subscribers))
            if step > 3 and choose.random() < 0.22:
                self.fault()
            self.flow()
            self.advance(choose.choice((0.01, 0.03, 0.1, 0.4)))
            if self.publisher and step % 10 == 0:
                self.check_bounds()
        self.calm()
        self.converge()
        self.check_accounts()
        self.probe()

    # after the last fault

    def calm(self):
        """End all faults. A half-open connection ends by a reset, or by silence at the link."""
        self.is_calm = True
        if self.publisher is None:
            self.start_publisher()
        for connection in list(self.publisher.listener.connections):
            connection.is_stalled = connection.is_late = False
            connection.room = 10**6
            is_half_open = connection.loses_up or connection.loses_down
            # A link that has received nothing on a connection waits 10 s for WELCOME.
            is_slow = connection.loses_up or not self.has_heard(connection.handle)
            if connection.is_alive and is_half_open and (is_slow or self.choose.random() < 0.5):
                cut(connection)
            if not connection.is_alive and connection.is_known:
                self.publisher.listener.notice(connection)
        for one in self.subscribers:
            one.is_busy = False

    def has_heard(self, handle):
        return any(one.handle is handle and one.link.state == LIVE for one in self.subscribers)

    def calm_step(self):
        self.reconnect()
        for _ in range(2):
            for connection in self.connections():
                connection.transfer(100)
            for one in self.subscribers:
                one.step(100)
                one.finish(100)
            self.publisher.sessions.flush()
            self.publisher.step(100, 50)
        self.listener_cleanup()

    def listener_cleanup(self):
        listener = self.publisher.listener
        for connection in listener.connections:
            if not connection.is_alive and connection.is_known:
                listener.notice(connection)
        listener.forget()

    def converge(self):
        end = self.now + 10.0
        while True:
            self.calm_step()
            reason = self.unsettled()
            if reason is None:
                return
            if self.now >= end:
                raise Violation(f"no convergence within 10 s: {reason}")
            self.advance(0.1 if self.now + 9.5 < end else 0.25)

    def unsettled(self):
        sessions = self.publisher.sessions
        live = set()
        for number, one in enumerate(self.subscribers):
            link, connection = one.link, one.handle.connection
            if connection is None or connection.loses_down:
                return f"link {number} has a half-open connection"
            if link.state != LIVE:
                return f"link {number} is {link.state}"
            if not link.is_answered and one.subscriptions.revision:
                return f"link {number} has answer {link.answered} of {one.subscriptions.revision}"
            session = sessions.by_id.get(link.session)
            if session is None or not session.is_up:
                return f"link {number} has no session that is UP"
            live.add(session)
            if session.batches:
                return f"session {number} has {len(session.batches)} batches without acknowledgement"
            if any(stream.pending or stream.held for stream in session.streams.values()):
                return f"session {number} has messages in backlogs, or held"
            if one.working or link.next_frame() is not None:
                return f"subscriber {number} has handlers or frames to send"
            if any(
                sum(stream.drops) != link.drops.get(stream.number, 0) for stream in session.streams.values()
            ):
                return f"link {number} does not know all drops"
        return None

    # checks

    def check_bounds(self):
        for session in self.publisher.sessions.by_id.values():
            window = sum(batch.size for batch in session.batches)
            held = sum(b.size for s in session.streams.values() for b in s.held if b.is_acked)
            backlogs = [
                (getattr(w, "flags", 0), getattr(w, "body", w).size)
                for s in session.streams.values()
                for w in s.backlog
            ]
            backlog = sum(size for _, size in backlogs)
            conflated = sum(value[3] for s in session.streams.values() for value in s._conflated.values())
            if session.bytes != window + held + backlog + conflated or session.window_used != window:
                raise Violation(
                    f"{session.bytes} bytes: window {window}, held {held}, backlog {backlog + conflated}"
                )
            redelivered = (
                sum(size for flags, size in backlogs if flags)
                + sum(b.size for b in session.batches if b.flags & 1)
                + held
            )
            bound = SETTINGS.pending_bytes + SETTINGS.body_bytes + LARGEST_MESSAGE + redelivered
            if session.bytes > bound:
                raise Violation(f"a session keeps {session.bytes} bytes, the bound is {bound}")
            for stream in session.streams.values():
                if stream.number == DIRECT and stream.dropped:
                    raise Violation(f"{stream.dropped} direct messages were dropped")
                if stream.matched != stream.numbered + stream.pending + sum(stream.drops):
                    raise Violation(
                        f"stream {stream.number}: matched {stream.matched}, numbered {stream.numbered} + "
                        f"pending {stream.pending} + dropped {stream.drops}"
                    )

    def check_groups(self):
        groups = self.publisher.sessions.interest.groups
        for name, pending in self.ledger.group_open.items():
            if pending and name not in groups:
                self.ledger.excuse(name)

    def check_unknown_gap(self, one, epoch, gap):
        if epoch == UNKNOWN_EPOCH:
            raise Violation("Gap(None) without a known epoch")
        is_silent = gap.reason == "lost"
        if epoch not in self.ledger.legitimate_ends and not is_silent:
            raise Violation(
                f"Gap(None, {gap.reason!r}) although neither a restart nor resume_seconds ended the session"
            )

    def check_accounts(self):
        sessions = self.publisher.sessions
        for number, one in enumerate(self.subscribers):
            session = sessions.by_id[one.link.session]
            accounts = self.ledger.accounts[one.link.epoch]
            for stream in session.streams.values():
                account = accounts[stream.number]
                if stream.matched != account.seen:
                    raise Violation(
                        f"subscriber {number} {stream.number} {stream.options}: matched {stream.matched}, "
                        f"delivered {account.delivered} + gaps {account.gaps} + dropped {account.dropped} + "
                        f"unwanted {account.unwanted}"
                    )
                if stream.load:
                    raise Violation(
                        f"subscriber {number} stream {stream.number}: load {stream.load} of an idle member"
                    )
            if session.bytes:
                raise Violation(f"an idle session keeps {session.bytes} bytes")
        self.check_bounds()
        for _ in range(66):
            if not any(self.ledger.group_open.values()):
                break
            # Sessions of killed subscribers hold messages until they end: up to 30 s until a slow PING meets
            # the missing connection, then 30 s of `resume_seconds`.
            self.advance(1.0)
            self.calm_step()
        for session in sessions.by_id.values():
            for stream in session.streams.values():
                if stream.group is not None:
                    self.ledger.group_drops[stream.group.name] += sum(stream.drops)
        for name, pending in self.ledger.group_open.items():
            if len(pending) > self.ledger.group_drops[name]:
                raise Violation(
                    f"group {name} lost {len(pending)} messages, dropped {self.ledger.group_drops[name]}: "
                    f"{list(pending)[:10]}"
                )

    def probe(self):
        """Publish one message on each subject: each subscription must receive its messages."""
        sessions = self.publisher.sessions
        payloads = {}
        for subject in SUBJECTS:
            self._serial += 1
            payloads[subject] = f"{subject} probe {self._serial}".encode()
            sessions.publish(subject, payloads[subject])
            sessions.flush()
            self.calm_step()
            self.advance(0.05)
        self.calm_step()
        for subject, payload in payloads.items():
            for name, pattern in OF_GROUP.items():
                members = [
                    one.received[s.sid, payload] for one in self.subscribers for s in one.active
                    if s.options.group == name and s.pattern.matches(subject)
                ]  # fmt: skip
                # A sticky group may wait for a member that is DOWN.
                least = name != "g2"
                if members and not least <= sum(members) <= 1 and pattern.matches(subject):
                    raise Violation(f"group {name} received {sum(members)} copies of {payload!r}")
            for number, one in enumerate(self.subscribers):
                for s in one.active:
                    count = one.received[s.sid, payload]
                    if s.options.group is None and count != s.pattern.matches(subject):
                        raise Violation(
                            f"subscriber {number} received {payload!r} {count} times on {s.pattern.text}"
                        )


_offer, _end, _moved, _leave = Session.offer, Sessions.end, Stream.moved, Interest.leave


class Instruments:
    """Hooks of the oracle in the machines of a world."""

    def __init__(self, world):
        self.world = world

    def __enter__(self):
        ledger, world = self.world.ledger, self.world

        def offer(session, stream, body, flags=0):
            if not session.has_ended:
                ledger.offered(stream, body, flags)
            _offer(session, stream, body, flags)

        def end(sessions, session, now):
            if not session.has_ended:
                is_expired = session.clock_at is not None and now - session.clock_at > SETTINGS.resume_seconds
                if is_expired and not session.is_up:
                    ledger.legitimate_ends.add(session.epoch)
                world.trace(lambda: f"session {session.id.hex()} ends, expired={is_expired}")
            has_ended = session.has_ended
            _end(sessions, session, now)
            for stream in session.streams.values():
                if stream.group is not None and not has_ended:
                    ledger.group_drops[stream.group.name] += sum(stream.drops)

        def moved(stream, units):
            before = stream.matched
            _moved(stream, units)
            ledger.moved(stream.session.epoch, stream.number, before - stream.matched)

        def leave(interest, stream):
            _leave(interest, stream)
            if stream.group is not None and not stream.group.members:
                ledger.excuse(stream.group.name)

        self._patches = [
            patch.object(Session, "offer", offer),
            patch.object(Sessions, "end", end),
            patch.object(Stream, "moved", moved),
            patch.object(Interest, "leave", leave),
        ]
        for one in self._patches:
            one.start()
        return self

    def __exit__(self, *_):
        for one in self._patches:
            one.stop()


def run_seed(seed, trace=False):
    """Run one schedule and return its statistics.

    Raises:
        AssertionError: a promise was broken; the message says how to run the schedule again.
    """
    world = World(seed, trace)
    with Instruments(world):
        try:
            world.run()
        except Exception as error:
            error.add_note(f"replay: cd tests && python -m links.simulation {seed} --trace")
            raise
    return world.statistics


if __name__ == "__main__":
    began = time.process_time()
    print(dict(run_seed(int(sys.argv[1]), "--trace" in sys.argv)))
    print(f"{time.process_time() - began:.3f} s of processor time")
