"""The side that publishes: a server that takes orders, and the publisher of one measurement at a time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

import zmq

import oz
from oz.cli.measuring.plan import (
    BEGIN,
    END,
    MAX_SECONDS,
    PING,
    PROBE,
    VERSION,
    BenchFailed,
    BenchPlan,
    answer,
    end_with_parent,
    stamp,
)
from oz.errors import OzError
from oz.transport.endpoints import needs_ipv6
from oz.transport.ipc_paths import SocketFiles
from oz.transport.socket import keep_tcp_alive, limit_peers

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
        self._files = SocketFiles()
        self._socket = self._context.socket(zmq.REP)
        keep_tcp_alive(self._socket)
        limit_peers(self._socket, most=_MOST_BYTES)
        try:
            self._socket.set(zmq.IPV6, needs_ipv6(endpoint))
            self._files.bind(self._socket, endpoint)
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
        self._files.remove_all()
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
        plan = BenchPlan.read(request["plan"])
        self._end_session()
        self._session = Session(plan, *self._places, self._attend)
        self._owner, self._heard_at, self._state = owner, time.monotonic(), {}
        return {"data": self._session.data, "echo": self._session.echo}


ARRIVAL_SECONDS = 10.0
"""How long subscribers are waited for."""

PATIENCE = 5.0
"""Seconds for which a subscriber may take nothing before it is given up."""

_PACE = 0.001
_LOOK_NS = 500_000
_CHUNK = 64
_CHUNK_BYTES = 1024 * 1024

Attend = Callable[[], bool]
"""Serves whoever measures; tells whether to stop."""


class Session:
    """Publishes what a plan asks for.

    Attributes:
        data: where subscribers find the publisher.
        echo: where messages to be sent back are taken, if latency is that of a round trip.
        published: messages given to `publish` as fast as possible.
    """

    def __init__(self, plan: BenchPlan, data: str, echo: str, attend: Attend) -> None:
        """Bind.

        Raises:
            zmq.ZMQError: an endpoint is in use, or not of this machine.
        """
        self._plan, self._attend = plan, attend
        limit = plan.high_water_mark
        self._publisher = oz.Publisher(data, on_full="block", full_timeout=PATIENCE, high_water_mark=limit)
        self._echo: oz.Subscriber | None = None
        if plan.is_echoed:
            try:
                self._echo = oz.Subscriber(bind=echo, filtering=plan.filtering)  # type: ignore[arg-type]
                self._echo.subscribe(PING)
            except BaseException:
                self.close()
                raise
        self.data = self._publisher.endpoint
        self.echo = self._echo.endpoint if self._echo is not None else None
        self._subjects, self._hits = plan.make_subjects()
        self._phase = 0
        self.published = 0

    def close(self) -> None:
        """Close, without waiting for subscribers."""
        self._publisher.close(timeout=0)
        if self._echo is not None:
            self._echo.close()

    def tend(self) -> None:
        """Let ZeroMQ take in who has come: a bound subscriber asks them only while it is used."""
        if self._echo is not None:
            with suppress(oz.Timeout):
                while True:
                    # What a subscriber sent before the publisher had ended is of no use any more.
                    self._echo.receive(timeout=0)

    def run(self, phase: str, seconds: float) -> dict[str, Any]:
        """Publish for a while.

        Args:
            phase: `lone` for lone messages, `loaded` for as fast as possible.
            seconds: how long.

        Returns:
            What was published, how much of it matches, and how long it took.

        Raises:
            BenchFailed: subscribers did not come, or took nothing.
        """
        self._await_subscribers()
        self._phase += 1
        self.published = 0
        try:
            self._publish_now(BEGIN, phase.encode())
            began = time.monotonic()
            if phase == "loaded":
                self._load(began + seconds)
            else:
                self._pace(began + seconds)
            # Flushing waits for no room, which the next message does.
            self._publish_now(END)
        except oz.WouldBlock:
            raise BenchFailed(f"a subscriber took nothing for {PATIENCE:g} s") from None
        cycles, rest = divmod(self.published, len(self._subjects))
        return {
            "published": self.published,
            "matching": cycles * self._hits[-1] + self._hits[rest],
            "seconds": time.monotonic() - began,
        }

    def _publish_now(self, subject: str, payload: bytes = b"") -> None:
        self._publisher.publish(subject, payload)
        self._publisher.flush()

    def _await_subscribers(self) -> None:
        wanted, deadline = self._plan.subscribers, time.monotonic() + ARRIVAL_SECONDS
        while not self._attend():
            self.tend()
            try:
                return self._publisher.wait_for_subscribers(wanted, subject=END, timeout=0.1)
            except oz.Timeout as error:
                if time.monotonic() > deadline:
                    raise BenchFailed(f"subscribers are missing: {error}") from None

    def _pace(self, deadline: float) -> None:
        """Publish messages that find everything idle."""
        while not self._attend() and time.monotonic() < deadline:
            if self._echo is not None:
                self._send_back(0.02)
            else:
                self._publisher.publish(PROBE, stamp(self._plan.size, self._phase))
                time.sleep(_PACE)

    def _load(self, deadline: float) -> None:
        """Publish as fast as possible, and a stamped message now and then."""
        publish, payload = self._publisher.publish, bytes(self._plan.size)
        chunk = max(1, min(_CHUNK, _CHUNK_BYTES // max(1, self._plan.size)))
        subjects = self._endless()
        look_at = 0
        while True:
            for subject in islice(subjects, chunk):
                publish(subject, payload)
            self.published += chunk
            now = time.monotonic_ns()
            if now >= look_at:
                look_at = now + _LOOK_NS
                self._probe()
                if self._attend() or now >= deadline * 1e9:
                    return

    def _endless(self) -> Iterator[str]:
        return cycle(self._subjects)

    def _probe(self) -> None:
        if self._echo is not None:
            self._send_back(0)
        else:
            self._publisher.publish(PROBE, stamp(self._plan.size, self._phase))

    def _send_back(self, seconds: float) -> None:
        assert self._echo is not None
        with suppress(oz.Timeout):
            self._publisher.publish(PROBE, self._echo.receive(timeout=seconds).payload)


if __name__ == "__main__":  # the process that publishes when `oz bench` measures on this machine alone
    end_with_parent()
    try:
        server = Server(sys.argv[1])
    except zmq.ZMQError as error:
        sys.exit(str(error))
    answer({"endpoint": server.endpoint})
    server.serve()
