"""Nodes of both kinds for tests that are written without a loop.

`make(name, **options)` returns a node. An asyncio node lives in a loop in a thread of its own: each call is a
coroutine there. Nodes of a test meet in a directory of the test, on a bus of its own.
"""

import pytest

from oz.node import aio, sync
from oz.node.loop_asking import AsyncReplies
from oz.options import NodeOptions
from support.shells import Blocking, Portal


class Looped(Blocking):
    """Object of asyncio whose calls block until they have ended in its loop."""

    @property
    def wrapped(self):
        return self.raw

    def call(self, name, *arguments, **options):
        made = self.shell.call(getattr(self.raw, name), *arguments, **options)
        if isinstance(made, AsyncReplies):
            return self.shell.iterate(made)
        return Looped(self.shell, made) if isinstance(made, aio.Subscription) else made


class Nodes:
    """Factory of nodes."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        self._loop = Portal() if kind == "asyncio" else None
        self.made = []

    def __call__(self, name=None, *, directory=None, bus="test", **options):
        own = {
            option: options.pop(option)
            for option in list(options)
            if option in NodeOptions.__dataclass_fields__
        }
        options = {
            "bus": bus,
            "options": NodeOptions(directory=directory or self.directory, **own),
            **options,
        }
        if self._loop is None:
            made = sync.Node(name, **options)
        else:
            made = Looped(self._loop, self._loop.call(aio.Node, name, **options))
        self.made.append(made)
        return made

    def close_nodes(self):
        for item in self.made:
            item.close(timeout=0)

    def close(self):
        self.close_nodes()
        if self._loop is not None:
            self._loop.close()


@pytest.fixture
def make(kind, directory):
    nodes = Nodes(kind, directory)
    yield nodes
    nodes.close()
