"""Name servers and forwarders on the virtual clock of a bus for tests.

Services make their engines and read the clock by themselves. The functions here replace both while a service is
created, and attend to it in the loop of the bus in place of a thread.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

from oz.services import Forwarder, NameServer, bridge, bridge_leg, name_server, service
from oz.testing.context import Context
from oz.testing.nodes import VirtualEngine
from oz.transport.steps import run_async

CLOSE_TIMEOUT = 5.0
"""Virtual seconds that a service may take to close."""
LOOK = 0.01
"""Virtual seconds between two polls of a service that closes."""


class _LegEngine(VirtualEngine, bridge_leg.LegEngine):
    """Node of a forwarder on a virtual network."""


class SimulatedService:
    """Service that runs in the loop of a bus.

    Attributes:
        host: name for faults.
        service: object of `oz.services`.
        closed: whether it was closed or killed.
    """

    def __init__(self, bus, host, create):
        self.host, self.closed, self._is_closing = host, False, False
        self._network = bus.network
        self.place = context = Context(bus.network, host)
        shim = SimpleNamespace(urandom=bus.network.random.randbytes, getpid=lambda: 1)
        with ExitStack() as stack:
            for owner, name, value in (
                (name_server, "Engine", partial(VirtualEngine, context=context)),
                (bridge_leg, "LegEngine", partial(_LegEngine, context=context)),
                (bridge, "os", shim),
            ):
                stack.enter_context(patch.object(owner, name, value))
            self.service = create()
        # The bus closes it, not the end of the program.
        service._open.discard(self.service)
        self.service._bell.close()
        self._engine = engine = self.service._service_engine
        self._loop, self._descriptors, self._timer = asyncio.get_running_loop(), (), None
        self._is_scheduled = False
        engine.wake = self._wake
        self._wake()

    def _wake(self):
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self):
        self._is_scheduled = False
        if self.closed and not self._is_closing:
            return
        engine, loop = self._engine, self._loop
        has_more = engine.attend(flushes=True)
        engine.is_resting = True
        for descriptor in engine.descriptors():
            if descriptor not in self._descriptors:
                loop.add_reader(descriptor, self._turn)
        self._descriptors = engine.descriptors()
        if has_more:
            self._wake()
        if self._timer is not None:
            self._timer.cancel()
        deadline = engine.next_deadline()
        if deadline is not None:
            self._timer = loop.call_later(max(deadline - self.place.runtime.clock(), 0.0), self._turn)

    async def close(self):
        """Close in order."""
        self.closed = self._is_closing = True

        async def wait(until):
            await asyncio.sleep(LOOK)

        end = await run_async(self._engine.acknowledgements(CLOSE_TIMEOUT), wait)
        self._stop()
        self._engine.finish(end)

    def kill(self):
        """End the service without BYE, as `kill -9` does."""
        self.closed = True
        self._network.kill(self.host)
        self._stop()

    def _stop(self):
        self._is_closing = False
        if self._timer is not None:
            self._timer.cancel()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)


def start_name_server(bus, host, bind, connect=()):
    """Start a name server of any number of buses."""
    return SimulatedService(bus, host, lambda: NameServer(bind, name=host, connect=connect))


def start_forwarder(bus, host, legs):
    """Start a forwarder."""
    return SimulatedService(bus, host, lambda: Forwarder(legs, name=host))
