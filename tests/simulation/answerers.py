"""Publishers of a run that answer what they are asked, and say which declarations they hold."""

from __future__ import annotations

from collections import Counter
from functools import cache

from oz.protocol.subscriber.absences import Link
from oz.wire.batch import CONTROL, head_end, head_start, pack_control
from oz.wire.denials import Denial, fields_of
from oz.wire.keys import DECLARATION, STREAM, stream_key, stream_of
from oz.wire.keys import parse_declaration as parsed

STEADY = 4.0
"""Seconds for which nothing has gone wrong with a publisher that counts as one that answers."""

SECRET = "secret"
"""How patterns begin that publishers deny."""

parse_declaration = cache(parsed)


class Answerer:
    """A publisher that says what it holds.

    Attributes:
        told: the keys that it holds.
        troubled_at: when something went wrong with it last.
        ended: "died" or "said goodbye", and when.
    """

    def __init__(self, world, number):
        self.world, self.origin = world, bytes([number + 1]) * 16
        self.told, self.sequence = set(), Counter()
        self.is_mute, self.troubled_at, self.ended, self.heard_at = False, -10.0, None, None
        self.descriptor, self.is_local = number, world.random.random() < 0.3
        self.is_connected = False

    @property
    def link(self):
        return Link(self.descriptor, self.inode, self.is_local)

    def connect(self):
        """Have a connection, over which all comes that is asked for."""
        if self.ended:
            return
        self.is_connected = True
        self.inode = self.world.new_inode(self.descriptor)
        for key in sorted(self.world.asked):
            self.hear(key, comes=True)

    def hear(self, key, *, comes):
        """Take in that something is asked for, or no longer."""
        if not self.is_connected:
            return
        (self.told.add if comes else self.told.discard)(key)
        if comes:
            own = stream_key(stream_of(key)) if key.startswith(DECLARATION) else key
            self.world.call(self.world.random.uniform(0.005, 0.04), lambda: self.answer(own))

    def holds(self, name):
        """Return the declarations that it holds of a stream."""
        begins = DECLARATION + name
        return [parse_declaration(key) for key in self.told if key.startswith(begins)]

    def answer(self, key):
        """Say which declarations of a stream it holds, and which it denies."""
        if self.is_mute or key not in self.told:
            return
        live, refused = [], {}
        for one in self.holds(key[len(STREAM) :]) if key.startswith(STREAM) else ():
            denied = [SECRET in pattern.text.decode() for pattern in one.patterns]
            if any(denied):
                text = next(p.text.decode() for p in one.patterns if SECRET in p.text.decode())
                refused[one.chunk] = Denial(f"{text} is secret", "the rule", text)
            if not (denied and all(denied)):
                live.append(one.chunk)
        body = pack_control(live=live, refused=refused, denied=fields_of(refused), paths=1)
        self.say(key, body if key.startswith(STREAM) else b"")

    def beat(self):
        """Say where it stands, once a second."""
        if self.ended:
            return
        for key in sorted(self.told):
            if key[:3] != DECLARATION:
                self.say(key, b"")
        self.world.call(1.0, self.beat)

    def say(self, key, body):
        if self.is_connected and not self.ended:
            head = head_start(key, CONTROL, self.origin, 1) + head_end(self.sequence[key], 0)
            self.world.receive(self, head + body)

    def is_steady(self):
        """Tell whether it answers as one does with which nothing is wrong."""
        return self.is_connected and not self.ended and self.world.now - self.troubled_at > STEADY
