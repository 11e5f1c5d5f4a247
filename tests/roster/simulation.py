"""Seeded schedules of rosters over a small model of links.

`python -m roster.simulation SEED` (in `tests/`) runs one schedule and prints its events; `python -m
roster.simulation FIRST COUNT` runs many.

A link is LIVE two delays after a connection that finds the path open and the process running. Its end is noticed
at once (a cut connection, a killed process) or after 3.5 seconds (a path that drops packets, a stopped process).
"""

import random
import sys
from collections import Counter
from heapq import heappop, heappush

from oz.node import roster as machine
from oz.node.directory import READ_INTERVAL
from oz.node.roster import KNOWN, NAME_INTERVAL, UP, Roster
from oz.wire import links
from oz.wire.links import Card

CHAOS_SECONDS, QUIET_SECONDS, LOST_AFTER = 20.0, 10.0, 5.0
SILENCE = 3.5  # Seconds after which a link is replaced, see docs/wire.md.
TCP_GIVES_UP = 10.0
RESUME_SECONDS = 30.0
DIRECTORY = "ipc:///run/oz/5e1f-"


class Violation(AssertionError):
    """A promise that a schedule broke."""


class Call:
    """Link of a node to an endpoint, and its session at the node that was found there.

    Attributes:
        session: id; None before the first HELLO and after the end of the session.
        process: in which the session is.
        is_live: whether the link is LIVE.
        is_ended: whether the roster has hung up.
    """

    def __init__(self, owner, endpoint):
        self.owner, self.endpoint = owner, endpoint
        self.session = self.process = None
        self.is_live = self.is_ended = False
        self.tries = self.hellos = 0


class Process:
    """One node.

    Attributes:
        index: of the machine.
        endpoints: at which it listens, in its card.
        calls: by endpoint.
        sessions: calls of peers, by id of the session.
    """

    def __init__(self, world, index, endpoints, bus):
        self.world, self.index, self.endpoints = world, index, endpoints
        self.id = world.choose.randbytes(16)
        if world.mode == "directory":
            self.socket = f"{DIRECTORY}{self.id.hex()[:12]}.sock"
            endpoints = [self.socket, *endpoints]
        host = "h" if world.mode == "directory" else f"h{index}"
        self.card = Card(
            node=self.id, bus=bus, name=f"node{index}", host=host, pid=1, endpoints=tuple(endpoints)
        )
        self.roster = Roster(self.card, lost_after=LOST_AFTER, local_prefix=DIRECTORY)
        self.calls, self.sessions = {}, {}
        self.is_running, self.is_stopped = True, False
        self.waiting = []
        self.ups, self.silent, self.refused = {}, set(), set()
        self.tick_at = None
        self.read_at = -READ_INTERVAL

    def __call__(self, event, *arguments):
        """Pass an event to the roster, or keep it while the process is stopped."""
        if not self.is_running:
            return
        if self.is_stopped:
            self.waiting.append((event, arguments))
            return
        now = self.world.now
        if event == "on_hello":
            card, session = arguments
            effects = self.roster.on_hello(card, now, session)
        elif event == "on_session":
            node, what, session = arguments
            effects = self.roster.on_session(node, what, now, session)
        else:
            effects = getattr(self.roster, event)(*arguments, now)
        self.apply(effects)
        self.wake()

    def wake(self):
        """Plan the next `tick`."""
        deadline = self.roster.next_deadline()
        if deadline is not None and deadline != self.tick_at:
            self.tick_at = deadline
            self.world.at(deadline, self.tick, deadline)

    def tick(self, deadline):
        if deadline != self.tick_at or not self.is_running or self.is_stopped:
            return
        now = self.world.now
        self.apply(self.roster.tick(now))
        again = self.roster.next_deadline()
        if again is not None and again <= now:
            raise Violation(f"tick at {now} left the deadline {again}")
        self.wake()

    def apply(self, effects):
        world = self.world
        for effect in effects:
            world.log(self, effect)
            world.statistics[type(effect).__name__] += 1
            if isinstance(effect, machine.Dial):
                if effect.endpoint in self.calls:
                    raise Violation(f"{effect.endpoint} is dialled twice")
                call = self.calls[effect.endpoint] = Call(self, effect.endpoint)
                world.connect(call)
            elif isinstance(effect, machine.HangUp):
                world.hang_up(self.calls.pop(effect.endpoint))
            elif isinstance(effect, machine.EndSession):
                for call in [one for one in self.sessions.values() if one.owner.id == effect.node]:
                    world.end_session(call, world.bye_reason)
            elif isinstance(effect, machine.Introduce):
                world.introduce(self, effect)
            else:
                self.check(effect)

    def check(self, event):
        """Check the order of events."""
        if isinstance(event, machine.Refused | machine.NameConflict):
            # Nodes on another bus, and the node itself, are dialled once in `FORGET_AFTER` × lost_after.
            if event in self.refused and "sessions" not in event.reason:
                raise Violation(f"{event} again at {self.index}")
            self.refused.add(event)
            return
        node = event.card.node
        if self.world.is_calm and not isinstance(event, machine.PeerUp):
            raise Violation(f"{event} in a schedule without faults")
        if event.card.bus != self.card.bus or node == self.id:
            raise Violation(f"{event} at {self.index}")
        if isinstance(event, machine.PeerUp) == (node in self.ups):
            raise Violation(f"{event} out of order")
        if isinstance(event, machine.PeerUp):
            self.ups[node] = self.world.now
        elif isinstance(event, machine.PeerGone):
            del self.ups[node]
            self.silent.discard(node)
        elif isinstance(event, machine.PeerResumed) != (node in self.silent):
            raise Violation(f"{event} out of order")
        else:
            self.silent ^= {node}


class World:
    """All nodes of a schedule, the paths between them, and the oracle."""

    def __init__(self, seed, *, trace=False):
        self.trace = trace
        self.choose = random.Random(seed)
        self.now, self.serial, self.queue = 0.0, 0, []
        self.statistics = Counter()
        self.is_calm = seed % 10 == 0
        self.mode = self.choose.choice(("directory", "seed", "mesh"))
        self.count = self.choose.randint(2, 6)
        self.separated = {}
        self.processes, self.at_endpoint = {}, {}
        self.files = set()
        # With CLOSED the other node forgets this one.
        self.bye_reason = self.choose.choice((links.CLOSED, links.LIMIT))
        self.foreign = self.count if self.mode == "mesh" and self.choose.random() < 0.5 else None
        for index in range(self.count + (self.foreign is not None)):
            self.start(index)

    def log(self, process, what):
        if self.trace:
            print(f"{self.now:6.2f} {process.index} {process.id.hex()[:4]} {_short(what)}")

    def at(self, time, action, *arguments):
        self.serial += 1
        heappush(self.queue, (max(time, self.now), self.serial, action, arguments))

    def later(self, low, high, action, *arguments):
        self.at(self.now + self.choose.uniform(low, high), action, *arguments)

    # processes

    def start(self, index):
        choose = self.choose
        is_fixed = self.mode == "mesh" or index == 0
        endpoints = [f"tcp://10.0.0.{index + 1}:{5000 if is_fixed else choose.randrange(6000, 60000)}"]
        if self.mode == "directory" and choose.random() < 0.5:
            endpoints = []
        unreachable = [f"tcp://10.9.{index}.{one}:1" for one in range(choose.choice((0, 0, 0, 1, 2)))]
        listed = [*endpoints, *unreachable]
        choose.shuffle(listed)
        process = Process(self, index, listed, "other" if index == self.foreign else "bus")
        self.processes[index] = process
        for endpoint in endpoints:
            self.at_endpoint[endpoint] = process
        if self.mode == "directory":
            self.at_endpoint[process.socket] = process
            self.files.add(process.socket)
            self.read_directory(process)
        for seed in {"directory": [], "seed": [0], "mesh": range(self.count)}[self.mode]:
            process("seed", f"tcp://10.0.0.{seed + 1}:5000")
        if self.mode == "mesh":
            process(
                "seed",
                "tcp://10.0.0.99:5000" if index == self.foreign else f"tcp://10.0.0.{self.count + 1}:5000",
            )

    def read_directory(self, process):
        """Read the directory when a node does: every 2 seconds, with peers every 30 seconds."""
        if not process.is_running:
            return
        interval = READ_INTERVAL if process.roster.has_peers else NAME_INTERVAL
        if self.now >= process.read_at + interval:
            process.read_at = self.now
            for endpoint in sorted(self.files - {process.socket}):
                is_dead = endpoint not in self.at_endpoint
                if is_dead:
                    self.files.discard(endpoint)
                process("gone" if is_dead else "found", endpoint)
        self.at(self.now + NAME_INTERVAL, self.read_directory, process)

    def kill(self, index, *, is_orderly):
        process = self.processes.pop(index)
        self.log(process, f"ends, orderly {is_orderly}")
        process.is_running = False
        for endpoint in [one for one, other in self.at_endpoint.items() if other is process]:
            del self.at_endpoint[endpoint]
        if is_orderly and self.mode == "directory":
            self.files.discard(process.socket)
        for call in list(process.sessions.values()):
            if call.is_live and is_orderly and self.is_open(call):
                self.later(0.0, 0.02, self.bye, call, links.CLOSED, call.session)
            else:
                self.later(0.0, 0.5, self.broken, call, call.session)
        for call in list(process.calls.values()):
            if call.session is not None and call.process.is_running:
                what = "ended" if is_orderly and self.is_open(call) else "down"
                self.later(0.0, 0.5, self.session_over, call.process, call.session, process.id, what)

    # links

    def is_open(self, call):
        """Return whether packets pass between both sides."""
        return frozenset((call.owner.index, call.process.index)) not in self.separated

    def connect(self, call):
        """Try a connection, now and again later."""
        call.tries += 1
        call.is_live = False
        self.later(0.0, 0.05, self.say_hello, call, call.tries)

    def retry(self, call, low=0.1, high=1.0):
        self.later(low, high, self.again, call, call.tries)

    def again(self, call, tries):
        if tries == call.tries and not call.is_ended and call.owner.is_running:
            self.connect(call)

    def say_hello(self, call, tries):
        target = self.at_endpoint.get(call.endpoint)
        if tries != call.tries or call.is_ended or not call.owner.is_running or call.owner.is_stopped:
            return self.retry(call)
        if target is None or target.is_stopped:
            return self.retry(call)
        call.process = target
        if not self.is_open(call):
            return self.retry(call)
        if target is call.owner:
            return self.later(0.0, 0.02, self.bye, call, links.OWN_ID, call.session)
        if target.card.bus != call.owner.card.bus:
            return self.later(0.0, 0.02, self.bye, call, links.OTHER_BUS, call.session)
        if call.session not in target.sessions:
            call.session = self.choose.randbytes(8)
            target.sessions[call.session] = call
        call.hellos += 1
        target("on_hello", call.owner.card, call.session)
        return self.later(0.0, 0.05, self.welcome, call, tries, call.session)

    def welcome(self, call, tries, session):
        if tries != call.tries or call.is_ended or not call.owner.is_running or session != call.session:
            return
        if not self.is_open(call) or not call.process.is_running or call.owner.is_stopped:
            self.retry(call)
            return
        call.is_live = True
        call.owner("on_live", call.endpoint, call.process.card)

    def bye(self, call, reason, session):
        """Deliver a BYE of the publisher. The link tries again after a second."""
        if call.is_ended or session != call.session or not call.owner.is_running:
            return
        if not self.is_open(call):
            # Without session no PING comes.
            self.at(self.now + SILENCE, self.broken, call, session)
            return
        call.session, call.is_live = None, False
        call.tries += 1
        self.retry(call, 1.0, 2.0)
        call.owner("on_end", call.endpoint, reason)

    def broken(self, call, session):
        """Report the end of a connection to the node that dialled it."""
        if not call.is_ended and session == call.session and call.owner.is_running:
            was_live, call.is_live = call.is_live, False
            call.tries += 1
            self.retry(call)
            if was_live:
                call.owner("on_silent", call.endpoint)

    def session_over(self, process, session, node, what):
        if session in process.sessions:
            if what == "ended":
                del process.sessions[session]
            process("on_session", node, what, session)

    def hang_up(self, call):
        call.is_ended = True
        if call.session is not None:
            is_told = call.is_live and self.is_open(call)
            wait = 0.02 if is_told else RESUME_SECONDS
            self.later(0.0, wait, self.session_over, call.process, call.session, call.owner.id, "ended")

    def end_session(self, call, reason):
        process, session = call.process, call.session
        del process.sessions[session]
        self.later(0.0, 0.02, self.bye, call, reason, session)
        process("on_session", call.owner.id, "ended", session)

    def introduce(self, process, effect):
        for call in process.sessions.values():
            if call.owner.id == effect.node and self.is_open(call):
                self.later(0.0, 0.05, call.owner, "introduced", effect.peers)
                return

    # faults

    def live_calls(self):
        for process in self.processes.values():
            yield from (call for call in process.calls.values() if call.is_live)

    def cut(self, call):
        """End a connection: both sides notice."""
        self.later(0.0, 0.1, self.broken, call, call.session)
        self.later(0.0, 0.5, self.cut_session, call, call.session, call.hellos)

    def cut_session(self, call, session, hellos):
        if session == call.session and hellos == call.hellos:
            self.session_over(call.process, session, call.owner.id, "down")

    def separate(self, pair):
        since = self.separated[pair] = self.now
        for call in self.live_calls():
            if frozenset((call.owner.index, call.process.index)) == pair:
                self.at(self.now + SILENCE, self.silence, call, call.session, since)
                self.at(self.now + TCP_GIVES_UP, self.give_up, call, call.session, since)

    def silence(self, call, session, since):
        if self.separated.get(frozenset((call.owner.index, call.process.index))) == since:
            self.broken(call, session)

    def give_up(self, call, session, since):
        if self.separated.get(frozenset((call.owner.index, call.process.index))) == since:
            self.session_over(call.process, session, call.owner.id, "down")

    def stop(self, process, seconds):
        process.is_stopped = True
        self.later(seconds, seconds, self.go_on, process)
        for call in self.live_calls():
            if call.process is process:
                self.at(self.now + SILENCE, self.silence_of_stopped, call, call.session, process)

    def silence_of_stopped(self, call, session, process):
        if process.is_stopped:
            self.broken(call, session)

    def go_on(self, process):
        if process.is_stopped and process.is_running:
            process.is_stopped = False
            waiting, process.waiting = process.waiting, []
            for event, arguments in waiting:
                process(event, *arguments)
            process.tick_at = None
            process.wake()

    def disturb(self):
        choose = self.choose
        action = choose.random()
        if action < 0.35:
            calls = list(self.live_calls())
            if calls:
                self.cut(choose.choice(calls))
        elif action < 0.6:
            pair = frozenset(choose.sample(range(self.count), 2))
            if pair in self.separated:
                del self.separated[pair]
            else:
                self.separate(pair)
        elif action < 0.65:
            # A partition of the whole bus.
            part = set(choose.sample(range(self.count), self.count // 2))
            for one in part:
                for other in set(range(self.count)) - part:
                    self.separate(frozenset((one, other)))
        elif action < 0.85:
            index = choose.randrange(self.count)
            if index in self.processes:
                self.kill(index, is_orderly=choose.random() < 0.3)
            else:
                self.start(index)
        elif self.processes:
            process = choose.choice(list(self.processes.values()))
            if not process.is_stopped:
                self.stop(process, choose.choice((1.0, 4.0, 8.0)))
        self.later(0.2, 2.0, self.disturb)

    # schedule

    def run_until(self, end):
        while self.queue and self.queue[0][0] <= end:
            self.now, _, action, arguments = heappop(self.queue)
            action(*arguments)
        self.now = end

    def run(self):
        if not self.is_calm:
            self.later(0.0, 2.0, self.disturb)
        self.run_until(CHAOS_SECONDS)
        self.queue = [one for one in self.queue if one[2] != self.disturb]
        self.queue.sort()
        self.separated.clear()
        for process in list(self.processes.values()):
            self.go_on(process)
        for index in range(self.count):
            # A bus of one seed needs it; other nodes may stay dead.
            if index not in self.processes and (index == 0 or self.choose.random() < 0.5):
                self.start(index)
        self.run_until(self.now + QUIET_SECONDS + LOST_AFTER)
        self.check_converged()

    def check_converged(self):
        for process in self.processes.values():
            peers = process.roster.by_id
            up = {node for node, peer in peers.items() if peer.state == UP and peer.down_since is None}
            shown = {node for node, peer in peers.items() if peer.state != KNOWN}
            others = {
                one.id
                for one in self.processes.values()
                if one is not process and one.card.bus == process.card.bus
            }
            if up != others or shown != up or set(process.ups) != up:
                raise Violation(
                    f"{process.index} has {len(up)} peers up, {len(others)} exist, mode {self.mode}"
                )
            live = Counter(call.process.id for call in process.calls.values() if call.is_live)
            if live != Counter(others):
                raise Violation(f"{process.index} has {sum(live.values())} links to {len(others)} peers")


def _short(what):
    """Return an effect with the first digits of ids."""
    if not isinstance(what, tuple):
        return what
    fields = []
    for field in what:
        if isinstance(field, Card):
            fields.append(field.node.hex()[:4])
        elif isinstance(field, list):
            fields.append([node.hex()[:4] for node, _ in field])
        else:
            fields.append(field.hex()[:4] if isinstance(field, bytes) else field)
    return type(what).__name__, *fields


def run_seed(seed, *, trace=False):
    """Run one schedule; return its statistics."""
    try:
        world = World(seed, trace=trace)
        world.run()
    except Exception as error:
        error.add_note(f"replay: python -m roster.simulation {seed}")
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
