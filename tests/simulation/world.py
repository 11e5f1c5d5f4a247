"""One run: who is there, what happens, and what is checked at the end."""

from __future__ import annotations

import traceback
from collections import Counter
from functools import lru_cache, partial
from random import Random

from oz.protocol import declared
from oz.protocol.publisher.lifetimes import GRACE
from oz.protocol.publisher.records import HEARTBEAT
from oz.protocol.subscriber.absences import UNCOUNTED
from oz.protocol.subscriber.declarations import GREETING
from oz.testing.network import Network
from oz.transport import descriptors
from oz.wire import keys
from oz.wire.keys import DeliveryOptions
from simulation.changing import changed
from simulation.harm import Harm
from simulation.oracle import Oracle, Violation, check
from simulation.policies import check_groups, check_policies
from simulation.processes import CLOSING, SimPlainSubscriber, SimProxy
from simulation.publishers import SimPublisher
from simulation.rest import Rest
from simulation.schedule import BUSY, FORM_NAMES, FORM_WEIGHTS, TOPICS, make_faults, make_traffic
from simulation.spoiling import NOT_TEXT, spoil
from simulation.subscribers import SimSubscriber
from simulation.tables import check_goodbye, check_left, check_plain, check_refused, refuse

declared.restore = lru_cache(maxsize=16_384)(declared.restore)
keys.parse_declaration = lru_cache(maxsize=4_096)(keys.parse_declaration)
"""Each publisher of a run reads the same declarations, and of each run the same patterns."""

SETTLES_IN, SETTLES = 1.6, 10.0
"""Virtual seconds after the last fault in which all is well as a rule, and within which it must be."""

PLAIN, PLAIN_TOO, PLAIN_LATE = "a.x", "b.*", "a.x.>"
"""What the plain subscriber asks for; ZeroMQ gives it a.x.deep too, long before it asks for that. The second
one it drops for a while."""

COUNTS = {1: 5, 2: 3}
"""Messages after which a subscription ends, of subscribers that have such a one."""

OVERFLOWS = "drop_oldest", "drop_newest", "conflate"

SPOILED = 8
"""Frames of a run that are malformed, and that no publisher sends."""

LAST = 3
"""Subjects of which something is published when all is well."""

RESTS = 2.0
"""Virtual seconds in which nothing is to happen but heartbeats."""

EMPTY_EVERY = 20
"""Of so many seeds one goes on until everybody has left, and nothing is left of them."""

SHORTLY = 0.3
"""Virtual seconds in which publishers know of what is asked for no longer; they keep it for longer."""

AT_ONCE = 0.5
"""Virtual seconds in which a publisher has answered who leaves, where all is well."""

GREETED = 2 * GREETING
"""The same, more, for what a proxy has dropped on its way."""

FRONT, BACK = "tcp://10.0.1.1:7000", "tcp://10.0.1.1:7001"
DIRECT = {"p1": "tcp://10.0.0.1:7000", "p2": "tcp://10.0.0.2:7000", "p3": "tcp://10.0.0.3:7000"}


class World:
    """One run of the simulation.

    Attributes:
        mechanisms: how often each mechanism fired.
        faults: what goes wrong; all that the seed says, or those that are given.
        forged: frames that somebody sent in the name of another publisher.
        has_stranger: whether somebody speaks in the name of others.
        declared_by_others: the key and number of what was declared in the name of somebody else.
        is_over: what must be so has been checked; publishers refuse something then.
        healed_at: when the last fault was over; before that, 0.
    """

    has_stranger = is_over = False
    healed_at = 0.0

    def __init__(self, seed, faults=None, mechanisms=None):
        random = Random(seed)
        self.seed, self._random = seed, Random(seed + 1)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.network = Network(random.getrandbits(32), capacity=(1, random.choice((4, 16, 64))))
        self.random_bytes = Random(seed ^ 0x5EED).randbytes
        self.oracle = Oracle(self)
        self.rest = Rest(self)
        self._forms = Random(seed + 2)
        self._number = 0
        self.forged, self.declared_by_others = set(), set()
        self._make_processes(random)
        self.plain = SimPlainSubscriber(
            self, "plain", endpoints=list(DIRECT.values())[:2], patterns=[PLAIN, PLAIN_TOO]
        )
        everybody = (*self.publishers, *self.subscribers, *self.proxies, self.plain)
        self.processes = {one.name: one for one in everybody}
        self.harm = Harm(self.network, self.processes, self.mechanisms)
        names = [[one.name for one in some] for some in (self.publishers, self.subscribers, self.proxies)]
        pairs = [(one, "hub") for one in ("p2", "p3", *names[1])]
        pairs += [(one, other) for one in ("p1", "p2") for other in names[1]]
        self._choose_quiet(random)
        names = [[one for one in some if one not in self.quiet] for some in names]
        pairs = [pair for pair in pairs if not self.quiet.intersection(pair)]
        every = make_faults(random, pairs, *names)
        self.traffic = make_traffic(random, [one.name for one in self.publishers])
        every = sorted(self._into_traffic(fault) for fault in every)
        self.faults = every if faults is None else faults

    def _into_traffic(self, fault):
        """Have what ends while messages are on their way come right behind some."""
        if fault.kind not in ("drain", "less", "close"):
            return fault
        return fault._replace(at=self._forms.choice(self.traffic).at + self._forms.uniform(0.0, 0.002))

    def _choose_quiet(self, random):
        """Choose a publisher and a subscriber with room enough, with whom nothing goes wrong."""
        publisher, subscriber = random.choice(self.publishers[:2]), random.choice(self.subscribers)
        # Who waits for room loses nothing however little there is.
        mark = self._forms.choice((2, 5, 1000))
        needs_room = publisher.drops or subscriber.delivery.overflow is not None
        publisher.mark = subscriber.mark = 1000 if needs_room else mark
        subscriber.pace = 100
        self.quiet = {publisher.name, subscriber.name}

    def _make_processes(self, random):
        marks = lambda: random.choice((2, 3, 5, 20, 1000))  # noqa: E731
        drops = random.random() < 0.7
        # It is heard by two paths then, of which one overtakes the other.
        second = [FRONT] if random.random() < 0.3 else []
        self.publishers = [
            SimPublisher(self, "p1", binds=[DIRECT["p1"]], drops=drops, mark=marks()),
            SimPublisher(self, "p2", binds=[DIRECT["p2"]], connects=second, drops=drops, mark=marks()),
            SimPublisher(self, "p3", binds=[], connects=[FRONT], drops=drops, mark=marks()),
        ]
        self.proxies = [
            SimProxy(
                self,
                "hub",
                front=FRONT,
                back=BACK,
                is_verbose=random.random() < 0.3,
                mark=random.choice((8, 12, 30, 1000)),
            )
        ]
        policy = random.choice(("round_robin", "sticky", "failover"))
        group = DeliveryOptions(group="g", policy=policy)
        limit = random.choice((3, 10))
        sided = random.choice(("s1", "s3"))
        first, second = random.sample(OVERFLOWS, 2)
        held, shared = DeliveryOptions(overflow=first, limit=limit), DeliveryOptions(is_shared=True)
        more = random.choice(
            (
                (group, group, group, shared),
                (group, group, shared, shared),
                (group, group, shared, DeliveryOptions(overflow=second, limit=limit)),
            )
        )
        kinds = [DeliveryOptions(), held, *more]
        endpoints = [DIRECT["p1"], DIRECT["p2"], BACK]
        self.subscribers = []
        all_share = random.choice(("a.*", ">"))
        for number, delivery in enumerate(kinds, 1):
            patterns = random.sample(["a.*", "*.x", "b.y", ">", "a.>", "a.x"], 4)
            if delivery.is_shared:
                patterns = [all_share]
            self.subscribers.append(
                SimSubscriber(
                    self, f"s{number}", endpoints=endpoints, patterns=patterns, delivery=delivery,
                    mark=marks(), pace=random.choice((1, 10, 100)),
                    last_value=number == 1 and random.random() < 0.3,
                )
            )  # fmt: skip
            self.subscribers[-1].has_side = f"s{number}" == sided
            self.subscribers[-1].most_counted = COUNTS.get(number, 0)

    # running ---------------------------------------------------------------------------------------------

    def run(self):
        """Let everything happen, and check what must be so.

        Raises:
            Violation: something is not.
        """
        call_at = self.network.call_at
        for process in self.processes.values():
            call_at(self._random.uniform(0.0, 0.2), process.start)
        for subscriber in self.subscribers:
            call_at(self._forms.uniform(1.0, BUSY), subscriber.drop_many)
        for _ in range(SPOILED):
            call_at(self._forms.uniform(1.0, BUSY), self._spoil)
        for burst in self.traffic:
            call_at(burst.at, partial(self._publish, burst))
        for fault in self.faults:
            call_at(fault.at, partial(self.harm.begin, fault))
        call_at(self._forms.uniform(0.3, BUSY), partial(self.plain.unsubscribe, PLAIN_TOO))
        call_at(BUSY, partial(self.plain.subscribe, PLAIN_TOO))
        call_at(self._forms.uniform(BUSY / 2, BUSY), partial(self.plain.subscribe, PLAIN_LATE))
        for _ in range(self._forms.choice((0, 0, 1, 2))):
            count = self._forms.choice((1, 3, 20, None, None))
            others = [one for one in self.publishers if one.name not in self.quiet]
            # While messages wait.
            at = self.choose(self.traffic).at + self._forms.uniform(0.0, 0.002)
            call_at(at, partial(self._skip, self.choose(others), count))
        last = max([fault.at + fault.lasts for fault in self.faults] + [self.traffic[-1].at])
        self.network.run_until(last + 0.1)
        self._end_all()
        self.healed_at = self.network.now
        oracle = self.oracle
        rest = self.rest
        self.network.run_until(last + 0.1 + SETTLES_IN)
        while self.network.now < last + SETTLES and not rest.is_settled():
            self.network.run_until(self.network.now + 1.0)
        oracle.check_order()
        if not rest.all_ready([self.publishers[2]]):
            # A proxy drops subscriptions that it has no room for; only the next greeting shows that.
            self.mechanisms["found by a greeting"] += 1
            self.network.run_until(self.network.now + GREETED)
        rest.check_convergence()
        late = SimSubscriber(
            self, "late", endpoints=self.subscribers[0].endpoints, patterns=[">"], delivery=DeliveryOptions(),
            mark=1000, pace=100, last_value=True,
        )  # fmt: skip
        late.start()
        self.network.run_until(self.network.now + 1.0)
        rest.check_last_values(late.ledger)
        for subscriber in self.subscribers:
            if subscriber.has_side:
                subscriber.drop_side()
        numbers = self._publish_last()
        rest.begins()
        self.network.run_until(self.network.now + RESTS)
        rest.check_idle(RESTS)
        rest.check_positions()
        rest.check_newest(numbers)
        oracle.check_order()
        check_groups(oracle)
        oracle.check_streams()
        if len(self.quiet) == 2:
            rest.check_quiet(*sorted(self.quiet))
        check_policies(oracle, numbers)
        check_plain(self, numbers)
        rest.check_memory()
        rest.check_counters()
        rest.check_dedupe()
        rest.check_parted()
        rest.check_asked()
        rest.check_interests()
        rest.count()
        if self.seed % EMPTY_EVERY == 0:
            self._empty(late)
        else:
            self._part()
        return self

    def _part(self):
        """Have all ask for less, a publisher say goodbye, and all ask for nothing."""
        for subscriber in self.subscribers:
            subscriber.unsubscribe()
        self.network.run_until(self.network.now + SHORTLY)
        self.rest.check_interests()
        second, self.is_over = self.publishers[1], True
        for subscriber in self.subscribers:
            refuse(second, subscriber)
        self.network.run_until(self.network.now + SHORTLY)
        for subscriber in self.subscribers:
            check_refused(subscriber)
        second.end()
        self.network.run_until(self.network.now + AT_ONCE)
        check(not second.is_alive, "{} has not said goodbye", second.name)
        for subscriber in self.subscribers:
            check_goodbye(subscriber, second)
            subscriber.leave_all()
            check_left(subscriber)

    def _empty(self, *others):
        """Have a publisher die, and then all subscribers leave."""
        first, second = self.publishers[:2]
        had = {one: one.ledger for one in (*self.subscribers, *others)}
        before = {one: list(ledger.gaps) for one, ledger in had.items()}
        first.kill()
        self.network.run_until(self.network.now + UNCOUNTED + 3.0)
        self.rest.check_death(first, second, before)
        self.plain.end()
        is_orderly = self._forms.random() < 0.5
        for subscriber in (*self.subscribers, *others):
            (subscriber.end if is_orderly else subscriber.kill)()
        if is_orderly:
            self.network.run_until(self.network.now + AT_ONCE)
            for subscriber in self.subscribers:
                has_left = not subscriber.is_alive or subscriber.streams.has_left({second.origin})
                check(has_left, "{} has not left", subscriber.name)
        self.network.run_until(self.network.now + (CLOSING if is_orderly else GRACE + HEARTBEAT) + 2.0)
        self.rest.check_empty()

    def _publish(self, burst):
        publisher = self.processes[burst.publisher]
        if not publisher.is_alive or publisher.is_frozen or publisher.is_ending:
            return
        forms = self._forms.choices(FORM_NAMES, cum_weights=FORM_WEIGHTS, k=len(burst.subjects))
        for subject, form in zip(burst.subjects, forms, strict=True):
            self._number += 1
            publisher.publish(subject.encode(), self._number, form)
            if not burst.at_once:
                publisher.flush()
            elif self._random.random() < 0.1:
                publisher.look()
        publisher.wake()

    def _spoil(self):
        publisher = self.choose(self.publishers)
        if publisher.is_alive and not publisher.is_frozen and not publisher.is_ending:
            spoil(publisher, self.choose)
            if publisher.binds:
                publisher.hand_over(NOT_TEXT, b"0")

    def access_of(self, publisher):
        """Return what a publisher asks who may subscribe to what; None where everybody may."""
        return None

    def receiver_of(self, publisher):
        """Return what reads the frames of a publisher's socket, and by whom each came."""
        return publisher.context.backend.recv_named

    def pattern_time_of(self, publisher):
        """Return what measures the patterns of a publisher; None where they may take for ever."""
        return None

    def publish_access_of(self, subscriber):
        """Return what a subscriber asks who may publish what; None where everybody may."""
        return None

    def choose(self, some):
        return self._forms.choice(some)

    def _skip(self, publisher, count):
        if publisher.is_alive and not publisher.is_frozen and not publisher.is_ending:
            publisher.skip(count)
            self.quiet.discard(publisher.name)

    def _publish_last(self):
        numbers = []
        for topic in self._forms.sample(TOPICS, LAST):
            # Twice: the members of a group take turns.
            for _ in range(2):
                for publisher in self.publishers:
                    self._number += 1
                    if publisher.publish(topic.encode(), self._number):
                        numbers.append(self._number)
                    publisher.wake()
                self.network.run_until(self.network.now + 0.02)
        return numbers

    def _end_all(self):
        self.harm.end_all()
        for process in self.processes.values():
            process.thaw()
            if not process.is_alive:
                process.start()


def _have_enough(count, purpose):
    """Nothing in a run takes a file descriptor, and to find out what is left takes a thread each time."""


def run(seed, faults=None, mechanisms=None, kind=World):
    """Run one seed of a kind of world; return the violation, or None."""
    try:
        with changed((descriptors, "need", _have_enough)):
            kind(seed, faults, mechanisms).run()
    except Violation as violation:
        return violation
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} in {place.name}"
        return Violation(f"{kind}, line {place.lineno} of {place.filename}: {error}", kind)
    return None
