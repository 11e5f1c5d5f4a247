"""Seeded schedules of nodes over modelled connections.

`python -m peers.simulation SEED` (in `tests/`) runs one schedule and prints its statistics;
`python -m peers.simulation FIRST COUNT` runs many.

The peers and requests are those of oz. Sessions and links are models: numbered messages of stream 0 that are sent
again after a HELLO, as in `oz.publisher.session` and `oz.subscriber.link`.
"""

import random
import sys
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

from links.network import Handle, Listener, cut
from oz.errors import NoResponders, PeerLost, Timeout
from oz.node import peers as machine
from oz.node.peers import UP, Peers
from oz.node.requests import Content, Ended, Requests, Send
from oz.publisher.groups import Group
from oz.wire.links import Card

STEP = 0.1
CHAOS_SECONDS, QUIET_SECONDS = 15.0, 10.0
TCP_GIVES_UP = 10.0
TIMEOUT = 8.0


class Violation(AssertionError):
    """A promise that a schedule broke."""


class Session:
    """Model of a publisher's session for one peer, and the member that a group sees."""

    def __init__(self, node, hello, route, epoch):
        self.member, self.id, self.epoch, self.subjects = node, hello.session, epoch, hello.subjects
        self.window, self.following = [], 0
        self.has_ended = False
        # What `Group` reads of a stream.
        self.session, self.load, self.prefetch = self, 0, 64
        self.resume(hello, route)

    def resume(self, hello, route):
        self.attempt, self.route, self.is_up = hello.attempt, route, True
        self.window = [message for message in self.window if message[0] >= hello.expected]
        self.unsent = list(self.window)

    def fits(self, hello):
        acked = self.window[0][0] if self.window else self.following
        return hello.epoch == self.epoch or (hello.epoch is None and acked == 0)

    def is_responsive(self, now):
        return self.is_up

    def offer(self, content):
        message = self.following, content
        self.following += 1
        self.window.append(message)
        self.unsent.append(message)


class Link:
    """Model of a subscriber's link to one peer."""

    def __init__(self, session):
        self.session, self.epoch, self.expected, self.attempt = session, None, 0, 0
        self.route, self.is_live = None, False


class Process:
    """One node."""

    def __init__(self, world, index, endpoint):
        self.world, self.index, self.endpoint = world, index, endpoint
        choose = world.choose
        self.id = choose.randbytes(16)
        card = Card(self.id, 0, "bus", f"node{index}", f"host{index}", 1, (endpoint,))
        self.peers = Peers(card, lambda: choose.randbytes(16), lost_after=5.0)
        self.requests = Requests(self)
        self.listener = Listener(choose, 10**6)
        self.handles, self.links, self.sessions = {}, {}, {}
        self.subjects = {f"only.{index}", f"shared.{index % 2}"}
        self.is_stopped_until = 0.0
        self.ping_at = world.now + 1.0
        self.replies = []
        self.group = Group("", "round_robin")
        self.names = {}

    # responders

    @property
    def is_greeting(self):
        return self.peers.is_greeting

    def pick(self, content, excluded, now):
        matching = [one for one in self.all_sessions(content) if one.member not in excluded]
        found = self.group.pick(matching, content.subject.encode(), now)
        return None if found is None else found.member

    def all_sessions(self, content):
        return [one for one in self.sessions.values() if content.subject in one.subjects]

    def all(self, content, now):
        return [one.member for one in self.all_sessions(content)]

    def name(self, node):
        return self.names.get(node, "?")

    # effects

    def send(self, route, frame):
        handle = self.handles.get(route)
        if handle is not None:
            handle.outgoing.append(frame)
        elif self.listener.send(route, frame) == "EHOSTUNREACH":
            for session in self.sessions.values():
                if session.route == route:
                    session.is_up = False
            self.apply(self.peers.on_unreachable(route, self.world.now))

    def greet(self, link):
        hello = SimpleNamespace(
            session=link.session, epoch=link.epoch, attempt=link.attempt, expected=link.expected,
            subjects=self.subjects,
        )  # fmt: skip
        link.hello_at = self.world.now
        self.send(link.route, ("HELLO", hello))

    def apply(self, effects):
        world = self.world
        for effect in effects:
            world.log(self, effect)
            world.statistics[type(effect).__name__] += 1
            if isinstance(effect, machine.Dial):
                handle = self.handles[effect.handle] = Handle(effect.handle)
                handle.endpoint = effect.endpoint
            elif isinstance(effect, machine.HangUp):
                handle = self.handles.pop(effect.handle)
                handle.is_closed = True
                if handle.connection is not None:
                    cut(handle.connection)
            elif isinstance(effect, machine.SendCard):
                self.send(effect.route, ("CARD", effect.card))
            elif isinstance(effect, machine.Greet):
                link = self.links.setdefault(effect.node, Link(world.choose.randbytes(16)))
                link.attempt += 1
                link.route, link.is_live = effect.route, False
                self.greet(link)
            elif isinstance(effect, machine.Suspend):
                session = self.sessions.get(effect.node)
                if session is not None and session.route == effect.route:
                    session.is_up = False
            elif isinstance(effect, machine.Introduce):
                if effect.node in self.sessions:
                    self.sessions[effect.node].offer(("INTRODUCE", effect.peers))
            elif isinstance(effect, machine.PeerUp):
                self.names[effect.card.node] = effect.card.name
                self.act(self.requests.changed(world.now))
            elif isinstance(effect, machine.End):
                self.end(effect.node)
            if isinstance(effect, machine.PeerGone | machine.PeerUp | machine.PeerSilent):
                world.check_event(self, effect)

    def end(self, node):
        self.links.pop(node, None)
        session = self.sessions.pop(node, None)
        if session is not None:
            session.has_ended = True
        self.lose(node)

    def lose(self, node):
        self.act(self.requests.peer_lost(node, self.world.now))
        for key, (_, _, many) in self.world.pending.items():
            if key[0] == self.id and self.world.held.get(key) == node and not many:
                raise Violation(f"request {key[1]} waits for a lost peer")

    def act(self, effects):
        for effect in effects:
            if isinstance(effect, Send):
                self.world.held[self.id, effect.number] = effect.node
                self.sessions[effect.node].offer(("REQUEST", effect.number, effect.content.subject))
            elif isinstance(effect, Ended):
                self.world.ended(self, effect.number, effect.error)

    # frames

    def read(self, route, frame):
        now, peers = self.world.now, self.peers
        if not frame:
            self.apply(peers.on_probe(route, now))
            return
        kind, *fields = frame
        if kind == "CARD":
            self.apply(peers.on_card(route, *fields, now))
            return
        peer = peers.peer_at(route)
        if peer is None:
            return
        node = peer.node
        if kind == "HELLO":
            self.on_hello(node, route, *fields)
        elif kind == "WELCOME":
            self.on_welcome(node, route, *fields)
        elif kind == "PING":
            link = self.links.get(node)
            if link is not None and link.is_live and link.route == route:
                self.send(route, ("ACK", link.expected))
        elif kind == "ACK":
            session = self.sessions.get(node)
            if session is not None and session.route == route:
                session.window = [message for message in session.window if message[0] >= fields[0]]
                self.apply(peers.on_answer(route, now))
        elif kind == "BYE":
            self.apply(peers.on_bye(route, now))
        else:
            self.on_message(node, route, *fields)

    def on_hello(self, node, route, hello):
        session = self.sessions.get(node)
        is_same = session is not None and session.id == hello.session
        is_repeated = is_same and (hello.attempt, route) == (session.attempt, session.route)
        if is_same and not is_repeated and hello.attempt <= session.attempt:
            return
        if is_same and session.fits(hello):
            session.resume(hello, route)
        else:
            if session is not None:
                session.has_ended = True
                del self.sessions[node]
                self.lose(node)
            session = self.sessions[node] = Session(node, hello, route, self.world.choose.randbytes(16))
        first = session.window[0][0] if session.window else session.following
        self.send(route, ("WELCOME", hello.attempt, session.epoch, first))
        self.apply(self.peers.on_hello(route, self.world.now))
        self.act(self.requests.changed(self.world.now))

    def on_welcome(self, node, route, attempt, epoch, first):
        link = self.links.get(node)
        if link is not None and link.attempt == attempt and link.route == route:
            if link.epoch != epoch:
                link.epoch, link.expected = epoch, first
            link.is_live = True
            self.apply(self.peers.on_welcome(route, self.world.now))

    def on_message(self, node, route, sequence, content):
        link = self.links.get(node)
        if link is None or not link.is_live or link.route != route or sequence != link.expected:
            return
        link.expected += 1
        if content[0] == "INTRODUCE":
            for other, endpoints in content[1]:
                self.apply(self.peers.introduce(other, endpoints, self.world.now))
        elif content[0] == "REQUEST":
            self.world.executed(node, content[1], self)
            if content[2] != "only.0" or self.world.is_quiet:
                self.replies.append((self.world.now + self.world.choose.random(), node, content[1]))
        else:
            self.act(self.requests.on_reply(node, content[1], None))

    def step(self):
        now, choose = self.world.now, self.world.choose
        if now < self.is_stopped_until:
            return
        for connection in list(self.listener.connections):
            while connection.to_publisher:
                self.read(connection.name, connection.to_publisher.popleft())
            if not connection.is_alive and connection.is_known and choose.random() < 0.2:
                self.listener.notice(connection)
        self.listener.forget()
        for route, handle in list(self.handles.items()):
            while handle.incoming and route in self.handles:
                self.read(route, handle.incoming.popleft())
        due, self.replies = (
            [one for one in self.replies if one[0] <= now],
            [one for one in self.replies if one[0] > now],
        )
        for _, node, number in due:
            if node in self.sessions:
                self.sessions[node].offer(("REPLY", number))
        deadline = self.peers.next_deadline()
        if deadline is not None and deadline <= now:
            self.apply(self.peers.tick(now))
            again = self.peers.next_deadline()
            if again is not None and again <= now:
                raise Violation(f"tick at {now} left the deadline {again}")
        deadline = self.requests.next_deadline()
        if deadline is not None and deadline <= now:
            self.act(self.requests.tick(now))
        for link in list(self.links.values()):
            if not link.is_live and now >= link.hello_at + 1.0:
                self.greet(link)
        if now >= self.ping_at:
            self.ping_at = now + 1.0
            for session in list(self.sessions.values()):
                self.send(session.route, ("PING",))
        for session in list(self.sessions.values()):
            while session.is_up and session.unsent and not session.has_ended:
                self.send(session.route, ("MESSAGE", *session.unsent.pop(0)))

    def close(self):
        for peer in self.peers.by_id.values():
            for connection in peer.connections:
                self.send(connection.route, ("BYE",))


class World:
    """All nodes of a schedule, the network between them, and the oracle."""

    def __init__(self, seed, *, trace=False):
        self.seed, self.trace = seed, trace
        self.choose = random.Random(seed)
        self.now = 0.0
        self.is_quiet = False
        self.statistics = Counter()
        self.is_calm = seed % 10 == 0
        self.mode = self.choose.choice(("directory", "seed", "mesh"))
        self.count = self.choose.randint(2, 6)
        self.separated = set()
        self.processes = {}
        self.pending, self.held, self.runs, self.outcomes = {}, {}, Counter(), []
        self.starts = Counter()
        for index in range(self.count):
            self.start(index)

    def log(self, process, what):
        if self.trace:
            print(f"{self.now:6.1f} {process.index} {process.id.hex()[:4]} {what}")

    # processes

    def start(self, index):
        self.starts[index] += 1
        is_same = index == 0 or self.mode == "mesh" or self.choose.random() < 0.5
        endpoint = f"n{index}" if is_same else f"n{index}.{self.starts[index]}"
        process = self.processes[index] = Process(self, index, endpoint)
        targets = {"directory": [], "seed": [0], "mesh": range(self.count)}[self.mode]
        for target in targets:
            # A node of the mesh dials itself too.
            process.apply(process.peers.connect(f"n{target}", self.now))

    def kill(self, index, *, orderly):
        process = self.processes[index]
        if orderly:
            process.close()
            self.carry()
        del self.processes[index]
        self.log(process, f"killed, orderly {orderly}")
        for handle in process.handles.values():
            if handle.connection is not None:
                cut(handle.connection)
        for connection in process.listener.connections:
            cut(connection)
        for key in [key for key in self.pending if key[0] == process.id]:
            del self.pending[key]

    # network

    def connections(self):
        for process in self.processes.values():
            for handle in process.handles.values():
                if handle.connection is not None and handle.connection.is_alive:
                    yield process, handle

    def carry(self):
        by_endpoint = {one.endpoint: one for one in self.processes.values()}
        for process in self.processes.values():
            for handle in process.handles.values():
                target = by_endpoint.get(handle.endpoint)
                connection = handle.connection
                is_apart = target is not None and frozenset((process.index, target.index)) in self.separated
                if connection is None:
                    if target is not None and not is_apart and self.choose.random() < 0.7:
                        target.listener.accept(handle).since = self.now
                elif connection.is_alive:
                    if is_apart:
                        cut(connection)
                        continue
                    half = connection.half_open_since
                    if half is not None and self.now >= half + TCP_GIVES_UP:
                        cut(connection)
                        continue
                    connection.transfer(10**6)

    # oracle

    def ask(self, process, subject, *, retries=0, many=False):
        self.statistics["asked"] += 1
        content = Content(subject)
        try:
            if many:
                number, effects = process.requests.request_many(content, self.now, timeout=TIMEOUT, limit=2)
            else:
                number, effects = process.requests.request(
                    content, self.now, timeout=TIMEOUT, retries=retries
                )
        except NoResponders:
            if process.all_sessions(content) or process.is_greeting:
                raise Violation("NoResponders although a session matches") from None
            self.statistics["NoResponders"] += 1
            self.outcomes.append("NoResponders")
            return
        self.pending[process.id, number] = self.now, retries, many
        process.act(effects)

    def executed(self, node, number, process):
        key = node, number, process.id
        self.runs[key] += 1
        if self.runs[key] > 1:
            raise Violation(f"{process.index} has run request {number} twice")

    def ended(self, process, number, error):
        key = process.id, number
        if key not in self.pending:
            raise Violation(f"request {number} of {process.index} ended twice")
        began, retries, many = self.pending.pop(key)
        runs = sum(1 for node, one, _ in self.runs if (node, one) == key)
        if not many and runs > retries + 1:
            raise Violation(f"request {number} ran {runs} times with {retries} retries")
        if error is None and not many and not runs:
            raise Violation("a reply without a run")
        if isinstance(error, Timeout) and self.now < began + TIMEOUT - 1e-6:
            raise Violation("Timeout too early")
        if isinstance(error, PeerLost) and self.is_calm:
            raise Violation("PeerLost although no node was lost")
        name = "reply" if error is None else type(error).__name__
        self.statistics[name] += 1
        self.outcomes.append(name)

    def check_event(self, process, event):
        if self.is_calm and isinstance(event, machine.PeerGone | machine.PeerSilent):
            raise Violation(f"{event} in a run without faults")

    def check_converged(self):
        pairs = Counter()
        for process, handle in self.connections():
            target = next(one for one in self.processes.values() if one.endpoint == handle.endpoint)
            pairs[frozenset((process.index, target.index))] += 1
        wanted = Counter(frozenset(pair) for pair in combinations(range(self.count), 2))
        if pairs != wanted:
            shown = {tuple(pair): number for pair, number in pairs.items()}
            raise Violation(f"connections {shown} of {self.count} nodes, mode {self.mode}")
        for process in self.processes.values():
            up = {node for node, peer in process.peers.by_id.items() if peer.state == UP}
            others = {one.id for one in self.processes.values() if one is not process}
            if up != others:
                raise Violation(f"{process.index} has {len(up)} peers up, {len(others)} exist")

    # schedule

    def disturb(self):
        choose = self.choose
        action = choose.random()
        alive = list(self.connections())
        if action < 0.3 and alive:
            cut(choose.choice(alive)[1].connection)
        elif action < 0.5 and alive:
            connection = choose.choice(alive)[1].connection
            connection.loses_up, connection.loses_down = choose.choice([(1, 0), (0, 1), (1, 1)])
            connection.half_open_since = self.now
        elif action < 0.65:
            pair = frozenset(choose.sample(range(self.count), 2))
            self.separated ^= {pair}
        elif action < 0.75:
            index = choose.randrange(self.count)
            if index in self.processes:
                self.kill(index, orderly=choose.random() < 0.3)
            else:
                self.start(index)
        elif action < 0.85 and self.processes:
            process = choose.choice(list(self.processes.values()))
            process.is_stopped_until = self.now + choose.choice((1.0, 4.0, 8.0))

    def request_something(self):
        choose = self.choose
        if not self.processes:
            return
        process = choose.choice(list(self.processes.values()))
        if self.now < process.is_stopped_until:
            return
        subject = choose.choice(("shared.0", "shared.1", "only.0", "only.1", "none"))
        self.ask(process, subject, retries=choose.choice((0, 0, 1, 2)), many=choose.random() < 0.2)

    def step(self):
        self.now += STEP
        self.carry()
        order = list(self.processes.values())
        self.choose.shuffle(order)
        for process in order:
            process.step()
        if self.mode == "directory" and int(self.now / STEP) % 10 == 0:
            for process in order:
                for other in order:
                    process.apply(process.peers.introduce(other.id, (other.endpoint,), self.now))

    def run(self):
        chaos = CHAOS_SECONDS if not self.is_calm else 5.0
        while self.now < chaos:
            if not self.is_calm and self.choose.random() < 0.15:
                self.disturb()
            if self.choose.random() < 0.3:
                self.request_something()
            self.step()
        self.separated.clear()
        for index in range(self.count):
            if index not in self.processes:
                self.start(index)
        for process in self.processes.values():
            process.is_stopped_until = 0.0
        for _, handle in list(self.connections()):
            connection = handle.connection
            if connection.half_open_since is not None:
                # The path works again, but what was lost is lost: TCP ends the connection soon.
                connection.half_open_since = min(connection.half_open_since, self.now - TCP_GIVES_UP + 2.0)
        end = self.now + QUIET_SECONDS
        while self.now < end:
            self.step()
        self.check_converged()
        end = self.now + TIMEOUT
        while self.pending and self.now < end + STEP:
            self.step()
        self.is_quiet = True
        before = len(self.outcomes)
        for process in self.processes.values():
            for other in self.processes.values():
                if other is not process:
                    self.ask(process, f"only.{other.index}")
        end = self.now + TIMEOUT + 1.0
        while self.now < end and (self.pending or self.now < end - TIMEOUT):
            self.step()
        if self.pending:
            raise Violation(f"{len(self.pending)} requests have not ended")
        outcomes = Counter(self.outcomes[before:])
        if outcomes["reply"] != self.count * (self.count - 1):
            raise Violation(f"{outcomes} after the nodes have converged")
        self.check_converged()


def run_seed(seed, *, trace=False):
    """Run one schedule; return its statistics."""
    try:
        world = World(seed, trace=trace)
        world.run()
    except Exception as error:
        error.add_note(f"replay: python -m peers.simulation {seed}")
        raise
    return world.statistics


def main():
    first = int(sys.argv[1])
    if len(sys.argv) == 2:
        print(dict(run_seed(first, trace=True)))
        return
    total, failed = Counter(), 0
    for seed in range(first, first + int(sys.argv[2])):
        try:
            total += run_seed(seed)
        except Exception as error:
            failed += 1
            if failed <= 20:
                print(f"seed {seed}: {type(error).__name__}: {error}"[:300], flush=True)
    print(f"{sys.argv[2]} schedules, {failed} failed, {dict(total)}")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
