"""Random schedules for ZeroMQ sockets, and what is seen when one is run.

A schedule is made of a seed alone, and run on either world. Each step ends when all that it does has
arrived, which markers tell: topics that are each subscribed to once, and messages to them. So whatever is in
the observations is determined by libzmq's rules; what is not (the order between connections, the counts at
a pipe that a network stands in) is sorted or held against its bounds.
"""

from random import Random

import zmq

TOPICS = (b"", b"a", b"ab", b"abc", b"b", b"ba", b"c", b"x", b"xa")
SUBJECTS = (b"", b"a", b"ab", b"abcd", b"b", b"bab", b"c", b"cab", b"x", b"xab", b"z")
MODES = ("plain", "verbose", "verboser", "manual")
_OPTIONS = {"verbose": zmq.XPUB_VERBOSE, "verboser": zmq.XPUB_VERBOSER, "manual": zmq.XPUB_MANUAL}


class Pub:
    """An XPUB that reads its subscriptions; in manual mode it refuses what begins with x."""

    def __init__(self, world, mode, host, **options):
        self.world, self.mode, self.host, self.options = world, mode, host, options
        self.frames = []
        self.open()

    def open(self):
        self.socket = self.world.socket(zmq.XPUB, self.host, **self.options)
        if self.mode in _OPTIONS:
            self.socket.set(_OPTIONS[self.mode], 1)

    def read(self):
        while self.socket.get(zmq.EVENTS) & zmq.POLLIN:
            frame = self.socket.recv()
            self.frames.append(frame)
            if self.mode == "manual" and frame[:1] in (b"\0", b"\1") and frame[1:2] != b"x":
                # Short topics are replaced by longer ones.
                topic = b"bab" if frame[1:] == b"ba" else frame[1:]
                self.socket.set(zmq.SUBSCRIBE if frame[0] else zmq.UNSUBSCRIBE, topic)
        return self.frames

    def taken(self):
        frames, self.frames = self.read(), []
        return frames


class Sub:
    """A SUB or XSUB whose latest marker is always its last topic in lexicographic order."""

    def __init__(self, world, number, kind, endpoint, host=None, **options):
        self.world, self.number, self.kind, self.endpoint = world, number, kind, endpoint
        self.options, self.host = options, host or f"sub{number}"
        self.count, self.topics = 0, {}
        self.open(connects_first=True)

    @property
    def marker(self):
        return b"~%d.%d;" % (self.number, self.count)

    def open(self, *, connects_first):
        self.socket = self.world.socket(self.kind, self.host, **self.options)
        if connects_first:
            self.socket.connect(self.endpoint)
        for topic, times in self.topics.items():
            for _ in range(times):
                self._change(topic, subscribes=True)
        self.count += 1
        self._change(self.marker, subscribes=True)
        if not connects_first:
            self.socket.connect(self.endpoint)

    def _change(self, topic, *, subscribes):
        if self.kind == zmq.SUB:
            self.socket.set(zmq.SUBSCRIBE if subscribes else zmq.UNSUBSCRIBE, topic)
        else:
            self.socket.send((b"\1" if subscribes else b"\0") + topic)

    def change(self, topic, *, subscribes):
        self._change(topic, subscribes=subscribes)
        times = max(self.topics.get(topic, 0) + (1 if subscribes else -1), 0)
        self.topics[topic] = times

    def mark(self):
        old = self.marker
        self.count += 1
        self._change(old, subscribes=False)
        self._change(self.marker, subscribes=True)

    def read(self, most=None):
        found = []
        while (most is None or len(found) < most) and self.socket.get(zmq.EVENTS) & zmq.POLLIN:
            found.append(tuple(self.socket.recv_multipart()))
        return found


class Bus:
    """Publishers, subscribers and what is between them."""

    def __init__(self, world, random):
        self.world = world
        self.seen = []
        self.number = 0

    def note(self, what, value):
        self.seen.append((what, value))

    # what every bus can do -------------------------------------------------------------------------------

    def wait_for(self, frame, pubs=None):
        self.world.until(lambda: all(frame in pub.read() for pub in pubs or self.pubs))

    def change(self, number, changes):
        sub = self.subs[number]
        for topic, subscribes in changes:
            sub.change(topic, subscribes=subscribes)
        sub.mark()
        self.wait_for(b"\1" + sub.marker)
        self.note("subscriptions", [pub.taken() for pub in self.pubs])

    def publish(self, subjects):
        for number, pub in enumerate(self.pubs):
            for subject in subjects:
                self.number += 1
                parts = [subject, b"%d" % number, b"%d" % self.number][: 2 + self.number % 2]
                pub.socket.send_multipart(parts)
            for sub in self.subs:
                pub.socket.send_multipart([sub.marker, b"%d" % number])
        for sub in self.subs:
            got, ends = [], {(sub.marker, b"%d" % number) for number in range(len(self.pubs))}

            def is_all(sub=sub, got=got, ends=ends):
                got += sub.read()
                return ends <= set(got)

            self.world.until(is_all)
            # The order between publishers is anything, and what is for others may still come.
            kept = [one for one in got if one[0][:1] != b"~" or one[0] == sub.marker]
            by_publisher = [[one for one in kept if one[1] == b"%d" % n] for n in range(len(self.pubs))]
            self.note("messages", by_publisher)

    def restart_sub(self, number, connects_first):
        sub = self.subs[number]
        sub.socket.close(0)
        self.wait_for(b"\0" + sub.marker)
        self.note("subscriber closed", [pub.taken() for pub in self.pubs])
        sub.open(connects_first=connects_first)
        self.wait_for(b"\1" + sub.marker)
        self.note("subscriber opened", [pub.taken() for pub in self.pubs])

    def reconnect(self, number):
        sub = self.subs[number]
        # libzmq aborts when a message of several frames is lost that EVENTS has announced.
        sub.read()
        sub.socket.disconnect(sub.endpoint)
        self.wait_for(b"\0" + sub.marker)
        self.note("disconnected", [pub.taken() for pub in self.pubs])
        sub.socket.connect(sub.endpoint)
        self.wait_for(b"\1" + sub.marker)
        self.note("connected", [pub.taken() for pub in self.pubs])

    def cut(self, changes):
        sub = self.subs[0]
        self.link.cut()
        self.wait_for(b"\0" + sub.marker)
        self.note("cut", [pub.taken() for pub in self.pubs])
        for topic, subscribes in changes:
            sub.change(topic, subscribes=subscribes)
        self.link.heal()
        self.wait_for(b"\1" + sub.marker)
        # What was changed meanwhile may come with the others in their order, or after them.
        for pub in self.pubs:
            self.note("healed", None if changes else pub.frames)
        if changes:
            sub.mark()
            self.wait_for(b"\1" + sub.marker)
        for pub in self.pubs:
            pub.taken()

    def stall(self, subjects):
        self.link.stall()
        for subject in subjects:
            for number, pub in enumerate(self.pubs):
                self.number += 1
                pub.socket.send_multipart([subject, b"%d" % number, b"%d" % self.number])
        self.link.resume()
        self.publish(subjects)


class Direct(Bus):
    """A publisher, and subscribers that connect to it; between it and the first one is a link with faults."""

    def __init__(self, world, random):
        super().__init__(world, random)
        mode = random.choice(MODES)
        self.pubs = [Pub(world, mode, "pub", XPUB_NODROP=random.randrange(2))]
        self.endpoint = world.bind(self.pubs[0].socket, "tcp://127.0.0.1:*")
        self.link = world.link(self.endpoint, "pub", "sub0")
        self.subs = []
        for number in range(2):
            endpoint = self.endpoint if number else self.link.endpoint
            self.subs.append(Sub(world, number, random.choice((zmq.SUB, zmq.XSUB)), endpoint))
            self.wait_for(b"\1" + self.subs[-1].marker)
        self.pubs[0].taken()

    def restart_pub(self):
        pub = self.pubs[0]
        pub.socket.close(0)
        pub.open()
        self.world.bind(pub.socket, self.endpoint)
        for sub in self.subs:
            self.wait_for(b"\1" + sub.marker)
        self.note("publisher restarted", sorted(pub.taken()))

    def half_open(self, subjects):
        pub, sub = self.pubs[0], self.subs[0]
        if pub.mode not in ("verboser", "manual"):
            return
        self.link.half_open()
        self.wait_for(b"\1" + sub.marker)
        self.note("came again", pub.taken())
        self.publish(subjects)
        self.link.release()
        self.wait_for(b"\0" + sub.marker)
        self.note("released", pub.taken())


class Proxied(Bus):
    """Publishers and subscribers that connect to a proxy."""

    def __init__(self, world, random):
        super().__init__(world, random)
        self.mode = random.choice(MODES[:3])
        self.endpoints = ["tcp://127.0.0.1:*"] * 2
        self.open_proxy()
        self.pubs = []
        for number in range(random.choice((1, 2))):
            mode = random.choice(("manual", "verboser"))
            self.pubs.append(Pub(world, mode, f"pub{number}", IMMEDIATE=1))
            self.pubs[-1].socket.connect(self.endpoints[0])
        self.link = world.link(self.endpoints[1], "proxy", "sub0")
        self.subs = []
        for number in range(2):
            endpoint = self.endpoints[1] if number else self.link.endpoint
            self.subs.append(Sub(world, number, zmq.SUB, endpoint))
            self.wait_for(b"\1" + self.subs[-1].marker)
        for pub in self.pubs:
            pub.taken()

    def open_proxy(self):
        front, back = self.world.socket(zmq.XSUB, "proxy"), self.world.socket(zmq.XPUB, "proxy")
        if self.mode in _OPTIONS:
            back.set(_OPTIONS[self.mode], 1)
        bound = zip((front, back), self.endpoints, strict=True)
        self.endpoints = [self.world.bind(socket, endpoint) for socket, endpoint in bound]
        self.kill_proxy = self.world.proxy(front, back, "proxy")

    def restart_pub(self):
        pub = self.pubs[0]
        pub.socket.close(0)
        pub.open()
        pub.socket.connect(self.endpoints[0])
        for sub in self.subs:
            self.wait_for(b"\1" + sub.marker, [pub])
        self.note("publisher restarted", pub.taken())

    def restart_proxy(self):
        self.kill_proxy()
        for sub in self.subs:
            self.wait_for(b"\0" + sub.marker)
        for pub in self.pubs:
            self.note("proxy killed", pub.taken())
        self.open_proxy()
        for sub in self.subs:
            self.wait_for(b"\1" + sub.marker)
        for pub in self.pubs:
            # Who comes first is anything, and so is what the front has seen when a publisher comes.
            self.note("proxy restarted", sorted(set(pub.taken())))


class Pipes(Bus):
    """Sockets within a context, where it is determined how much fits in a pipe."""

    def __init__(self, world, random):
        super().__init__(world, random)
        mode = random.choice(MODES)
        options = {"SNDHWM": random.choice((0, 1, 3, 10)), "RCVHWM": random.choice((0, 2, 7))}
        self.pubs = [Pub(world, mode, "one", XPUB_NODROP=random.randrange(2), **options)]
        world.bind(self.pubs[0].socket, "inproc://pub")
        self.subs = []
        for number in range(2):
            marks = {"RCVHWM": random.choice((0, 1, 4, 9)), "SNDHWM": random.choice((0, 1, 5))}
            kind = random.choice((zmq.SUB, zmq.XSUB))
            self.subs.append(Sub(world, number, kind, "inproc://pub", "one", **marks))
            # All are in one process.
            self.look("opened")

    def look(self, what):
        self.world.settle()
        self.note(what, self.pubs[0].taken())
        self.world.settle()

    def change(self, number, changes):
        for topic, subscribes in changes:
            self.subs[number].change(topic, subscribes=subscribes)
        self.look("subscriptions")

    def burst(self, number, count):
        for topic in range(count):
            self.subs[number].change(b"d%02d" % topic, subscribes=True)
        self.look("burst")

    def fill(self, subject, most):
        socket, sent = self.pubs[0].socket, 0
        self.world.settle()
        try:
            while sent < most:
                self.number += 1
                parts = [subject, b"%d" % self.number]
                socket.send(parts[0], zmq.SNDMORE | zmq.NOBLOCK)
                socket.send(parts[1], zmq.NOBLOCK)
                sent += 1
        except zmq.Again:
            pass
        self.note("sent", sent)

    def drain(self, number, most):
        self.note("read", self.subs[number].read(most))
        self.look("after reading")

    def lossless(self, is_so):
        self.pubs[0].socket.set(zmq.XPUB_NODROP, int(is_so))

    def upstream(self, number, parts):
        if self.subs[number].kind == zmq.XSUB:
            self.subs[number].socket.send_multipart(parts)
            self.look("from upstream")

    def reconnect(self, number):
        sub = self.subs[number]
        # libzmq aborts when a message of several frames is lost that EVENTS has announced.
        sub.read()
        sub.socket.disconnect(sub.endpoint)
        self.look("disconnected")
        sub.socket.connect(sub.endpoint)
        self.look("connected")


class Flooded(Bus):
    """A publisher that fills what is between it and subscribers who do not read."""

    def __init__(self, world, random):
        super().__init__(world, random)
        self.marks = random.choice((2, 5, 10)), random.choice((2, 5, 10))
        pub = Pub(world, random.choice(MODES), "pub", XPUB_NODROP=1, SNDHWM=self.marks[0], SNDBUF=65_536)
        self.pubs = [pub]
        endpoint = world.bind(pub.socket, "tcp://127.0.0.1:*")
        self.subs = []
        for number in range(2):
            self.subs.append(
                Sub(world, number, zmq.SUB, endpoint, RCVHWM=self.marks[1], RCVBUF=65_536, SNDHWM=0)
            )
            self.wait_for(b"\1" + self.subs[-1].marker)
        pub.taken()

    def flood(self, number, size):
        pub, sub = self.pubs[0], self.subs[number]
        sent = 0
        payload = bytes(size)
        # Far more than fits in both pipes and the buffers between them.
        most = 10_000_000 // size + 400
        for _ in range(3):
            while sent < most and self.sends(pub, [sub.marker, b"%d" % sent, payload]):
                sent += 1
            pub.socket.get(zmq.EVENTS)
        self.note("is full", sent < most)
        # Room is told when half of the pipe has been read, so that less may seem to be left.
        least = self.marks[0] - (self.marks[0] + 1) // 2 + 1
        self.note("takes at least what fits at the publisher", sent >= least)
        # What nobody has a full pipe for still goes.
        other = self.subs[1 - number]
        self.note("others get theirs", self.sends(pub, [other.marker, b"other"]))
        got, others = [], []
        self.world.until(lambda: others.extend(other.read()) or others)
        self.world.until(lambda: got.extend(one[:2] for one in sub.read()) or len(got) >= sent)
        self.note("all arrives", got == [(sub.marker, b"%d" % one) for one in range(sent)])
        self.world.until(lambda: pub.socket.get(zmq.EVENTS) and self.sends(pub, [sub.marker, b"again"]))
        again = []
        self.world.until(lambda: again.extend(sub.read()) or again)
        self.note("and more", (again, others))

    def sends(self, pub, parts):
        try:
            for part in parts[:-1]:
                pub.socket.send(part, zmq.SNDMORE | zmq.NOBLOCK)
            pub.socket.send(parts[-1], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


def _changes(random, most=4):
    return [(random.choice(TOPICS), random.random() < 0.6) for _ in range(random.randint(1, most))]


def _subjects(random):
    return [random.choice(SUBJECTS) for _ in range(random.randint(1, 8))]


def _steps(kind, random):
    """What a bus of a kind does, how often against the others, and with what."""
    who = random.randrange(2)
    steps = {
        Direct: (
            (4, "change", lambda: (who, _changes(random))),
            (4, "publish", lambda: (_subjects(random),)),
            (1, "restart_sub", lambda: (who, random.random() < 0.5)),
            (1, "reconnect", lambda: (who,)),
            (2, "cut", lambda: (random.choice(([], [], _changes(random))),)),
            (1, "stall", lambda: (_subjects(random),)),
            (1, "restart_pub", tuple),
            (1, "half_open", lambda: (_subjects(random),)),
        ),
        Proxied: (
            (4, "change", lambda: (who, _changes(random))),
            (4, "publish", lambda: (_subjects(random),)),
            (1, "restart_sub", lambda: (who, random.random() < 0.5)),
            (1, "reconnect", lambda: (who,)),
            (1, "cut", lambda: (random.choice(([], [], _changes(random))),)),
            (1, "stall", lambda: (_subjects(random),)),
            (1, "restart_pub", tuple),
            (1, "restart_proxy", tuple),
        ),
        Pipes: (
            (4, "change", lambda: (who, _changes(random))),
            (6, "fill", lambda: (random.choice(SUBJECTS), random.choice((1, 3, 30)))),
            (5, "drain", lambda: (who, random.choice((1, 2, 5, 40)))),
            (1, "lossless", lambda: (random.random() < 0.5,)),
            (1, "burst", lambda: (who, random.choice((2, 9, 25)))),
            (1, "upstream", lambda: (who, random.choice(([b"\2up"], [b"up", b"more"])))),
            (1, "reconnect", lambda: (who,)),
        ),
        Flooded: ((1, "flood", lambda: (who, random.choice((50_000, 200_000)))),),
    }[kind]
    _, name, arguments = random.choices(steps, [weight for weight, _, _ in steps])[0]
    return name, arguments()


def schedule(seed):
    """Make a schedule: a kind of bus, a seed for it, and its steps."""
    random = Random(seed)
    kind = random.choices((Direct, Proxied, Pipes, Flooded), (8, 5, 6, 1))[0]
    count = 2 if kind is Flooded else random.randint(6, 14)
    return kind, random.random(), [_steps(kind, random) for _ in range(count)]


def run(world, plan):
    """Run a schedule; return all that was seen, each with the step that it was seen in."""
    kind, seed, steps = plan
    bus = kind(world, Random(seed))
    seen = [("begun", bus.seen)]
    for name, arguments in steps:
        bus.seen = []
        getattr(bus, name)(*arguments)
        seen.append(((name, *arguments), bus.seen))
    return seen
