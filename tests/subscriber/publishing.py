"""A small publisher of links: the pure `Sessions` over a listening ROUTER, in a thread."""

import os
import queue
import socket
import threading
import time
from contextlib import suppress

import zmq

from oz.publisher.session import Settings
from oz.publisher.sessions import Sessions
from oz.transport.routers import PORT_DISTANCE, link_endpoint, listening_router
from support.ports import lasting_port
from support.waiting import until


class LinkPublisher:
    """Publisher of links without plain subscribers.

    `stall` stops the thread until `resume`, as a busy program does.
    """

    def __init__(
        self, endpoint=None, context=None, authorize=None, last_values=None, has_plain=False, **settings
    ):
        self.endpoint = endpoint or free_endpoint()
        self.link_endpoint = link_endpoint(self.endpoint)
        self._context = context or zmq.Context.instance()
        self._own_context = context is None
        more = {} if authorize is None else {"authorize": authorize}
        self.settings = Settings(**settings)
        self.sessions = Sessions(
            os.urandom(16), self.settings, lambda: os.urandom(16), last_values=last_values, **more
        )
        self.origin = self.sessions.origin
        self.router = listening_router(self._context, message_bytes=64 << 20, window=1_024)
        self.router.setsockopt(zmq.IPV6, 1)
        self._bind(self.router, self.link_endpoint)
        self.plain = None
        if has_plain:
            self.plain = self._context.socket(zmq.XPUB)
            self.plain.setsockopt(zmq.LINGER, 0)
            self._bind(self.plain, self.endpoint)
        self._calls = queue.SimpleQueue()
        self._running = threading.Event()
        self._running.set()
        self._is_closed = False
        self.raw = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _bind(self, listener, endpoint):
        def bound():
            try:
                listener.bind(endpoint)
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
                return False
            return True

        until(bound)

    def _run(self):
        while not self._is_closed:
            self._running.wait()
            with suppress(queue.Empty):
                while True:
                    call, done, result = self._calls.get_nowait()
                    result.append(call())
                    done.set()
            if self._is_closed:
                break
            self._step()
            if not self.router.poll(1):
                self.sessions.tick(time.monotonic())
        self.router.close(0 if self._is_killed else 500)
        if self.plain is not None:
            self.plain.close(0)

    _is_killed = False

    def _step(self):
        for _ in range(100):
            try:
                route, *frames = self.router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(frames) == 1:
                self.sessions.on_frame(route, frames[0], time.monotonic())
        while self.sessions.work(100):
            pass
        self.sessions.tick(time.monotonic())
        self._pump()

    def _send(self, route, frame):
        try:
            self.router.send_multipart([route, frame], zmq.NOBLOCK)
        except zmq.Again:
            return "EAGAIN"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return "EHOSTUNREACH"
        return "ok"

    def _pump(self):
        sessions = self.sessions
        while sessions.replies:
            self._send(*sessions.replies.popleft())
        while self.raw:
            self._send(*self.raw.pop(0))
        blocked = []
        while sessions.ready:
            session = next(iter(sessions.ready))
            del sessions.ready[session]
            while (frames := session.next_frames()) is not None:
                result = "ok"
                for frame in frames:
                    result = self._send(session.route, frame)
                    if result != "ok":
                        break
                if result == "ok":
                    session.taken()
                    continue
                if result == "EAGAIN":
                    blocked.append(session)
                else:
                    sessions.unreachable(session, time.monotonic())
                break
        for session in blocked:
            sessions.ready[session] = None

    def do(self, call):
        """Run a call in the thread of the publisher and return its result."""
        done, result = threading.Event(), []
        self._calls.put((call, done, result))
        assert done.wait(40)
        return result[0]

    def publish(self, *subjects, payload=b"x", extras=None):
        """Publish each subject as a message of its own batch."""

        def call():
            for subject in subjects:
                self.sessions.publish(subject, payload, extras)
                self.sessions.flush()
                if self.plain is not None:
                    self.plain.send_multipart([subject.encode(), payload])
            self._pump()

        self.do(call)

    def publish_numbers(self, subject, numbers, batch=1):
        """Publish numbers as payloads, `batch` of them in each batch."""

        def call():
            for number in numbers:
                self.sessions.publish(subject, b"%d" % number)
                if self.plain is not None:
                    self.plain.send_multipart([subject.encode(), b"%d" % number])
                if (number + 1) % batch == 0:
                    self.sessions.flush()
            self.sessions.flush()
            self._pump()

        self.do(call)

    def wait_for(self, condition):
        """Wait until a condition of the sessions holds."""
        return until(lambda: self.do(lambda: condition(self.sessions)))

    def wait_for_patterns(self, count=1):
        """Wait until `count` patterns are applied."""
        self.wait_for(lambda sessions: sum(len(one.patterns) for one in sessions.by_id.values()) >= count)

    def is_acknowledged(self):
        """Return whether every message was acknowledged and handled."""
        return self.do(
            lambda: all(
                not one.batches and not any(stream.held or stream.backlog for stream in one.streams.values())
                for one in self.sessions.by_id.values()
            )
        )

    def stall(self):
        """Stop the thread."""
        self._running.clear()

    def resume(self):
        """Start the thread again."""
        self._running.set()

    def close(self):
        """Close as `Publisher.close` does, with BYE."""
        if not self._is_closed:

            def call():
                self.sessions.close()
                self._pump()
                self._is_closed = True

            self._running.set()
            self.do(call)
            self._thread.join(40)

    def kill(self):
        """End without BYE."""
        if not self._is_closed:
            self._is_killed = True

            def call():
                self._is_closed = True

            self._running.set()
            self.do(call)
            self._thread.join(40)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def free_endpoint():
    """Return an endpoint whose port and link port are free."""
    for _ in range(100):
        port = lasting_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + PORT_DISTANCE)):
            return f"tcp://127.0.0.1:{port}"
    raise AssertionError("no port has a free link port")
