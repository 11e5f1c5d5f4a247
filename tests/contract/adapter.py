"""Adapter: the only file of the contract tests that knows how the API of oz is spelled.

Tests are written once, without a loop, in the spelling of the target API. They import nothing of oz: they
get an `Api` from the fixture `api`, and classes from this module.

**Shells.** `Api("sync")` wraps `oz`, `Api("asyncio")` wraps `oz.asyncio`. `support/shells.py` describes them.

**Time.** Each wait ends after `DEADLINE` by default. `timeout=` overrides it. `timeout=None` waits for
ever.

**Calls.** An object has the methods and properties of the object of oz that it wraps. Options and deliveries
are dicts. A message is wrapped too, so that `reply` and `ack` block. These calls are added:

- `api.start(work)`: a call in the background, with `outcome()` and, in the asyncio shell, `cancel()`
- `Subscriber.receive_within` cancels a receive in the asyncio shell; `Subscription.receive_all`

Every object of an `Api` is closed when the test ends. A closed object may be closed again.
"""

import asyncio
import contextlib
import select
import time
import urllib.request

import zmq
import zmq.auth

import oz
import oz.services
from support.shells import SHELLS, Blocking, Portal
from support.waiting import DEADLINE, Thread

IS_COMPILED = oz.__compiled__
"""Whether this process runs the compiled part. `OZ_COMPILED=0` turns it off."""

Options = NodeOptions = Delivery = dict
limits = oz.Limits
compile_pattern = oz.compile
validate_subject = oz.validate_subject
PatternIndex = oz.PatternIndex

errors = oz
"""Namespace of the error classes."""

WAITS = {
    "drain",
    "receive",
    "receive_many",
    "request",
    "request_many",
    "request_snapshots",
    "run",
    "wait_for_subscribers",
    "wait_ready",
}
"""Calls that end after `DEADLINE` by default."""


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
    def has_ended(self):
        """Whether the call has a result or an error."""
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
        self.shell = SHELLS[shell]()
        self._context = None
        self._objects = []
        self._is_closed = False

    # objects --------------------------------------------------------------------------------------

    def publisher(self, bind=None, connect=None, *, context=None, options=(), **others):
        context = context or self._context_for(bind, connect)
        options = oz.Options(**dict(options))
        return self._make(Publisher, bind, connect, context=context, options=options, **others)

    def subscriber(self, connect=None, bind=None, *, filtering="auto", context=None, options=(), **others):
        context = context or self._context_for(bind, connect)
        options = oz.Options(**dict(options))
        made = self._make(
            Subscriber, connect, bind, filtering=filtering, context=context, options=options, **others
        )
        made.filtering = filtering
        return made

    def node(self, name=None, *, options=(), **others):
        return self._make(Node, name, options=oz.NodeOptions(**dict(options)), **others)

    def name_server(self, bind="tcp://127.0.0.1:*", **options):
        return self._keep(NameServer(bind, options))

    def start(self, work):
        """Start a call without arguments in the background; return its `Work`."""
        return Work(self.shell, work)

    # life -----------------------------------------------------------------------------------------

    def _context_for(self, *endpoints):
        """Return the context that joins the inproc endpoints of this Api, or None for another transport."""
        texts = [one for given in endpoints for one in ([given] if isinstance(given, str) else given or ())]
        if not any(one.startswith("inproc:") for one in texts):
            return None
        if self._context is None:
            self._context = zmq.Context()
        return self._context

    def _make(self, wrapper, *arguments, **options):
        raw = self.shell.call(getattr(self.shell.module, wrapper.__name__), *arguments, **options)
        return self._keep(wrapper(self, raw))

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
            for one in self._objects:
                stack.callback(one.close, timeout=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# messages -----------------------------------------------------------------------------------------


class Message:
    """Message as a subscriber gets it, with the fields of `oz.Message`."""

    def __init__(self, api, raw):
        self._api = api
        self._raw = raw

    def __getattr__(self, name):
        return getattr(self._raw, name)

    def reply(self, payload=b"", *, headers=None):
        return self._api.shell.call(self._raw.reply, payload, headers=headers)

    def ack(self):
        self._api.shell.call(self._raw.ack)

    def is_for(self, subscription):
        """Return whether the message matched a subscription."""
        return any(one is subscription.raw for one in self._raw.subscriptions)


# publisher, subscriber, node ----------------------------------------------------------------------


class _Object(Blocking):
    """Object of an `Api`."""

    def __init__(self, api, raw):
        super().__init__(api.shell, raw)
        self.api = api

    def call(self, name, *arguments, **options):
        if name in WAITS:
            options.setdefault("timeout", DEADLINE)
        return self._wrapped(super().call(name, *arguments, **options))

    def _wrapped(self, outcome):
        if isinstance(outcome, oz.Message):
            return Message(self.api, outcome)
        return list(map(self._wrapped, outcome)) if type(outcome) is list else outcome

    def __iter__(self):
        return map(self._wrapped, super().__iter__())


class Publisher(_Object):
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
                await self.raw.publish(subject, payload)
            made, seconds = turns - before, time.thread_time() - start
            other.cancel()
            return made, seconds

        return self.shell.call(publish_all)

    def faulty_endpoint(self, filtering):
        """Return the endpoint that a proxy stands for."""
        return self.link_endpoints[0] if filtering == "publisher" else self.endpoint

    def subscriber_through(self, proxy, *, filtering, **options):
        """Return a subscriber that reaches this publisher through a proxy."""
        if filtering == "publisher":
            options["links"] = {self.endpoint: proxy.endpoint}
            return self.api.subscriber(self.endpoint, filtering=filtering, **options)
        return self.api.subscriber(proxy.endpoint, filtering=filtering, **options)


class _Subscribing(_Object):
    """Subscriber or node."""

    def subscribe(self, pattern, handler=None, *, delivery=(), **options):
        delivery = oz.Delivery(**dict(delivery))
        wrapped = handler and (lambda message: handler(Message(self.api, message)))
        own = self.shell.handler(wrapped, delivery.inline)
        made = self.shell.call(self.raw.subscribe, pattern, own, delivery=delivery, **options)
        return Subscription(self, made)


class Subscriber(_Subscribing):
    def receive_within(self, seconds):
        """Receive; after some seconds cancel the receive (asyncio) or end it (sync) by a Timeout."""
        if self.shell.name == "sync":
            return self.receive(timeout=seconds)
        try:
            return self._wrapped(
                self.shell.call(lambda: asyncio.wait_for(self.raw.receive(), timeout=seconds))
            )
        except TimeoutError:
            raise errors.Timeout("cancelled") from None

    def check_readable(self):
        """Ask whether the descriptor is readable, as a foreign event loop does."""
        select.select([self.raw.fileno()], [], [], 0)

    def close(self, *, timeout=None):
        self.call("close")


class Node(_Subscribing):
    def request_many(self, subject, payload=b"", *, timeout=DEADLINE, **options):
        found = self.shell.call(self.raw.request_many, subject, payload, timeout=timeout, **options)
        return map(self._wrapped, self.shell.iterate(found))


def limit_requests(node, number):
    """Set the maximum number of open requests of a node; return the maximum before."""
    requests = node.raw._node.exchange._requests
    before, requests._max_requests = requests._max_requests, number
    return before


class Subscription(_Object):
    def __init__(self, subscriber, raw):
        super().__init__(subscriber.api, raw)
        self.subscriber = subscriber

    @property
    def prefixes(self):
        """Literal prefixes of the patterns, as bytes."""
        return [prefix for pattern in self.raw.patterns for prefix in pattern.prefixes]

    def receive_all(self, count, *, timeout=DEADLINE):
        """Return the payloads of the next messages."""
        return [self.receive(timeout=timeout).payload for _ in range(count)]


def wait_until_served(publisher, subscription):
    """Wait until the publisher serves a subscription: later messages that match arrive."""
    if subscription.subscriber.filtering == "publisher":
        subscription.subscriber.wait_ready()
        return
    # A publisher passes on each message that begins with the prefix of a plain subscription.
    for prefix in subscription.prefixes:
        publisher.wait_for_subscribers(prefix + b"x")


class NameServer:
    """Name server in a thread of this process."""

    def __init__(self, bind, options):
        self._raw = oz.services.NameServer(bind, **options)
        self.endpoint = self._raw.endpoint
        self._thread = Thread(self._raw.run)

    def close(self, *, timeout=None):
        self._raw.stop()
        self._thread.outcome()
        self._raw.close()


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
    return [(one.subject, one.payload) for one in found if isinstance(one, Record)]


def journal_history(directory):
    """Return the payloads of a journal, and at the place of each gap its count as an int or None."""
    import oz.journal

    found = oz.journal.Journal(directory).read()
    return [one.payload if isinstance(one, oz.journal.Record) else one.count for one in found]


def journal_table(directory, pattern=None, **options):
    """Return the columns of an Arrow table of a journal, as {name: list of values}."""
    import oz.journal

    return oz.journal.Journal(directory).table(pattern, **options).to_pydict()


def follow_journal(directory):
    """Return an iterator over the payloads of a journal that waits for more at the end."""
    from oz.journal import Journal

    return (one.payload for one in Journal(directory).read(follow=True))


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

    return Recorder(directory, patterns, source=node.raw)


def replay(directory, publisher):
    """Publish a journal again, as fast as possible; return the number of messages."""
    from oz.journal import Journal
    from oz.services.replayer import replay as replay_journal

    return replay_journal(Journal(directory), publisher.raw, speed=None).stats.published


# keys and permissions -----------------------------------------------------------------------------


def write_keys(directory, *names):
    """Write a key pair for each name below `directory`, and trust all of them; return the public keys."""
    from click.testing import CliRunner

    from oz.cli import main

    (directory / "trusted").mkdir(parents=True)
    public = {}
    for name in names:
        ran = CliRunner().invoke(main, ["keys", "new", name, "--key-directory", str(directory / "keys")])
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


@contextlib.contextmanager
def explorer_page(bus, directory):
    """Serve the page of `oz explorer` on a bus; yield a function that reads a path."""
    from oz.explorer.server import Server
    from oz.explorer.view import BusView

    def read(path):
        with urllib.request.urlopen(server.url + path, timeout=DEADLINE) as answer:
            return answer.read()

    options = oz.NodeOptions(directory=directory)
    with (
        oz.Node("explorer", bus=bus, codec=None, options=options) as node,
        contextlib.closing(Server(BusView(node, [">"]), "127.0.0.1:0")) as server,
    ):
        yield read


# Spark --------------------------------------------------------------------------------------------


def spark_session():
    """Return a Spark session in this process that knows the format of oz."""
    import oz.spark

    return oz.spark.session(master="local[1]")


def matches_column(column, pattern):
    """Return the column that says whether subjects match a pattern."""
    import oz.spark

    return oz.spark.matches(column, pattern)
