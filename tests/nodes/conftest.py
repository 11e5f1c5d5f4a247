"""Nodes of both kinds for tests that are written without a loop.

`make(name, **options)` returns a node. An asyncio node lives in a loop in a thread of its own: each call is a
coroutine there. Nodes of a test meet in a directory of the test, on a bus of its own.
"""

import shutil
import tempfile

import pytest

from oz.node import aio, sync
from oz.node.loop_asking import AsyncReplies
from oz.options import NodeOptions
from support import looped


class Looped(looped.Looped):
    """Object of asyncio whose calls wait until they are done in its loop."""

    def _wrap(self, found):
        return LoopedReplies(self._call, found) if isinstance(found, AsyncReplies) else super()._wrap(found)


class LoopedReplies:
    """Iterator over replies in a loop."""

    def __init__(self, call, replies):
        self._call, self._replies = call, replies

    def __iter__(self):
        return self

    def __next__(self):
        async def step():
            # A coroutine cannot raise StopIteration.
            async for found in self._replies:
                return [found]
            return []

        found = self._call(step)
        if not found:
            raise StopIteration
        return found[0]


class Nodes:
    """Factory of nodes."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        self._loop = looped.Loop() if kind == "asyncio" else None
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
            made = Looped(self._loop.call, self._loop.call(aio.Node, name, **options))
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
def directory():
    """Directory with a short path, because the path of a socket has at most 107 bytes."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(params=["sync", "asyncio"])
def make(request, directory):
    nodes = Nodes(request.param, directory)
    yield nodes
    nodes.close()
