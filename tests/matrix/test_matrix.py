"""Every kind of receiver × every filtering × every way to receive × what befalls it.

The ways of one kind, filtering and scene are at work side by side, so that a silence passes
once for all of them. A combination that does not exist raises the error of the tables.
"""

from itertools import count

import pytest
import zmq

import oz
import oz.asyncio
from matrix.receivers import MULTICAST, NODES, OPTIONS, Scene
from matrix.ways import OVER, WAYS
from support.sizes import size

NO_OPTIONS_OF_NODES = [("filtering", "prefix"), ("multicast", MULTICAST)]
SHELLS = ("sync", "asyncio", "uvloop", *NODES)
SILENCE = size(1.2, 3.0)
"""Seconds; no wait inside is cut into pieces as long as either."""

pytestmark = pytest.mark.timeout(180)


def places(scene):
    """Yield each shell with each filtering. A node always filters at the publisher.

    The suite has those of multicast, as the contract tests have all others; the heavy run has all.
    """
    for at, shell in enumerate(SHELLS):
        for number, filtering in enumerate(("own",) if shell in NODES else OPTIONS):
            marks = []
            if filtering == "multicast" and not zmq.has("pgm"):
                marks.append(pytest.mark.skip(reason="this libzmq has no PGM"))
            if filtering != "multicast" or (scene + at + number) % 2:
                marks.append(pytest.mark.heavy)
            yield pytest.param(shell, filtering, id=f"{shell}-{filtering}", marks=marks)


_scenes = count()


def in_every_place(test):
    return pytest.mark.parametrize(("shell", "filtering"), list(places(next(_scenes))))(test)


def ways_of(shell, *, patient=False):
    is_blocking = shell in ("sync", "node")
    return [
        way
        for way in WAYS
        if shell not in way.refused
        and (way.patient or not patient)
        and (way.blocking if is_blocking else way.awaited) is not None
    ]


def in_order(one):
    return one.got == list(range(len(one.got)))


def is_called(shell, one):
    """Tell whether it only has a handler, which ends without a word."""
    return shell in NODES and one.way.handles


def has_all(scene):
    return lambda one: len(one.got) == scene.published and in_order(one)


def ended_as(way, end):
    return end == OVER if way.end == OVER else isinstance(end, way.end)


@pytest.mark.sized
@in_every_place
def test_every_way_gets_what_comes_after_a_silence(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell))
        scene.sleep(SILENCE)
        scene.publish(3)
        assert scene.outcomes(has_all(scene)) == {}


@in_every_place
def test_every_way_gets_what_comes_one_by_one(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell))
        scene.publish(40, pause=0.005)
        assert scene.outcomes(has_all(scene)) == {}


@pytest.mark.sized
@in_every_place
def test_every_way_gets_a_burst(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell))
        scene.publish(size(600, 2_000))
        scene.publish(1)
        assert scene.outcomes(has_all(scene)) == {}


@in_every_place
def test_every_way_loses_nothing_when_its_wait_ends_early(shell, filtering):
    """Cancelled where there are tasks; where there are threads its time runs out again and again."""
    is_blocking = shell in ("sync", "node")
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell, patient=is_blocking), **({"patience": 0.001} if is_blocking else {}))
        for _ in range(15):
            scene.publish(4, pause=0.002)
            if not is_blocking:
                for receiver in scene.receivers:
                    receiver.cancel()
        assert scene.outcomes(has_all(scene)) == {}


@in_every_place
def test_every_way_goes_on_when_the_publisher_comes_again(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell))
        scene.publish(10)
        assert scene.outcomes(has_all(scene)) == {}
        scene.restart_publisher()
        scene.publish(10)
        assert scene.outcomes(has_all(scene)) == {}


@in_every_place
def test_every_way_ends_when_somebody_else_closes(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive([way for way in ways_of(shell) if not way.is_foreign])
        for one in scene.receivers:
            one.close_from_elsewhere()

        def is_right(one):
            return ended_as(one.way, one.end) or is_called(shell, one)

        assert scene.outcomes(is_right) == {}


@in_every_place
def test_every_way_gets_the_rest_and_ends_when_drained(shell, filtering):
    with Scene(shell, filtering) as scene:
        scene.receive(ways_of(shell))
        for receiver in scene.receivers:
            receiver.drain_at_first()
        scene.publish_at_once(50)

        def is_right(one):
            # Messages behind the first batch, or from a publisher without answers, may be missing.
            fewest = 50 if filtering in ("publisher", "auto") else 1
            is_over = ended_as(one.way, one.end) or is_called(shell, one)
            return len(one.got) >= fewest and in_order(one) and is_over

        assert scene.outcomes(is_right) == {}


REFUSED = [
    *((shell, {option: value}, TypeError) for shell in NODES for option, value in NO_OPTIONS_OF_NODES),
]
"""What no socket or node of that kind can be made with."""


@pytest.mark.parametrize(("shell", "options", "error"), REFUSED)
def test_what_cannot_be_combined_says_so(shell, options, error):
    place = oz if shell in ("sync", "node") else oz.asyncio
    with pytest.raises(error):
        place.Node(**options) if shell in NODES else place.Subscriber("tcp://127.0.0.1:1", **options)


@pytest.mark.parametrize("shell", NODES)
def test_nodes_have_only_some_of_the_ways(shell):
    with Scene(shell, "own") as scene:
        scene.receive([way for way in WAYS if way.name == "receive"])
        subscription = scene.receivers[0].subscription
        for way in WAYS:
            if error := way.refused.get(shell):
                with pytest.raises(error):
                    getattr(subscription, way.method)
