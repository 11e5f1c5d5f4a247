"""Nodes of a process that can stand still for a while, as one does by SIGSTOP or on a starved host."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import blake2b

from oz.configuration.settings import DEFINITIONS
from oz.testing.nodes import VirtualNode
from oz.testing.places import VirtualDirectory, VirtualProcess
from oz.transport.node.opening import node_settings
from oz.transport.node.publisher import make_uuid


class Gate:
    """Stands open while a process runs."""

    def __init__(self):
        self._opened = asyncio.Event()
        self._opened.set()
        self.is_shut = False

    def shut(self):
        self.is_shut = True
        self._opened.clear()

    def open(self):
        self.is_shut = False
        self._opened.set()


class Pausable:
    """A coroutine that goes on only while the gate of its process stands open."""

    def __init__(self, coroutine, gate):
        self._coroutine, self._gate = coroutine, gate

    def __await__(self):
        step, value = self._coroutine.send, None
        while True:
            try:
                waited = step(value)
            except StopIteration as end:
                return end.value
            try:
                step, value = self._coroutine.send, (yield waited)
            except BaseException as error:
                step, value = self._coroutine.throw, error
            while self._gate.is_shut:
                try:
                    yield from self._gate._opened.wait().__await__()
                except asyncio.CancelledError as error:
                    # Whoever ends a process that stands still ends it; a timeout is told when it goes on.
                    step, value = self._coroutine.throw, error


class Machine(VirtualProcess):
    """A host of its own, which reaches others over TCP only: a network can cut that."""

    def _meet(self, _, bus, uuid, key):
        known_by = blake2b(self.host.encode(), digest_size=16).digest()
        return VirtualDirectory(self.context.network, self.host, uuid), known_by


class PausableNode(VirtualNode):
    """The tasks of a node in a process with a gate."""

    def __init__(self, network, host, gate, **options):
        self.place = place = Machine(network, host)
        self._gate = gate
        defaults = {one.name: one.default() for one in DEFINITIONS}
        settings = node_settings(**(defaults | options | {"name": host}))
        uuid = make_uuid(place.context.backend.random_bytes)
        super().__init__(replace(settings, uuid=uuid), place.kinds)

    async def _receive(self):
        await Pausable(super()._receive(), self._gate)

    async def _attend(self):
        await Pausable(super()._attend(), self._gate)

    async def _read(self, endpoint):
        await Pausable(super()._read(endpoint), self._gate)
