"""Hypothesis chooses the actions of the simulation, and shrinks a schedule that fails."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from links.network import cut
from links.simulation import GROUPS, OF_GROUP, PATTERNS, PLAIN, SUBJECTS, Instruments, World

INDEX = st.integers(0, 20)


class LinksMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1_000), subscribers=st.integers(1, 3))
    def begin(self, seed, subscribers):
        self.world = World(seed)
        self.instruments = Instruments(self.world).__enter__()
        for _ in range(subscribers):
            self.world.start_subscriber()

    def subscriber(self, index):
        return self.world.subscribers[index % len(self.world.subscribers)]

    def connection(self, index):
        connections = self.world.connections()
        return connections[index % len(connections)] if connections else None

    @rule(
        index=INDEX,
        pattern=st.sampled_from(PATTERNS),
        options=st.sampled_from(PLAIN),
        last_value=st.booleans(),
    )
    def subscribe(self, index, pattern, options, last_value):
        self.subscriber(index).subscribe(pattern, options, last_value)

    @rule(index=INDEX, name=st.sampled_from(list(GROUPS)))
    def join(self, index, name):
        one = self.subscriber(index)
        if not any(other.options.group == name for other in one.active):
            one.subscribe(OF_GROUP[name], GROUPS[name])

    @rule(index=INDEX, which=INDEX)
    def unsubscribe(self, index, which):
        one = self.subscriber(index)
        if one.active:
            one.unsubscribe(one.active[which % len(one.active)])

    @precondition(lambda self: self.world.publisher)
    @rule(
        subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=9),
        size=st.sampled_from([0, 60, 250, 1_000]),
    )
    def publish(self, subjects, size):
        world = self.world
        for subject in subjects:
            world._serial += 1
            world.publisher.sessions.publish(subject, f"{subject} {world._serial} ".encode() + b"x" * size)
        world.publisher.sessions.flush()
        world.publisher.pump()

    @rule(times=st.integers(1, 4), seconds=st.sampled_from([0.01, 0.1, 0.5]))
    def flow(self, times, seconds):
        for _ in range(times):
            self.world.flow()
            self.world.advance(seconds)

    @rule(seconds=st.sampled_from([1.0, 4.0, 35.0]))
    def jump(self, seconds):
        self.world.advance(seconds)

    @rule(index=INDEX, is_noticed=st.booleans(), is_late=st.booleans())
    def cut(self, index, is_noticed, is_late):
        connection = self.connection(index)
        if connection:
            cut(connection)
            connection.is_late = is_late
            if is_noticed:
                self.world.publisher.listener.notice(connection)

    @rule(index=INDEX, up=st.booleans(), down=st.booleans())
    def half_open(self, index, up, down):
        connection = self.connection(index)
        if connection and (up or down):
            connection.loses_up |= up
            connection.loses_down |= down
            connection.half_open_since = connection.half_open_since or self.world.now

    @rule(index=INDEX, room=st.integers(0, 3))
    def fill_pipe(self, index, room):
        connection = self.connection(index)
        if connection:
            connection.room = room

    @rule(index=INDEX)
    def toggle_busy(self, index):
        one = self.subscriber(index)
        one.is_busy = not one.is_busy
        if one.is_busy:
            one.clock.leave(self.world.now)

    @rule(index=INDEX, is_graceful=st.booleans())
    def restart_subscriber(self, index, is_graceful):
        self.world.kill_subscriber(self.subscriber(index), is_graceful)
        self.world.start_subscriber()

    @precondition(lambda self: self.world.publisher)
    @rule(is_graceful=st.booleans())
    def stop_publisher(self, is_graceful):
        self.world.kill_publisher(is_graceful)

    @precondition(lambda self: not self.world.publisher)
    @rule()
    def start_publisher(self):
        self.world.start_publisher()

    @invariant()
    def bounds_hold(self):
        if hasattr(self, "world") and self.world.publisher:
            self.world.check_bounds()

    def teardown(self):
        if hasattr(self, "world"):
            try:
                self.world.calm()
                self.world.converge()
                self.world.check_accounts()
                self.world.probe()
            finally:
                self.instruments.__exit__()


TestLinks = LinksMachine.TestCase
TestLinks.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
