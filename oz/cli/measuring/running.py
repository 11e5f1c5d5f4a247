"""The side that measures: it starts the others, orders what to publish, and asks subscribers what came."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import zmq

from oz.cli.measuring.plan import VERSION, BenchFailed, BenchPlan, Latency, Result
from oz.system import sigint_blocked
from oz.transport.endpoints import needs_ipv6
from oz.transport.socket import keep_tcp_alive, limit_peers

_KILL_SECONDS = 2.0


class Child:
    """A child process, which never outlives its parent."""

    def __init__(self, what: str, module: str, argument: str) -> None:
        """Start a module of this package.

        Args:
            what: it is, for messages.
            module: its name.
            argument: the only one it gets.
        """
        self._what = what
        # The process inherits the mask, and so leaves Ctrl-C to us.
        with sigint_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.{module}", argument],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        self._said = b""

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Wait so long for an answer.

        Raises:
            BenchFailed: the process has ended.
        """
        deadline = time.monotonic() + seconds
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._said:
            readable, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            more = os.read(out.fileno(), 65_536)
            if not more:
                raise BenchFailed(self._last_words())
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def finish(self) -> None:
        """Ask it for what it has, and to end; `hear` waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.terminate()
        try:
            self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        status = self._process.wait()
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return f"{self._what} ended with status {status}: {lines[-1] if lines else 'it said nothing'}"


PHASES = ("lone", "loaded")

ANSWER_SECONDS = 10.0
"""How long the other side may take to be there."""

_LOOK_SECONDS = 0.1
_START_SECONDS = 20.0
_HEAR_SECONDS = 10.0
_FINISH_SECONDS = 1.0
_END_SECONDS = 30.0
"""How long subscribers may take for what is in the queues when the publisher has ended."""

Progress = Callable[[str, float], None]
"""Is called with what is measured, and with the seconds of measuring that are over."""


class Orders:
    """The way to the publisher."""

    def __init__(self, endpoint: str) -> None:
        """Connect, to somebody who may not be there yet."""
        self._endpoint = endpoint
        self._name = os.urandom(8).hex()
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.linger = 0
        self._socket = self._context.socket(zmq.REQ)
        keep_tcp_alive(self._socket)
        limit_peers(self._socket)
        # An answer that did not come in time does not end it, and does not pass for the next one.
        self._socket.setsockopt(zmq.REQ_RELAXED, 1)
        self._socket.setsockopt(zmq.REQ_CORRELATE, 1)
        try:
            self._socket.set(zmq.IPV6, needs_ipv6(endpoint))
            self._socket.connect(endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        """Close."""
        self._socket.close()
        self._context.term()

    def greet(self) -> None:
        """Wait until the publisher answers.

        Raises:
            BenchFailed: nobody does, or not a publisher.
        """
        self.give("hello", ANSWER_SECONDS)

    def give(self, order: str, within: float = _HEAR_SECONDS, **more: Any) -> dict[str, Any]:
        """Return an order.

        Raises:
            BenchFailed: it cannot be done, or nobody answers.
        """
        self._socket.send(json.dumps({"do": order, "session": self._name, **more}).encode())
        if not self._socket.poll(round(within * 1000)):
            raise BenchFailed(f"no `oz bench --listen` answered at {self._endpoint} for {within:g} s")
        try:
            answer: dict[str, Any] = json.loads(self._socket.recv())
            error = answer.get("error")
        except (ValueError, AttributeError):
            raise BenchFailed(f"what answers at {self._endpoint} is no `oz bench --listen`") from None
        if error is not None:
            raise BenchFailed(f"{self._endpoint}: {error}")
        return answer


class BenchRun:
    """Measures, and keeps what it has.

    Attributes:
        results: one for each plan so far; the last may lack what Ctrl-C prevented.
    """

    def __init__(self, orders: Orders, endpoint: str, progress: Progress) -> None:
        """Start without results."""
        self._orders, self._endpoint, self._progress = orders, endpoint, progress
        self._over = 0.0
        self.results: list[Result] = []

    def measure(self, plan: BenchPlan) -> None:
        """Measure one plan.

        Raises:
            BenchFailed: the publisher or a subscriber failed.
            KeyboardInterrupt: after what was measured so far was taken down.
        """
        started = self._orders.give("start", version=VERSION, plan=asdict(plan))
        ends = {name: _as_seen(started[name], self._endpoint) for name in ("data", "echo")}
        try:
            self._measure(plan, ends)
        finally:
            with suppress(BenchFailed):
                self._orders.give("finish", _FINISH_SECONDS)

    def _measure(self, plan: BenchPlan, ends: dict[str, str | None]) -> None:
        with _subscribers(plan, ends) as children:
            for child in children:
                if self._hear(child, _START_SECONDS) is None:
                    raise BenchFailed("a subscriber process did not start in time; is the machine busy?")
            result = Result(plan.filtering, plan.size)
            for phase in PHASES:
                is_cut_short = self._do(phase, plan, children, result)
                if is_cut_short:
                    raise KeyboardInterrupt

    def _do(self, phase: str, plan: BenchPlan, children: Sequence[Child], result: Result) -> bool:
        """Measure one phase; tell whether Ctrl-C cut it short."""
        is_cut_short = False
        seconds = plan.seconds / len(PHASES)
        self._orders.give(phase, seconds=seconds)
        try:
            load = self._watch(phase, plan, seconds)
        except KeyboardInterrupt:
            is_cut_short = True
            self._orders.give("stop")
            load = self._watch(phase, plan, 0.0)
        reports = self._hear_all(children)
        times = [taken for report in reports for taken in report["times"]]
        result.latency[phase] = Latency.of(times)
        if phase == "loaded":
            result.take_load(load, reports)
        if result not in self.results:
            self.results.append(result)
        self._over += seconds
        return is_cut_short

    def _watch(self, phase: str, plan: BenchPlan, seconds: float) -> dict[str, Any]:
        """Wait until the publisher is through, asking again and again, which it takes for a sign of life."""
        began = time.monotonic()
        while True:
            outcome: dict[str, Any] | None = self._orders.give("look").get("outcome")
            self._progress(f"{plan.filtering}, {phase}", self._over + min(seconds, time.monotonic() - began))
            if outcome is not None:
                return outcome
            time.sleep(_LOOK_SECONDS)

    def _hear_all(self, children: Sequence[Child]) -> list[dict[str, Any]]:
        """Take the reports; of a subscriber that never saw the end, what it has."""
        deadline = time.monotonic() + _END_SECONDS
        reports = []
        for child in children:
            report = self._hear(child, deadline - time.monotonic())
            if report is None:
                child.finish()
                report = self._hear(child, _HEAR_SECONDS)
            if report is None:
                raise BenchFailed("a subscriber process stands still")
            reports.append(report)
        return reports

    def _hear(self, child: Child, seconds: float) -> dict[str, Any] | None:
        """Wait for an answer; meanwhile the publisher must be told that somebody is still here."""
        deadline = time.monotonic() + seconds
        while (answer := child.hear(_LOOK_SECONDS)) is None and time.monotonic() < deadline:
            self._orders.give("look")
        return answer


@contextmanager
def _subscribers(plan: BenchPlan, ends: dict[str, str | None]) -> Iterator[list[Child]]:
    children: list[Child] = []
    try:
        for number in range(plan.subscribers):
            given = {"plan": asdict(plan), "number": number, **ends}
            children.append(Child("a subscriber process", "subscribing", json.dumps(given)))
        yield children
    finally:
        for child in children:
            child.end()


def _as_seen(endpoint: str | None, reached: str) -> str | None:
    """Return an endpoint of the publisher as it is reached from here: its port, on the host of the other."""
    if endpoint is None or not endpoint.startswith("tcp://"):
        return endpoint
    return f"{reached.rpartition(':')[0]}:{endpoint.rpartition(':')[2]}"
