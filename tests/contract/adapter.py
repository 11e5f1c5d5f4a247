"""Adapter: the only file of the contract tests that knows how the API of oz is spelled.

Tests are written once, without a loop, in the spelling of the target API. They import nothing of oz: they
get an `Api` from the fixture `api`, and classes from this module.

**Shells.** `Api("sync")` wraps `oz`, `Api("asyncio")` wraps `oz.asyncio`. An asyncio object lives in an
event loop in a background thread, and each call of the test is one coroutine there (`Portal`). Handlers are
plain functions in both shells. The asyncio shell runs a handler in a thread and awaits it, so that a
handler may call any method of the adapter. With `Delivery(inline=True)` it runs on the loop, where only
`publish` and `reply` work.

**Time.** Each wait ends after `DEADLINE` by default. `timeout=` overrides it. `timeout=None` waits for
ever.

**Calls.**

- `api.publisher(bind, connect, *, codec, dialect, on_full, last_value, security, context,
  options=Options(…))`
- `api.subscriber(connect, bind, *, codec, dialect, filtering, on_gap, security, context, options=Options(…))`
- `api.node(name, *, bus, connect, bind, codec, dialect, on_full, last_value, on_event, security,
  options=NodeOptions(…))`; `api.name_server(bind)`, whose `endpoint` goes into `connect=`
- `Publisher`: publish, publish_many, batch, flush, has_subscribers, wait_for_subscribers, bind, connect,
  unbind, disconnect, endpoint, stats, subscribers, close
- `Subscriber`: subscribe, receive, receive_many, iteration, run, wait_ready, drain, connect, bind,
  disconnect, unbind, endpoint, stats, publishers, close; `receive_within` cancels a receive in the asyncio
  shell
- `Node`: the calls of a publisher; subscribe, request, request_many, request_snapshots, snapshot, is_healthy,
  wait_ready, peers, name, endpoint, stats, close
- `Subscription`: receive, iteration, receive_all, unsubscribe, drain, active, pending, dropped
- `Message`, `Gap`, `Peer`, `Event`: the fields of the target API
- `api.start(work)`: a call in the background, with `outcome()` and, in the asyncio shell, `cancel()`
- `errors.Timeout`, `errors.NoResponders`, …: the error classes; `compile_pattern`, `PatternIndex`,
  `validate_subject`

Every object of an `Api` is closed when the test ends. A closed object may be closed again.
"""

import asyncio
import contextlib
import inspect
import os
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import zmq
import zmq.auth

import oz
import oz.services
from support.waiting import DEADLINE, Thread

IS_COMPILED = oz.__compiled__
"""Whether this process runs the compiled part. `OZ_COMPILED=0` turns it off."""

compile_pattern = oz.compile
validate_subject = oz.validate_subject
PatternIndex = oz.PatternIndex

_ERRORS = [
    "OzError",
    "PatternError",
    "SubjectError",
    "EndpointError",
    "ConfigurationError",
    "Timeout",
    "NoResponders",
    "PeerLost",
    "ReplyError",
    "WouldBlock",
    "ClosedError",
    "PermissionDenied",
    "OwnershipError",
    "ProtocolError",
]


errors = SimpleNamespace(**{name: getattr(oz, name) for name in _ERRORS})
"""Error classes by their names."""


class Options(dict):
    """Options of a publisher or subscriber, keyword only, as `oz.Options`."""

    def for_socket(self):
        """Return the options as an object of oz."""
        return oz.Options(**self)


class NodeOptions(Options):
    """Options of a node, keyword only, as `oz.NodeOptions`."""

    def for_socket(self):
        return oz.NodeOptions(**self)


class Delivery(dict):
    """Delivery options of a subscription, keyword only, as `oz.Delivery`."""

    def for_socket(self):
        """Return the options as an object of oz."""
        return oz.Delivery(**self)


def limits(**values):
    """Return `oz.Limits`."""
    return oz.Limits(**values)


# shells -------------------------------------------------------------------------------------------


class Direct:
    """Shell of `oz`: calls run in the calling thread."""

    name = "sync"
    module = oz

    def call(self, function, *arguments, **options):
        return function(*arguments, **options)

    def iterate(self, iterable):
        return iter(iterable)

    def handler(self, handler, wrap, inline):
        return handler and (lambda raw: handler(wrap(raw)))

    def close(self):
        pass


class Portal:
    """Shell of `oz.asyncio`: each call is a coroutine in an event loop of a background thread."""

    name = "asyncio"

    def __init__(self):
        self.module = oz.asyncio
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._pool = ThreadPoolExecutor(32)
        self._current = threading.local()

    def call(self, function, *arguments, **options):
        async def done():
            outcome = function(*arguments, **options)
            return await outcome if inspect.isawaitable(outcome) else outcome

        if threading.get_ident() == self._thread.ident:
            outcome = function(*arguments, **options)
            return asyncio.ensure_future(outcome) if inspect.isawaitable(outcome) else outcome
        future = asyncio.run_coroutine_threadsafe(done(), self._loop)
        if (futures := getattr(self._current, "futures", None)) is not None:
            futures.append(future)
        return future.result()

    def record_futures(self, futures):
        """Append the futures of this thread's calls to a list, so that they can be cancelled."""
        self._current.futures = futures

    def iterate(self, iterable):
        iterator = self.call(iterable.__aiter__)
        while True:
            try:
                yield self.call(iterator.__anext__)
            except StopAsyncIteration:
                return

    def handler(self, handler, wrap, inline):
        if handler is None or inline:
            return handler and (lambda raw: handler(wrap(raw)))

        async def handle(raw):
            return await asyncio.get_running_loop().run_in_executor(self._pool, handler, wrap(raw))

        return handle

    def close(self):
        async def end_tasks():
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end_tasks)
        self.call(self._loop.shutdown_asyncgens)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        self._pool.shutdown(wait=False)


class Work:
    """Call in the background."""

    def __init__(self, shell, call):
        self._shell = shell
        self._futures = []

        def work():
            if isinstance(shell, Portal):
                shell.record_futures(self._futures)
            return call()

        self._thread = Thread(work)

    def outcome(self, timeout=DEADLINE):
        """Return the result of the call, or raise its error."""
        return self._thread.outcome(timeout)

    @property
    def is_done(self):
        return not self._thread.is_alive()

    def wait_until_blocked(self):
        """Wait until the call waits: for a lock, for a frame, or for its coroutine."""
        self._thread.wait_until_stuck()

    def cancel(self):
        """Cancel the coroutine that the call waits for; `outcome` raises CancelledError then."""
        if not isinstance(self._shell, Portal):
            raise NotImplementedError("only a coroutine can be cancelled")
        self._futures[-1].cancel()


class Api:
    """API of oz in one shell. It closes all objects that it made.

    Args:
        shell: `"sync"` or `"asyncio"`.
    """

    def __init__(self, shell="sync"):
        self.shell = {"sync": Direct, "asyncio": Portal}[shell]()
        self._context = None
        self._objects = []
        self._is_closed = False

    # objects --------------------------------------------------------------------------------------

    def publisher(
        self,
        bind=None,
        connect=None,
        *,
        codec=None,
        dialect="nats",
        on_full="drop",
        last_value=False,
        links=None,
        security=None,
        context=None,
        options=None,
    ):
        raw = self.shell.call(
            self.shell.module.Publisher,
            bind,
            connect,
            codec=codec,
            dialect=dialect,
            on_full=on_full,
            last_value=last_value,
            links=links,
            security=security,
            context=context or self._context_for(bind, connect),
            options=Options(options or {}).for_socket(),
        )
        return self._keep(Publisher(self, raw))

    def subscriber(
        self,
        connect=None,
        bind=None,
        *,
        codec=None,
        dialect="nats",
        filtering="auto",
        links=None,
        on_gap=None,
        security=None,
        context=None,
        options=None,
    ):
        raw = self.shell.call(
            self.shell.module.Subscriber,
            connect,
            bind,
            codec=codec,
            dialect=dialect,
            filtering=filtering,
            links=links,
            on_gap=on_gap and (lambda gap: on_gap(Gap(gap))),
            security=security,
            context=context or self._context_for(bind, connect),
            options=Options(options or {}).for_socket(),
        )
        return self._keep(Subscriber(self, raw, filtering))

    def node(
        self,
        name=None,
        *,
        bus=None,
        connect=(),
        bind=None,
        codec=None,
        dialect="nats",
        on_full="drop",
        last_value=False,
        on_event=None,
        security=None,
        options=None,
    ):
        raw = self.shell.call(
            self.shell.module.Node,
            name,
            bus=bus,
            connect=connect,
            bind=bind,
            dialect=dialect,
            on_full=on_full,
            last_value=last_value,
            on_event=on_event,
            security=security,
            options=NodeOptions(options or {}).for_socket(),
            **_given(codec=codec),
        )
        return self._keep(Node(self, raw))

    def name_server(self, bind="tcp://127.0.0.1:*", **options):
        return self._keep(NameServer(self, bind, options))

    def start(self, work):
        """Start a call without arguments in the background; return its `Work`."""
        return Work(self.shell, work)

    # life -----------------------------------------------------------------------------------------

    def _context_for(self, *endpoints):
        """Return the context that joins the inproc endpoints of this Api, or None for another transport."""
        texts = [item for given in endpoints for item in ([given] if isinstance(given, str) else given or ())]
        if not any(text.startswith("inproc:") for text in texts):
            return None
        if self._context is None:
            self._context = zmq.Context()
        return self._context

    def _keep(self, made):
        self._objects.append(made)
        return made

    def close(self):
        """Close all objects, the newest first, then the loop and the context. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as stack:
            if self._context is not None:
                stack.callback(self._context.destroy, linger=0)
            stack.callback(self.shell.close)
            for object in self._objects:
                stack.callback(object.close, timeout=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _given(**options):
    return {name: value for name, value in options.items() if value is not None}


# messages -----------------------------------------------------------------------------------------


class _Wrapper:
    """View of an object of oz; `raw` is for this module only."""

    def __init__(self, api, raw):
        self._api = api
        self._raw = raw

    def _call(self, name, *arguments, **options):
        return self._api.shell.call(getattr(self._raw, name), *arguments, **options)

    def _get(self, name):
        return self._api.shell.call(lambda: getattr(self._raw, name))

    def _message(self, raw):
        return Message(self._api, raw)


class Message(_Wrapper):
    """Message as a subscriber gets it."""

    _FIELDS = (
        "subject",
        "subject_bytes",
        "payload",
        "frames",
        "headers",
        "reply_to",
        "id",
        "time_ns",
        "origin",
        "sequence",
        "position",
        "gap",
        "redelivered",
    )

    def __getattr__(self, name):
        if name not in self._FIELDS:
            raise AttributeError(name)
        return getattr(self._raw, name)

    def __repr__(self):
        return f"<Message {self._raw.subject!r} {self._raw.payload!r}>"

    def reply(self, payload=b"", *, headers=None):
        return self._call("reply", payload, headers=headers)

    def ack(self):
        self._call("ack")

    def is_for(self, subscription):
        """Return whether the message matched a subscription."""
        return any(item is subscription._raw for item in self._raw.subscriptions)


class Gap:
    """Report of lost messages: origin, count (None: unknown), recovered, reason."""

    def __init__(self, raw):
        self.origin, self.count, self.recovered = raw.origin, raw.count, raw.recovered
        self.reason = raw.reason


class Peer:
    """Peer of a node: name, id, host, pid, endpoints."""

    def __init__(self, raw):
        self.id = raw.id
        self.name, self.host, self.pid = raw.name, raw.host, raw.pid
        self.endpoints = list(raw.endpoints)


# publisher, subscriber, node ----------------------------------------------------------------------


class _Endpoints(_Wrapper):
    """Calls that sockets and nodes share."""

    @property
    def endpoint(self):
        return self._get("endpoint")

    @property
    def stats(self):
        return self._get("stats")

    def bind(self, endpoint):
        self._call("bind", endpoint)

    def connect(self, endpoint):
        self._call("connect", endpoint)

    def unbind(self, endpoint):
        self._call("unbind", endpoint)

    def disconnect(self, endpoint):
        self._call("disconnect", endpoint)


class Publisher(_Endpoints):
    """Publisher over sockets."""

    def publish(self, subject, payload=b"", *, headers=None, key=None, id=None):
        self._call("publish", subject, payload, headers=headers, key=key, id=id)

    def publish_many(self, pairs):
        """Publish pairs of subject and payload; return how many."""
        return self._call("publish_many", pairs)

    def flush(self):
        self._call("flush")

    def has_subscribers(self, subject):
        return self._call("has_subscribers", subject)

    def wait_for_subscribers(self, subject=None, *, count=1, timeout=DEADLINE):
        self._call("wait_for_subscribers", subject, count=count, timeout=timeout)

    @contextlib.contextmanager
    def batch(self):
        batch = self._call("batch")
        self._api.shell.call(batch.__enter__)
        try:
            yield
        finally:
            self._api.shell.call(batch.__exit__, None, None, None)

    def publish_in_one_task(self, pairs):
        """Publish pairs by one coroutine that awaits each `publish`.

        Returns:
            Turns of another task, and the seconds of processor time of the loop.
        """
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def publish_all():
            other = asyncio.ensure_future(count_turns())
            await asyncio.sleep(0)
            before, start = turns, time.thread_time()
            for subject, payload in pairs:
                await self._raw.publish(subject, payload)
            made, seconds = turns - before, time.thread_time() - start
            other.cancel()
            return made, seconds

        return self._api.shell.call(publish_all)

    def faulty_endpoint(self, filtering):
        """Return the endpoint that a proxy stands for."""
        return self._get("link_endpoints")[0] if filtering == "publisher" else self.endpoint

    def subscriber_through(self, proxy, *, filtering, **options):
        """Return a subscriber that reaches this publisher through a proxy."""
        if filtering == "publisher":
            options["links"] = {self.endpoint: proxy.endpoint}
            return self._api.subscriber(self.endpoint, filtering=filtering, **options)
        return self._api.subscriber(proxy.endpoint, filtering=filtering, **options)

    @property
    def subscribers(self):
        return self._get("subscribers")

    def close(self, *, timeout=5.0):
        """Close; return how many messages were not acknowledged."""
        return self._call("close", timeout=timeout)


class Subscriber(_Endpoints):
    """Subscriber over sockets."""

    def __init__(self, api, raw, filtering):
        super().__init__(api, raw)
        self.filtering = filtering

    def subscribe(
        self,
        pattern,
        handler=None,
        *,
        dialect=None,
        group=None,
        overflow=None,
        last_value=False,
        ack="received",
        max_messages=None,
        delivery=None,
    ):
        delivery = Delivery(delivery or {}).for_socket()
        raw = self._call(
            "subscribe",
            pattern,
            self._api.shell.handler(handler, self._message, delivery.inline),
            dialect=dialect,
            group=group,
            overflow=overflow,
            last_value=last_value,
            ack=ack,
            max_messages=max_messages,
            delivery=delivery,
        )
        return SocketSubscription(self._api, raw, self)

    def receive(self, *, timeout=DEADLINE):
        return self._message(self._call("receive", timeout=timeout))

    def receive_many(self, limit=1000, *, timeout=DEADLINE):
        return [self._message(item) for item in self._call("receive_many", limit, timeout=timeout)]

    def receive_within(self, seconds):
        """Receive; after some seconds cancel the receive (asyncio) or end it (sync) by a Timeout."""
        if self._api.shell.name == "sync":
            return self.receive(timeout=seconds)
        try:
            return self._message(
                self._api.shell.call(lambda: asyncio.wait_for(self._raw.receive(), timeout=seconds))
            )
        except TimeoutError:
            raise errors.Timeout("cancelled") from None

    def check_readable(self):
        """Ask whether the descriptor is readable, as a foreign event loop does."""
        select.select([self._raw.fileno()], [], [], 0)

    def __iter__(self):
        return map(self._message, self._api.shell.iterate(self._raw))

    def run(self, *, timeout=DEADLINE):
        return self._call("run", timeout=timeout)

    def wait_ready(self, *, timeout=DEADLINE):
        self._call("wait_ready", timeout=timeout)

    def drain(self, *, timeout=DEADLINE):
        self._call("drain", timeout=timeout)

    @property
    def publishers(self):
        return self._get("publishers")

    def close(self, *, timeout=None):
        self._call("close")


class Node(_Endpoints):
    """Node of a bus."""

    def flush(self):
        self._call("flush")

    @property
    def peers(self):
        return [Peer(item) for item in self._get("peers")]

    def publish(self, subject, payload=b"", *, headers=None, key=None, id=None):
        self._call("publish", subject, payload, headers=headers, key=key, id=id)

    def publish_many(self, pairs):
        return self._call("publish_many", pairs)

    def has_subscribers(self, subject):
        return self._call("has_subscribers", subject)

    def wait_for_subscribers(self, subject=None, *, count=1, timeout=DEADLINE):
        self._call("wait_for_subscribers", subject, count=count, timeout=timeout)

    @property
    def name(self):
        return self._get("name")

    def subscribe(self, pattern, handler=None, *, delivery=None, **options):
        delivery = Delivery(delivery or {}).for_socket()
        handler = self._api.shell.handler(handler, self._message, delivery.inline)
        raw = self._call("subscribe", pattern, handler, delivery=delivery, **options)
        return NodeSubscription(self._api, raw)

    def request(self, subject, payload=b"", *, timeout=DEADLINE, headers=None, key=None, retries=0):
        options = {"timeout": timeout, "headers": headers, "key": key, "retries": retries}
        return self._message(self._call("request", subject, payload, **options))

    def request_many(self, subject, payload=b"", *, timeout=DEADLINE, **options):
        raw = self._call("request_many", subject, payload, timeout=timeout, **options)
        return map(self._message, self._api.shell.iterate(raw))

    def wait_ready(self, *peers, count=None, subscriber=None, timeout=DEADLINE):
        self._call("wait_ready", *peers, count=count, subscriber=subscriber, timeout=timeout)

    def snapshot(self):
        return self._call("snapshot")

    def request_snapshots(self, *peers, timeout=DEADLINE):
        return self._call("request_snapshots", *peers, timeout=timeout)

    def is_healthy(self):
        return self._call("is_healthy")

    def close(self, *, timeout=5.0):
        return self._call("close", timeout=timeout)


class _Subscription(_Wrapper):
    """Calls that subscriptions of sockets and nodes share."""

    @property
    def active(self):
        return self._get("active")

    @property
    def dropped(self):
        return self._get("dropped")

    def unsubscribe(self):
        self._call("unsubscribe")

    def receive_all(self, count, *, timeout=DEADLINE):
        """Return the payloads of the next messages."""
        return [self.receive(timeout=timeout).payload for _ in range(count)]

    def __iter__(self):
        return map(self._message, self._api.shell.iterate(self._raw))


class NodeSubscription(_Subscription):
    """Subscription of a node."""

    @property
    def pending(self):
        return self._get("pending")

    def receive(self, *, timeout=DEADLINE):
        return self._message(self._call("receive", timeout=timeout))

    def drain(self, *, timeout=DEADLINE):
        return self._call("drain", timeout=timeout)


class SocketSubscription(_Subscription):
    """Subscription of a `Subscriber`."""

    def __init__(self, api, raw, subscriber):
        super().__init__(api, raw)
        self._subscriber = subscriber

    @property
    def prefixes(self):
        """Literal prefixes of the patterns, as bytes."""
        return [prefix for pattern in self._raw.patterns for prefix in pattern.prefixes]

    @property
    def pending(self):
        return self._get("pending")

    def receive(self, *, timeout=DEADLINE):
        return self._message(self._call("receive", timeout=timeout))

    def drain(self, *, timeout=DEADLINE):
        """End the subscription after the messages on their way; return whether publishers confirmed it."""
        return self._call("drain", timeout=timeout)


def wait_until_served(publisher, subscription):
    """Wait until the publisher serves a subscription: later messages that match arrive."""
    subscriber = subscription._subscriber
    if subscriber.filtering == "publisher":
        subscriber.wait_ready()
        return
    # A publisher passes on each message that begins with the prefix of a plain subscription.
    for prefix in subscription.prefixes:
        publisher.wait_for_subscribers(prefix + b"x")


class NameServer:
    """Name server in a thread of this process."""

    def __init__(self, api, bind, options):
        from oz.services import NameServer as Server

        self._raw = Server(bind, **options)
        self.endpoint = self._raw.endpoint
        self._thread = Thread(self._raw.run)

    def close(self, *, timeout=None):
        self._raw.stop()
        self._thread.outcome()
        self._raw.close()


def environment(compiled):
    """Return the environment of a process that runs the compiled part, or pure Python."""
    return {**os.environ, "OZ_COMPILED": "require" if compiled else "0"}


# drop-in sockets ----------------------------------------------------------------------------------


def sub_socket(context, **options):
    """Return a drop-in SUB of a context of pyzmq: `oz.SubSocket`."""
    return context.socket(zmq.SUB, socket_class=oz.SubSocket, **options)


def pub_socket(context, **options):
    """Return a drop-in PUB of a context of pyzmq: `oz.PubSocket`."""
    return context.socket(zmq.PUB, socket_class=oz.PubSocket, **options)


def asyncio_sub_socket(context, **options):
    """Return a drop-in SUB of a context of zmq.asyncio: `oz.asyncio.SubSocket`."""
    import oz.asyncio

    return context.socket(zmq.SUB, socket_class=oz.asyncio.SubSocket, **options)


def poller():
    """Return `oz.Poller`."""
    return oz.Poller()


# journal ------------------------------------------------------------------------------------------


def journal_writer(directory, **options):
    """Return a journal writer: `append(records)`, `end_offset`, `close()`."""
    from oz.journal import Writer

    return Writer(directory, **options)


def journal_records(directory, pattern=None, *, codec=None, **options):
    """Return the messages of a journal as (subject, payload)."""
    from oz.journal import Journal, Record

    found = Journal(directory, codec=codec).read(pattern, **options)
    return [(message.subject, message.payload) for message in found if isinstance(message, Record)]


def journal_history(directory):
    """Return the payloads of a journal, and at the place of each gap its count as an int or None."""
    import oz.journal

    found = oz.journal.Journal(directory).read()
    return [message.payload if isinstance(message, oz.journal.Record) else message.count for message in found]


def journal_table(directory, pattern=None, **options):
    """Return the columns of an Arrow table of a journal, as {name: list of values}."""
    import oz.journal

    return oz.journal.Journal(directory).table(pattern, **options).to_pydict()


def follow_journal(directory):
    """Return an iterator over the payloads of a journal that waits for more at the end."""
    from oz.journal import Journal

    return (message.payload for message in Journal(directory).read(follow=True))


def is_journal_intact(directory):
    """Return whether `verify` finds no fault."""
    from oz.journal import Journal

    return not Journal(directory).verify().findings


def journal_error():
    """Return the class JournalError."""
    return oz.JournalError


def recorder(directory, patterns, endpoint, links=None):
    """Return a recorder of an endpoint, over its link endpoint: `run()`, `stop()`, `close()`."""
    from oz.services.recorder import Recorder

    return Recorder(
        directory, patterns, source=endpoint, subscriber={"filtering": "publisher", "links": links}
    )


def record_node(directory, patterns, node):
    """Return a recorder of a node."""
    from oz.services.recorder import Recorder

    return Recorder(directory, patterns, source=node._raw)


def replay(directory, publisher):
    """Publish a journal again, as fast as possible; return the number of messages."""
    from oz.journal import Journal
    from oz.services.replayer import replay as replay_journal

    return replay_journal(Journal(directory), publisher._raw, speed=None).published


# keys and permissions -----------------------------------------------------------------------------


def write_keys(directory, *names):
    """Write a key pair for each name below `directory`, and trust all of them; return the public keys."""
    from click.testing import CliRunner

    from oz.cli import main

    (directory / "trusted").mkdir(parents=True)
    public = {}
    for name in names:
        ran = CliRunner().invoke(main, ["keys", "new", name, "--directory", str(directory / "keys")])
        assert ran.exit_code == 0, ran.output
        certificate = directory / "keys" / f"{name}.key"
        (directory / "trusted" / certificate.name).write_bytes(certificate.read_bytes())
        public[name] = zmq.auth.load_certificate(str(certificate))[0].decode()
    return public


def security(directory, name, permissions=None):
    """Return the `security=` of the holder of a key."""
    options = {} if permissions is None else {"permissions": permissions}
    return oz.Security(directory / "keys" / f"{name}.key_secret", trusted=directory / "trusted", **options)


# command line -------------------------------------------------------------------------------------


def command(*arguments, stdin=None):
    """Run a command in this process; return its exit code, standard output and standard error."""
    from click.testing import CliRunner

    from oz.cli import main

    ran = CliRunner().invoke(main, list(arguments), input=stdin)
    return ran.exit_code, ran.stdout, ran.stderr


# Spark --------------------------------------------------------------------------------------------


def spark_session():
    """Return a Spark session in this process that knows the format of oz."""
    import oz.spark

    return oz.spark.session(master="local[1]")


def matches_column(column, pattern):
    """Return the column that says whether subjects match a pattern."""
    import oz.spark

    return oz.spark.matches(column, pattern)
