"""Fixtures of the contract tests.

How to write a test::

    from contract.promises import promise


    @promise("Each matching message arrives once, in the order of publishing.")
    def test_each_matching_message_arrives_once_in_order(pair):
        got = pair.subscribe("tick.*")
        for number in range(100):
            pair.publisher.publish("tick.a", b"%d" % number)
        assert got.receive_all(100) == [b"%d" % number for number in range(100)]

**Which fixture**

- `pair`: connected publisher and subscriber, over sockets or as two nodes, in all variants.
  `pair.subscribe` returns when the publisher serves the subscription. The node carrier has no `Subscriber`
  calls such as `receive_many`: exclude it with `not_for={"node": "reason"}`.
- `sockets`, `nodes`: factories `publisher()`, `subscriber()`, `node()` for tests with more objects, in the
  variants of sockets or nodes. `sockets.subscribe(publisher, subscriber, pattern)` waits until it is
  served.
- `api`: the adapter alone, in both shells. `endpoint()`: new endpoints of the variant's transport.
- `proxied`: as `pair` over TCP sockets, with a `FaultProxy` as `proxied.proxy` between them. `proxied.gaps`
  has the count of each gap.
- `program`: a Python program in a process of its own.
- `carrier`, `shell`, `transport`, `filtering`: the values of the variant.
- `logged_errors`: every test fails if oz logs an error. A test that provokes one appends a text of it to
  `logged_errors.expected`.

Each test runs for the axes whose fixtures it uses. `promises.py` describes the markers and the choice of
variants.
"""

import itertools
import logging
import shutil
import tempfile

import pytest

from contract import promises
from contract.adapter import IS_COMPILED, Api, NodeOptions, wait_until_served
from support.fault_proxy import FaultProxy
from support.ports import has_ipv6
from support.scripts import started
from support.waiting import DEADLINE, until

# variants ----------------------------------------------------------------------------------------------


def pytest_report_header(config):
    return f"contract: oz runs {'its compiled part' if IS_COMPILED else 'in pure Python'}"


def pytest_generate_tests(metafunc):
    axes = [axis for axis in promises.AXES if axis in metafunc.fixturenames]
    mark = metafunc.definition.get_closest_marker("promise")
    cases = metafunc.definition.get_closest_marker("cases")
    if not axes:
        assert not cases, "a test without variants needs pytest.mark.parametrize"
        return
    not_for = list(mark.kwargs["not_for"])
    for fixture in FIXED.keys() & set(metafunc.fixturenames):
        not_for += FIXED[fixture]
    variants = promises.variants(metafunc.definition.originalname, axes, not_for, mark.kwargs["small"])
    names, values = cases.args if cases else ([], [((), "")])
    made = []
    for item, (case, text) in promises.combined(variants, values):
        marks = [pytest.mark.sized]
        if "tcp6" in item:
            marks.append(pytest.mark.skipif(not has_ipv6(), reason="this host has no address ::1"))
        made.append(pytest.param(*item, *case, marks=marks, id="-".join([*item, text] if cases else item)))
    metafunc.parametrize([*axes, *names], made, scope="function")


FIXED = {
    "sockets": ["node"],
    "nodes": ["sockets", "prefix", "inproc"],
    "proxied": ["node", "ipc", "inproc", "tcp6"],
}
"""Values of axes that a fixture cannot make."""


class LoggedErrors(logging.Handler):
    """Errors that oz logs. A test fails if oz logs an error without one of the expected texts."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.messages = []
        self.expected = []

    def emit(self, record):
        self.messages.append(record.getMessage())

    @property
    def unexpected(self):
        return [message for message in self.messages if not any(text in message for text in self.expected)]


@pytest.fixture(autouse=True)
def logged_errors():
    """Check that oz logs no errors; a test appends to `expected` the texts of errors that it provokes."""
    made = LoggedErrors()
    logger = logging.getLogger("oz")
    logger.addHandler(made)
    yield made
    logger.removeHandler(made)
    assert not made.unexpected


# API and endpoints -------------------------------------------------------------------------------------


@pytest.fixture
def directory():
    """Directory with a short path: the path of an ipc socket has at most 107 bytes."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def api(shell, directory, logged_errors):
    """Adapter in one shell; it closes its objects before the directory is removed."""
    with Api(shell) as made:
        yield made


def endpoint_of(transport, directory, name, port="*"):
    """Return an endpoint to bind in a transport. TCP needs no name, other transports need no port."""
    return {
        "tcp": f"tcp://127.0.0.1:{port}",
        "tcp6": f"tcp://[::1]:{port}",
        "ipc": f"ipc://{directory}/{name}",
        "inproc": f"inproc://contract-{name}",
    }[transport]


@pytest.fixture
def endpoint(transport, directory):
    """Function that returns a new endpoint to bind in the variant's transport."""
    numbers = itertools.count()
    return lambda: endpoint_of(transport, directory, next(numbers))


# sockets and nodes -------------------------------------------------------------------------------------


class Sockets:
    """Factory of publishers and subscribers of a variant."""

    def __init__(self, api, endpoint, filtering):
        self.api = api
        self._endpoint = endpoint
        self.filtering = filtering

    def publisher(self, bind=None, **options):
        return self.api.publisher(bind or self._endpoint(), **options)

    def subscriber(self, *publishers, **options):
        """Return a subscriber that is connected to publishers, or to endpoints."""
        options = {"filtering": self.filtering, **options}
        endpoints = [getattr(publisher, "endpoint", publisher) for publisher in publishers]
        return self.api.subscriber(endpoints, **options)

    def subscribe(self, publisher, subscriber, pattern, handler=None, **options):
        """Subscribe; return when the publisher serves the subscription."""
        made = subscriber.subscribe(pattern, handler, **options)
        wait_until_served(publisher, made)
        return made


class Nodes:
    """Factory of nodes of one bus.

    Over ipc they find each other in a directory. Over TCP each has a directory of its own and connects to
    the first node.
    """

    def __init__(self, api, transport, directory):
        self.api = api
        self.transport = transport
        self._directory = directory
        self.made = []

    def node(self, name=None, *, options=None, **others):
        options = NodeOptions(options or {})
        if self.transport == "ipc":
            options.setdefault("directory", self._directory)
        else:
            options.setdefault("directory", f"{self._directory}/{len(self.made)}")
            others.setdefault("bind", endpoint_of(self.transport, self._directory, "node"))
            others.setdefault("connect", [item.endpoint for item in self.made[:1]])
        made = self.api.node(name, bus="contract", options=options, **others)
        self.made.append(made)
        return made

    def join(self, *names, **options):
        """Return nodes of these names that are all ready for each other."""
        made = [self.node(name, **options) for name in names]
        for item in made:
            item.wait_ready(count=len(names) - 1)
        return made


class Pair:
    """Publisher and subscriber that are connected: two sockets, or two nodes."""

    def __init__(self, publisher, subscriber, carrier, shell):
        self.publisher = publisher
        self.subscriber = subscriber
        self.carrier = carrier
        self.shell = shell

    def subscribe(self, pattern, handler=None, **options):
        """Subscribe; return when the publisher serves the subscription."""
        made = self.subscriber.subscribe(pattern, handler, **options)
        if self.carrier == "node":
            self.subscriber.wait_ready()
        else:
            wait_until_served(self.publisher, made)
        return made

    def handle_until(self, condition, timeout=DEADLINE):
        """Run handlers until a condition holds; return its value."""
        if self.carrier == "node":
            return until(condition, timeout)

        def handled():
            self.subscriber.run(timeout=0.01)
            return condition()

        return until(handled, timeout)


@pytest.fixture
def sockets(api, endpoint, filtering):
    return Sockets(api, endpoint, filtering)


@pytest.fixture
def nodes(api, transport, directory):
    return Nodes(api, transport, directory)


@pytest.fixture
def pair_options():
    """Keyword options for `pair` as {"publisher": …, "subscriber": …}. A module may override it."""
    return {}


@pytest.fixture
def pair(carrier, shell, transport, filtering, api, endpoint, directory, pair_options):
    publishing, subscribing = (pair_options.get(item, {}) for item in ("publisher", "subscriber"))
    if carrier == "node":
        made = Nodes(api, transport, directory)
        publisher, subscriber = made.node("publisher", **publishing), made.node("subscriber", **subscribing)
        publisher.wait_ready("subscriber")
        subscriber.wait_ready("publisher")
    else:
        made = Sockets(api, endpoint, filtering)
        publisher = made.publisher(**publishing)
        subscriber = made.subscriber(publisher, **subscribing)
    return Pair(publisher, subscriber, carrier, shell)


@pytest.fixture
def proxied(shell, filtering, api, pair_options):
    """Pair over TCP sockets with a `FaultProxy` between them."""
    publishing, subscribing = (pair_options.get(item, {}) for item in ("publisher", "subscriber"))
    publisher = api.publisher("tcp://127.0.0.1:*", **publishing)
    with FaultProxy(publisher.faulty_endpoint(filtering)) as proxy:
        gaps = []
        subscribing = {"on_gap": lambda gap: gaps.append(gap.count), **subscribing}
        subscriber = publisher.subscriber_through(proxy, filtering=filtering, **subscribing)
        made = Pair(publisher, subscriber, "sockets", shell)
        made.gaps = gaps
        made.proxy = proxy
        yield made
        api.close()


# processes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def program():
    """Function that starts a Python program: `with program(code, *arguments) as process:`.

    The program gets `api`, an `Api("sync")`, and `say(text)`, which prints a line at once. Read it with
    `process.stdout.readline()`. The process is killed at the end. It costs 350 ms.
    """
    head = (
        "import sys\n"
        "from contract.adapter import *\n"
        "from contract.adapter import Api, errors\n"
        "def say(text): print(text, flush=True)\n"
        "api = Api('sync')\n"
    )

    return lambda code, *arguments: started("-c", head + code, *arguments)
