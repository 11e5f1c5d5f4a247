"""Processes of the simulation that are made of model sockets, such as a name server.

A process wakes up when its socket has news or at a deadline of its machines. It can be frozen, killed, and started
again.
"""

from __future__ import annotations

from functools import partial

import zmq

from oz.testing.context import Context

NOBLOCK = int(zmq.NOBLOCK)

BOOTED = 1_000.0
"""Seconds that the clock of a process shows more than the network's, once more for each of its lives: no
clock of a host begins at 0 as a program does."""

CLOSING = 1.0
"""Seconds for which a process that ends in order tries to say so."""


class Process:
    """One process on a host of its own.

    Attributes:
        name: its host.
        is_alive: whether it runs; what it knew is gone when it starts again.
        is_frozen: it stands still, and all that comes for it waits.
    """

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.network = world.network
        self._time = world.network.clock
        self.is_alive = self.is_frozen = False
        self.is_ending = False
        self.life = self.turns = 0
        self.ahead = 0.0
        self._timer = None
        self._due = None
        self._is_woken = False

    def start(self):
        self.life += 1
        self.ahead = self.life * BOOTED
        self.is_alive, self.is_frozen, self.is_ending = True, False, False
        self._is_woken, self._timer = False, None
        self._turn_of_this_life = partial(self._turn, self.life)
        self.context = Context(self.network, self.name)
        self.begin()
        self.wake()

    def clock(self):
        """Return the seconds that its host counts."""
        return self._time.now + self.ahead

    def kill(self):
        if self.is_alive:
            self.is_alive = False
            self.network.kill(self.name)
            self._sleep()

    def end(self):
        """End in order: say goodbye, for a while."""
        if self.is_alive and not self.is_ending:
            self.is_ending = True
            self.begin_end()
            self.network.call_at(self.network.clock.now + CLOSING, partial(self._give_up, self.life))
            self.wake()

    def _give_up(self, life):
        if self.is_alive and self.is_ending and self.life == life:
            self.close()

    def close(self):
        self.is_alive = False
        self._sleep()
        self.context.closed = True
        for socket in list(self.context.sockets):
            socket.close(1000)

    def _sleep(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def freeze(self):
        self.is_frozen = True

    def thaw(self):
        if self.is_frozen:
            self.is_frozen = False
            self.wake()

    def wake(self):
        """Have it take its turn in a moment."""
        if not self._is_woken:
            self._is_woken = True
            self.network.call_soon(self._turn_of_this_life)

    def _turn(self, life):
        if life == self.life:
            self._is_woken = False
            self._take_turn()

    def _take_turn(self):
        if not self.is_alive or self.is_frozen:
            return
        self.turns += 1
        due = self.turn()
        if self.is_alive:
            self.wake_at(due)

    def wake_at(self, due):
        timer = self._timer
        if timer is not None:
            if timer.action is not None and due == self._due:
                return
            timer.action = self._timer = None
        self._due = due
        if due is not None:
            self._timer = self._time.call_at(due - self.ahead, self._take_turn)

    def socket(self, kind, **options):
        made = self.context.socket(kind)
        for name, value in options.items():
            made.set(getattr(zmq, name), value)
        made.notify = self.wake
        return made
