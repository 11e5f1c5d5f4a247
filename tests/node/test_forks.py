"""A node belongs to the process that made it."""

import multiprocessing
import os
import traceback

import pytest

import oz
from support.inside import engine_of
from support.waiting import DEADLINE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(work):
    """Run something in a fork; it ends well, or its traceback is shown."""
    child = multiprocessing.get_context("fork").Process(target=_run, args=(work,))
    child.start()
    child.join(DEADLINE)
    if child.is_alive():
        child.kill()
    assert child.exitcode == 0


def _run(work):
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_the_child_of_a_fork_is_refused_and_the_parent_goes_on(make, met, collected):
    node, other = make("node"), make("other")
    got = collected()
    subscription = other.subscribe("a", handler=got)
    other.subscribe("svc", handler=lambda message: message.reply(1))
    mailbox = other.subscribe("b")
    met(node, other)
    node.publish("a", 0)
    got.wait(1)

    def child():
        for call in (
            lambda: node.publish("a", 1),
            lambda: node.publish("new", 1),
            lambda: node.flush(),
            lambda: node.subscribe("a"),
            lambda: node.request("svc"),
            lambda: node.request_many("svc"),
            lambda: node.wait_ready(1),
            lambda: node.wait_for_peers(1, 1),
            lambda: node.peers,
            subscription.unsubscribe,
            lambda: mailbox.receive(1),
        ):
            with pytest.raises(oz.OwnershipError):
                call()
        assert node.stats.published >= 1
        node.close()
        other.close(drain=False)
        repr(node)

    in_child(child)
    node.publish("a", 2)
    assert got.wait(2) == [0, 2]
    assert node.request("svc", timeout=DEADLINE).payload == 1


def test_the_child_may_make_a_node_of_its_own(make, place):
    node = make("parent")
    node.subscribe("svc", handler=lambda message: message.reply("from the parent"))
    node.wait_ready(DEADLINE)

    def child():
        with oz.Node("child", directory=place) as own:
            own.wait_for_peers("parent", timeout=DEADLINE)
            own.wait_ready(DEADLINE)
            assert own.request("svc", timeout=DEADLINE).payload == "from the parent"

    in_child(child)
    assert node.request("svc", timeout=DEADLINE).payload == "from the parent"


def test_a_handler_may_fork(make, collected):
    node = make("node")
    codes = collected()

    def handler(message):
        pid = os.fork()
        if pid == 0:
            try:
                message.reply(1)
            except oz.OwnershipError:
                os._exit(7)
            os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        message.reply(2)

    node.subscribe("svc", handler=handler)
    node.wait_ready(DEADLINE)
    assert node.request("svc", timeout=DEADLINE).payload == 2
    assert codes == [7]


def test_with_in_the_child_closes_nothing_of_the_parent(make, collected):
    got = collected()
    with make("node") as node:
        node.subscribe("a", handler=got)
        node.wait_ready(DEADLINE)

        def child():
            with node:
                pass
            del engine_of(node).sockets.context

        in_child(child)
        node.publish("a", 1)
        assert got.wait(1) == [1]
