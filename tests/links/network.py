"""Model of ROUTER to ROUTER connections: pipes, cuts, half-open directions, stalls, full pipes, late reads.

A `Handle` is the dialling end: its name and its pipes survive reconnections of libzmq. A `Connection` is one
transport connection. The listening end of a connection stays readable after a cut. A new connection
takes over the name of the old one: frames that are read late then come from another routing id.
"""

from collections import deque


class Handle:
    """Dialling end of a link, made by `connect` with a CONNECT_ROUTING_ID."""

    def __init__(self, name):
        self.name = name
        self.outgoing, self.incoming = deque(), deque()
        self.connection = None
        self.is_closed = False


class Connection:
    """One transport connection between a handle and a listener."""

    def __init__(self, name, handle):
        self.name, self.handle = name, handle
        self.to_publisher, self.to_subscriber = deque(), deque()
        self.is_alive = self.is_known = True
        self.loses_up = self.loses_down = self.is_stalled = self.is_late = False
        self.room = 10**6
        self.half_open_since = None

    def transfer(self, count):
        """Carry up to `count` frames in each direction."""
        if not self.is_alive or self.is_stalled:
            return
        down, up = self.to_subscriber, self.handle.outgoing
        for _ in range(min(count, len(down))):
            frame = down.popleft()
            if not self.loses_down:
                self.handle.incoming.append(frame)
        for _ in range(min(count, len(up))):
            frame = up.popleft()
            if not self.loses_up:
                self.to_publisher.append(frame)


class Listener:
    """Listening ROUTER: names of connections, EAGAIN and EHOSTUNREACH."""

    def __init__(self, choose, high_water_mark):
        self._choose, self._high_water_mark = choose, high_water_mark
        self.by_name = {}
        self.connections = []

    def accept(self, handle):
        """Connect a handle; a connection of the same name loses its name."""
        for old in self.connections:
            # libzmq keeps the name of an ended pipe until its last frame is read, and hands it over then.
            if old.name == handle.name:
                old.name = b"late" + self._choose.randbytes(8)
                old.is_known = False
        connection = handle.connection = Connection(handle.name, handle)
        self.by_name[handle.name] = connection
        self.connections.append(connection)
        connection.to_subscriber.append(b"")
        return connection

    def send(self, name, frame):
        """Return "ok", "EAGAIN" or "EHOSTUNREACH"."""
        connection = self.by_name.get(name)
        if connection is None:
            return "EHOSTUNREACH"
        waiting = len(connection.to_subscriber)
        if waiting >= self._high_water_mark or connection.room <= 0:
            return "EAGAIN"
        connection.room -= 1
        if connection.is_alive:
            connection.to_subscriber.append(frame)
        return "ok"

    def notice(self, connection):
        """Learn that a connection has ended."""
        connection.is_known = False
        if self.by_name.get(connection.name) is connection:
            del self.by_name[connection.name]

    def forget(self):
        """Remove connections that have ended and are read."""
        self.connections = [
            one for one in self.connections if one.is_alive or one.is_known or one.to_publisher
        ]


def cut(connection):
    """End a connection at both ends; frames on the way to the subscriber are lost."""
    connection.is_alive = False
    connection.to_subscriber.clear()
    if connection.handle.connection is connection:
        connection.handle.connection = None
