"""The side that publishes: it runs one measurement at a time, as the other side asks."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import zmq

from oz.cli.measuring.child import answer, end_with_parent
from oz.cli.measuring.plan import MAX_SECONDS, VERSION, BenchFailed, Plan
from oz.cli.measuring.session import Session
from oz.errors import OzError
from oz.transport.endpoints import needs_ipv6
from oz.transport.socket import keep_tcp_alive

LEASE = 5.0
"""Seconds without a word after which whoever measured is taken to be gone."""

_IDLE_MS, _BUSY_MS = 1000, 20
_ATTEND_SECONDS = 0.02
_MOST_BYTES = 10_000


def beside(endpoint: str, place: int) -> str:
    """Return the endpoint that lies so many places after another: the next port, or the next path."""
    scheme, _, address = endpoint.partition("://")
    if scheme != "tcp":
        return f"{endpoint}-{place}"
    host, _, port = address.rpartition(":")
    return f"tcp://{host}:{int(port) + place if port.isdecimal() else port}"


class Server:
    """Waits for orders.

    Attributes:
        endpoint: where; the two after it are for messages, or any two when it ends with `*`.
    """

    def __init__(self, endpoint: str) -> None:
        """Bind.

        Raises:
            zmq.ZMQError: the endpoint is in use, or not of this machine.
        """
        self._session: Session | None = None
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.linger = 0
        self._socket = self._context.socket(zmq.REP)
        keep_tcp_alive(self._socket)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MOST_BYTES)
        try:
            self._socket.set(zmq.IPV6, needs_ipv6(endpoint))
            self._socket.bind(endpoint)
        except zmq.ZMQError:
            self.close()
            raise
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self._places = (beside(endpoint, 1), beside(endpoint, 2))
        self._owner: object = None
        self._heard_at = self._attended_at = 0.0
        self._due: tuple[str, float] | None = None
        self._is_running = self._is_stopping = False
        self._state: dict[str, Any] = {}

    def close(self) -> None:
        """Close everything."""
        self._end_session()
        self._socket.close()
        self._context.term()

    def serve(self) -> None:
        """Do what is asked for, until an exception such as Ctrl-C ends it."""
        while True:
            self._answer_all(_IDLE_MS if self._session is None else _BUSY_MS)
            if self._session is None:
                continue
            if self._is_abandoned:
                self._end_session()
            elif self._due is not None:
                self._run(self._session, *self._due)
            else:
                self._session.tend()

    def _run(self, session: Session, phase: str, seconds: float) -> None:
        self._due, self._is_running, self._is_stopping = None, True, False
        try:
            self._state = {"outcome": session.run(phase, seconds)}
        except (OzError, zmq.ZMQError) as error:
            self._state = {"error": str(error)}
        finally:
            self._is_running = False

    def _attend(self) -> bool:
        """Answer what has come meanwhile; tell whether to stop. It costs little when called often."""
        now = time.monotonic()
        if now - self._attended_at >= _ATTEND_SECONDS:
            self._attended_at = now
            self._answer_all(0)
        return self._is_stopping or self._is_abandoned

    @property
    def _is_abandoned(self) -> bool:
        return time.monotonic() - self._heard_at > LEASE

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._due = self._owner = None

    def _answer_all(self, milliseconds: int) -> None:
        if self._socket.poll(milliseconds):
            raw = self._socket.recv()
            try:
                said = self._answer(json.loads(raw))
            except (OzError, zmq.ZMQError) as error:
                said = {"error": str(error)}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                said = {"error": f"not understood: {error!r}"}
            self._socket.send(json.dumps(said).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one request.

        Raises:
            BenchFailed: it cannot be done.
            ValueError, KeyError, TypeError, AttributeError: it is no request.
        """
        order, owner = request["do"], request["session"]
        if order == "hello":
            return {}
        if order == "start":
            return self._start(request, owner)
        if self._session is None or owner != self._owner:
            raise BenchFailed("the publisher has given this measurement up")
        self._heard_at = time.monotonic()
        if order in ("lone", "loaded"):
            seconds = float(request["seconds"])
            if not 0 < seconds <= MAX_SECONDS:
                raise BenchFailed(f"out of bounds: {seconds} s")
            self._due, self._state = (order, seconds), {}
        elif order == "stop":
            self._is_stopping = True
        elif order == "finish":
            # Whatever runs is inside the session: it ends by itself first.
            self._heard_at = -LEASE
        elif order != "look":
            raise BenchFailed(f"cannot do {order!r}")
        return self._state

    def _start(self, request: dict[str, Any], owner: object) -> dict[str, Any]:
        if request["version"] != VERSION:
            raise BenchFailed(f"this side speaks version {VERSION}, the other {request['version']!r}")
        if self._is_running or (self._session is not None and owner != self._owner):
            raise BenchFailed("somebody else is measuring; try again later")
        plan = Plan.read(request["plan"])
        self._end_session()
        self._session = Session(plan, *self._places, self._attend)
        self._owner, self._heard_at, self._state = owner, time.monotonic(), {}
        return {"data": self._session.data, "echo": self._session.echo}


if __name__ == "__main__":  # the process that publishes when `oz bench` measures on this machine alone
    end_with_parent()
    try:
        server = Server(sys.argv[1])
    except zmq.ZMQError as error:
        sys.exit(str(error))
    answer({"endpoint": server.endpoint})
    server.serve()
