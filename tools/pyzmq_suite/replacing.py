"""A pytest plugin that gives pyzmq's own tests oz's drop-in sockets for PUB, for SUB, or for both.

`OZ_REPLACES` names the types that are replaced ("PUB SUB"). `OZ_PROGRESS` names the file that gets a
line of JSON when a test begins, at the end of each of its phases, when it is over, and when all are.
pyzmq makes all other sockets.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio

_BLOCKING: dict[int, type[Any]] = {zmq.PUB: oz.PubSocket, zmq.SUB: oz.SubSocket}
_ASYNCIO: dict[int, type[Any]] = {zmq.PUB: oz.asyncio.PubSocket, zmq.SUB: oz.asyncio.SubSocket}
_made = 0
_replaced = {zmq.SocketType[name] for name in os.environ.get("OZ_REPLACES", "").split()}
_make = zmq.Context.socket
END = "the end of the process"


def _socket(context: Any, socket_type: int, socket_class: Any = None, **options: Any) -> Any:
    """Make a socket as `Context.socket` does, of oz's class where the context makes one of pyzmq's own."""
    global _made
    if socket_class is None and socket_type in _replaced:
        if context._socket_class is zmq.Socket:
            socket_class, _made = _BLOCKING[socket_type], _made + 1
        elif context._socket_class is zmq.asyncio.Socket:
            socket_class, _made = _ASYNCIO[socket_type], _made + 1
    return _make(context, socket_type, socket_class, **options)


zmq.Context.socket = _socket  # type: ignore[method-assign, assignment]


def _tell(**facts: Any) -> None:
    with Path(os.environ["OZ_PROGRESS"]).open("a", encoding="utf-8") as progress:
        progress.write(json.dumps(facts) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Report the start of a test, so that the parent knows the test of a process that dies or hangs."""
    _tell(test=nodeid, is_over=False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report how a phase of a test ended."""
    _tell(test=report.nodeid, outcome=report.outcome, text=report.longreprtext)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Report that a test is over, and how many drop-in sockets it made."""
    global _made
    _tell(test=nodeid, is_over=True, sockets=_made)
    _made = 0


def pytest_sessionfinish() -> None:
    """Report that no more tests come: nothing but the end of the process may take long now."""
    _tell(test=END, is_over=False)
