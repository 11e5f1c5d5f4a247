"""Connections that take as many frames as a run says, behind a sink that refuses what has no room."""

from __future__ import annotations

from collections import defaultdict

from oz.wire.batch import key_size

ENDLESS = 10**9


class Pipe:
    """What one connection has of a stream.

    Attributes:
        most: frames that fit.
        waiting: how many are not read yet.
        taken: what was taken, frames of each.
        is_left_out: it is passed over until the sink has looked.
    """

    def __init__(self, most):
        self.most, self.waiting, self.taken = most, 0, []
        self.is_left_out = False

    def has_room(self):
        return self.waiting < self.most

    def put(self, frames):
        self.waiting += 1
        self.taken.append(frames)


class Room:
    """A sink as ZeroMQ is one: it refuses what one connection has no room for, or leaves that one out.

    Attributes:
        pipes: the connections that listen on each key.
    """

    def __init__(self, world):
        self.world, self.pipes = world, defaultdict(list)
        self.is_lossless, self.refused_at = True, {}

    def try_send(self, frames, backlog=None):
        key = frames[0][: key_size(frames[0])]
        there = [one for one in self.pipes[key] if not one.is_left_out]
        if self.is_lossless and not all(one.has_room() for one in there):
            self.refused_at.setdefault(key, self.world.now)
            return False
        self.refused_at.pop(key, None)
        for one in there:
            if one.has_room():
                one.put(frames)
        return True

    def try_send_one(self, frame):
        return self.try_send((frame,))

    def send_past_the_full(self, frames):
        key = frames[0][: key_size(frames[0])]
        self.world.left_out(key)
        for one in self.pipes[key]:
            if one.has_room() and not one.is_left_out:
                one.put(frames)
            else:
                one.is_left_out = True

    def look(self):
        for pipes in self.pipes.values():
            for one in pipes:
                one.is_left_out = one.is_left_out and not one.has_room()

    def make_lossless(self):
        self.is_lossless = True

    def make_lossy(self):
        self.is_lossless = not self.world.drops
