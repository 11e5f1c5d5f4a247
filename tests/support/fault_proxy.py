"""TCP proxy with the faults of a network. It runs on asyncio in a thread of its own.

- `cut`: end connections by RST, which loses bytes on their way, or by FIN.
- `stall`: pass nothing on until `resume`, in both directions or in one. Both ends keep their connections.
- `discard`: read and lose all bytes of one direction. Both ends keep their connections.
- `half_open`: reset one end of each connection. The other end stays open and gets no more bytes.
- `throttle`: limit the bytes a second.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress

_CHUNK = 16_384
_RESET = struct.pack("ii", 1, 0)
_PATIENCE = 30.0
_DIRECTIONS = ("up", "down")


class _Link:
    """One connection. The near end connected to the proxy."""

    def __init__(self, near, far, count):
        self.near, self.far, self.count = near, far, count
        self.may_pass = {"up": asyncio.Event(), "down": asyncio.Event()}
        for item in self.may_pass.values():
            item.set()
        self.rate = None
        self.discarded = set()
        self.tasks = [asyncio.ensure_future(self._pump(near[0], far[1], "up"))]
        self.tasks.append(asyncio.ensure_future(self._pump(far[0], near[1], "down")))

    async def _pump(self, reader, writer, direction):
        may_pass = self.may_pass[direction]
        with suppress(OSError):
            while True:
                await may_pass.wait()
                data = await reader.read(_CHUNK if self.rate is None else max(1, self.rate // 50))
                # Bytes that were read when the stall began wait too.
                await may_pass.wait()
                if not data:
                    break
                if direction in self.discarded:
                    continue
                self.count(len(data))
                writer.write(data)
                await writer.drain()
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
        # One end has closed: close the other end too.
        for _, item in (self.near, self.far):
            item.close()

    def end(self, *, reset, ends=("near", "far")):
        for task in self.tasks:
            task.cancel()
        for _, writer in (getattr(self, end) for end in ends):
            if reset:
                with suppress(OSError):
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()


class FaultProxy:
    """Proxy between a publisher and the peers that connect to `endpoint`.

    Attributes:
        passed: bytes that were passed on, in both directions.
        accepted: number of connections that were accepted.
    """

    def __init__(self, upstream, address=("127.0.0.1", 0)):
        """Listen.

        Args:
            upstream: endpoint of the publisher, `tcp://host:port`.
            address: host and port of the proxy; port 0 is any port.
        """
        self.pass_on_to(upstream)
        self.passed = self.accepted = 0
        self._accepting = set()
        self._links = []
        self._stale = []
        self._stalled = set()
        self._rate = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # A server of asyncio leaves connections open that it has just accepted when it closes.
        self._listener = socket.create_server(address)
        self._listener.setblocking(False)
        self.endpoint = "tcp://{}:{}".format(*self._listener.getsockname())
        self._call(self._listen())

    def pass_on_to(self, upstream):
        """Pass new connections on to another endpoint."""
        host, _, port = upstream.removeprefix("tcp://").rpartition(":")
        self._upstream = host, int(port)

    def _count(self, size):
        self.passed += size

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _listen(self):
        self._loop.add_reader(self._listener, self._take)

    def _take(self):
        with suppress(OSError):
            task = self._loop.create_task(self._accept(self._listener.accept()[0]))
            self.accepted += 1
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _accept(self, caller):
        try:
            far = await asyncio.open_connection(*self._upstream, limit=_CHUNK)
        except OSError:
            caller.close()
            return
        caller.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=caller, limit=_CHUNK)
        for item in (writer, far[1]):
            item.transport.set_write_buffer_limits(high=_CHUNK)
        link = _Link((reader, writer), far, self._count)
        link.rate = self._rate
        for direction in self._stalled:
            link.may_pass[direction].clear()
        self._links.append(link)

    # faults ----------------------------------------------------------------------------------------------

    def cut(self, how="rst"):
        """End every connection, by `"rst"` or `"fin"`. New connections pass."""
        self._call(self._cut(how))

    async def _cut(self, how):
        links, self._links = self._links, []
        for link in links:
            link.end(reset=how == "rst")

    def half_open(self, end="near"):
        """Reset one end of each connection; the other end stays open until the proxy closes.

        Args:
            end: `"near"` resets the ends that connected to the proxy, `"far"` the ends at the upstream.
        """
        self._call(self._half_open(end))

    async def _half_open(self, end="near"):
        links, self._links = self._links, []
        other = "far" if end == "near" else "near"
        for link in links:
            link.end(reset=True, ends=(end,))
            # asyncio must not read the bytes that still arrive.
            with suppress(RuntimeError):
                getattr(link, other)[1].transport.pause_reading()
            self._stale.append((link, other))

    async def _release(self):
        stale, self._stale = self._stale, []
        for link, end in stale:
            link.end(reset=True, ends=(end,))

    def stall(self, *directions):
        """Pass nothing on until `resume`. Connections that are accepted meanwhile stall too.

        Args:
            directions: `"up"` to the upstream, `"down"` from it; none for both.
        """
        self._call(self._stall(set(directions or _DIRECTIONS)))

    def resume(self):
        """Pass on in both directions."""
        self._call(self._stall(set()))

    async def _stall(self, directions):
        self._stalled = directions
        for link in self._links:
            for direction, may_pass in link.may_pass.items():
                (may_pass.clear if direction in directions else may_pass.set)()

    def discard(self, *directions):
        """Lose all further bytes of the connections that exist. New connections pass.

        Args:
            directions: `"up"` to the upstream, `"down"` from it.
        """
        self._call(self._discard(directions))

    async def _discard(self, directions):
        for link in self._links:
            link.discarded.update(directions)

    def throttle(self, rate):
        """Limit the bytes a second in each direction of a connection; None for no limit."""
        self._call(self._throttle(rate))

    async def _throttle(self, rate):
        self._rate = rate
        for link in self._links:
            link.rate = rate

    def close(self):
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
            self._loop.close()

    async def _close(self):
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await self._release()
        await self._cut("rst")
        # A cancelled `_accept` would leave its connection open, so it runs to its end.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
            await self._release()
            await self._cut("rst")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
