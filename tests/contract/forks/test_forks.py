"""Forked processes."""

import tempfile

import pytest

from contract.promises import promise
from support.scripts import finished

HEAD = """
import os, warnings
from contextlib import suppress

# From Python 3.12 on, a fork of a process with threads warns.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
publisher = api.publisher("tcp://127.0.0.1:*")
subscriber = api.subscriber(publisher.endpoint, filtering="publisher")
got = subscriber.subscribe("tick.>")
subscriber.wait_ready()
node = api.node("parent", bus="contract", options=NodeOptions(directory=sys.argv[1]))
noted = node.subscribe("note.>")
publisher.publish("tick.a", b"before")
assert got.receive().payload == b"before"

def in_a_child(work):
    child = os.fork()
    if not child:
        code = 1
        with suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, work
"""

REFUSED = """
def refused():
    for call in (
        lambda: publisher.publish("tick.a"),
        lambda: subscriber.receive(timeout=0),
        lambda: subscriber.subscribe("tock.>"),
        lambda: node.publish("note.a"),
        lambda: node.subscribe("tock.>"),
        lambda: noted.receive(timeout=0),
    ):
        try:
            call()
        except errors.OwnershipError:
            continue
        os._exit(2)

in_a_child(refused)
"""

SPARED = """
def close_all():
    for one in (publisher, subscriber, node):
        one.close()

publisher.publish("tick.a", b"0")
in_a_child(close_all)
for number in range(1, 100):
    publisher.publish("tick.a", b"%d" % number)
    node.publish("note.a", number)
in_a_child(lambda: None)
assert got.receive_all(100) == [b"%d" % number for number in range(100)]
assert noted.receive_all(99) == [*range(1, 100)]
"""

OWN = """
def own():
    own = api.subscriber(publisher.endpoint, filtering="publisher")
    made = own.subscribe("tick.>")
    own.wait_ready()
    os.write(to_parent, b"x")
    assert made.receive().payload == b"to both"
    own.close()

from_child, to_parent = os.pipe()
import threading

def publish():
    os.read(from_child, 1)
    publisher.publish("tick.a", b"to both")

thread = threading.Thread(target=publish)
thread.start()
in_a_child(own)
thread.join()
assert got.receive().payload == b"to both"
"""


RUN = """
for part in sys.argv[2:]:
    try:
        exec(part, globals())
        say("worked")
    except Exception as error:
        say(repr(error))
"""


@pytest.fixture(scope="module")
def outcomes(program):
    """Outcomes of the parts by name: "worked", or an error. One process runs all of them."""
    parts = {"refused": REFUSED, "spared": SPARED, "own": OWN}
    with (
        tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as directory,
        program(HEAD + RUN, directory, *parts.values()) as process,
    ):
        lines = finished(process).splitlines()
    return dict(zip(parts, lines, strict=True))


@promise("In a forked child each use of the parent's objects raises OwnershipError.")
def test_pyzmq_983_child_cannot_use_the_objects_of_its_parent(outcomes):
    assert outcomes["refused"] == "worked"


@promise("A forked child that closes the parent's objects, or ends, does not affect the parent.")
def test_pyzmq_1307_parent_is_untouched_by_a_forked_child(outcomes):
    assert outcomes["spared"] == "worked"


@promise("A forked child can create its own objects and exchange messages with its parent.")
def test_child_can_make_its_own_objects(outcomes):
    assert outcomes["own"] == "worked"
