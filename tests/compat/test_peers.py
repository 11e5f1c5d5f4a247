"""Peers of each version that was and of this one understand each other: sockets, nodes, forwarders."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

import oz
from oz.services.forwarder import Forwarder
from oz.services.nameserver import NameServer
from support.joined import PLAIN
from support.sizes import in_suite
from support.waiting import DEADLINE, Thread, until

HERE = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/peer.py"))

FILTERINGS = [("prefix", False), ("publisher", False), ("publisher", True)]
RICH = [["a.one.x", "first", {"n": 1, "t": "é"}, None], ["a.two.x", "\xff\x00", {}, None]]


class Past:
    """The program `peer.py` of a version, in a process of its own with that version's package."""

    def __init__(self, version, directory):
        with tarfile.open(HERE / version / "oz.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        path = os.pathsep.join([str(directory), *(path for path in sys.path if path)])
        self.process = subprocess.Popen(
            [sys.executable, HERE / version / "peer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def __getattr__(self, method):
        def call(*arguments, **options):
            self.process.stdin.write(json.dumps([method, *arguments, *([options] if options else [])]) + "\n")
            self.process.stdin.flush()
            result = json.loads(self.process.stdout.readline())
            if isinstance(result, dict):
                raise RuntimeError(result["error"])
            return result

        return call

    def stop(self):
        self.process.kill()
        self.process.communicate()


class Present:
    """The same by the present code: what it is given and gives back is that of the `Peer` in peer.py."""

    def __init__(self):
        self.made = []

    def _keep(self, made):
        self.made.append(made)
        return len(self.made) - 1

    def publisher(self, **options):
        made = oz.Publisher("tcp://127.0.0.1:*", **options)
        return [self._keep(made), made.endpoint]

    def subscriber(self, endpoints, filtering, shared):
        return self._keep(oz.Subscriber(endpoints, filtering=filtering, shared=shared))

    def subscribe(self, number, pattern, group=None, sticky=False, last_value=False):
        policy = {"policy": "sticky"} if sticky else {}
        self.made[number].subscribe(pattern, group=group, last_value=last_value, **policy)

    def wait_ready(self, number, seconds):
        self.made[number].wait_ready(timeout=seconds)

    def wait_for_subscribers(self, number, count, seconds):
        self.made[number].wait_for_subscribers(count, timeout=seconds)

    def publish(self, number, messages):
        for subject, payload, headers, key in messages:
            self.made[number].publish(subject, payload.encode("latin-1"), headers=headers, key=key)
        self.made[number].flush()

    def report_loss(self, number, count):
        self.made[number].report_loss(count)

    def receive(self, number, seconds):
        try:
            return self._told(self.made[number].receive(timeout=seconds))
        except oz.Timeout:
            return None

    def _told(self, message):
        headers = {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in message.headers.items()
        }
        return [message.subject, message.payload.decode("latin-1"), headers, message.gap]

    def node(self, bus, name, directory, nameserver=None):
        where = {"nameserver": nameserver, "bind": "tcp://127.0.0.1:*"} if nameserver else {}
        return self._keep(oz.Node(name, bus=bus, directory=directory, codec=PLAIN, **where))

    def wait_for_peers(self, number, names, seconds):
        self.made[number].wait_for_peers(names, timeout=seconds)

    def listen(self, number, pattern, group=None):
        return self._keep(self.made[number].subscribe(pattern, group=group))

    def answer(self, number, pattern):
        self.made[number].subscribe(pattern, handler=self._answer)

    def _answer(self, message):
        if message.payload == b"raise":
            raise ValueError("as asked")
        # The way that a forwarder wrote down would make the answer look as if it had been there already.
        headers = {name: value for name, value in message.headers.items() if name != "oz-via"}
        message.reply(b"answer to " + message.payload, headers=headers)

    def request(self, number, subject, payload, headers, seconds):
        asked = payload.encode("latin-1")
        return self._told(until(lambda: self._reply(number, subject, asked, headers, seconds)))

    def _reply(self, number, subject, payload, headers, seconds):
        try:
            return self.made[number].request(subject, payload, seconds, headers=headers)
        except oz.NoResponders:
            return None
        except oz.ReplyError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None

    def nameserver(self):
        made = NameServer("tcp://127.0.0.1:*")
        made.running = Thread(made.run)
        return [self._keep(made), made.endpoint]

    def forwarder(self, directory, *buses):
        made = Forwarder([{"bus": bus, "directory": directory} for bus in buses])
        made.running = Thread(made.run)
        return self._keep(made)

    def is_settled(self, number):
        return self.made[number].is_settled

    def end(self, number):
        made = self.made[number]
        if isinstance(made, (Forwarder, NameServer)):
            made.stop()
            made.running.outcome()
            made.close()
        else:
            made.close(timeout=1.0)


class Scene(ExitStack):
    """Makes things on either side, and ends them."""

    def make(self, side, method, *arguments, **options):
        made = getattr(side, method)(*arguments, **options)
        self.callback(side.end, made[0] if isinstance(made, list) else made)
        return made

    def directory(self):
        made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
        self.callback(shutil.rmtree, made, ignore_errors=True)
        return made


@pytest.fixture(scope="module", params=VERSIONS)
def past(request, tmp_path_factory):
    made = Past(request.param, tmp_path_factory.mktemp("oz"))
    yield made
    made.stop()


@pytest.fixture(params=["past to present", "present to past"])
def sides(request, past):
    return (past, Present()) if request.param == "past to present" else (Present(), past)


@pytest.fixture
def scene():
    with Scene() as made:
        yield made


def test_the_past_is_the_stored_package_not_this_one(past):
    where, version = past.where()
    assert Path(where).parent != Path(oz.__file__).parent
    assert version in VERSIONS


@pytest.mark.parametrize(("filtering", "shared"), FILTERINGS)
def test_a_subscriber_receives_what_it_asks_for_with_everything_that_goes_with_it(
    scene, sides, filtering, shared
):
    sender, receiver = sides
    pub, endpoint = scene.make(sender, "publisher")
    sub = scene.make(receiver, "subscriber", endpoint, filtering, shared)
    receiver.subscribe(sub, "a.*.x")
    if filtering == "publisher":
        receiver.wait_ready(sub, DEADLINE)
        messages = RICH
    else:
        sender.wait_for_subscribers(pub, 1, DEADLINE)
        messages = [[subject, payload, None, None] for subject, payload, _, _ in RICH]
    large = ["a.large.x", "L" * 100_000, None, None]
    other = ["a.one.y", "other", None, None]
    sender.publish(pub, [other, *messages, other, large])
    expected = [[subject, payload, headers or {}, 0] for subject, payload, headers, _ in [*messages, large]]
    assert [receiver.receive(sub, DEADLINE) for _ in expected] == expected


def test_losses_are_told(scene, sides):
    sender, receiver = sides
    pub, endpoint = scene.make(sender, "publisher")
    sub = scene.make(receiver, "subscriber", endpoint, "publisher", False)
    receiver.subscribe(sub, "a.>")
    receiver.wait_ready(sub, DEADLINE)
    sender.publish(pub, [["a.1", "", None, None]])
    assert receiver.receive(sub, DEADLINE) == ["a.1", "", {}, 0]
    sender.report_loss(pub, 3)
    sender.publish(pub, [["a.2", "", None, None]])
    assert receiver.receive(sub, DEADLINE) == ["a.2", "", {}, 3]


def test_the_last_value_comes_to_who_asks_late(scene, sides):
    sender, receiver = sides
    pub, endpoint = scene.make(sender, "publisher", last_value=True)
    sender.publish(pub, [["a.1", "before", None, None], ["a.1", "last", None, None]])
    sub = scene.make(receiver, "subscriber", endpoint, "publisher", False)
    receiver.subscribe(sub, "a.*", last_value=True)
    assert receiver.receive(sub, DEADLINE) == ["a.1", "last", {}, 0]


@pytest.mark.parametrize("sticky", [False, True])
def test_members_of_a_group_of_both_versions_share_its_messages(scene, sides, sticky):
    pub, endpoint = scene.make(sides[0], "publisher")
    subs = [(side, scene.make(side, "subscriber", endpoint, "publisher", False)) for side in sides]
    for side, sub in subs:
        side.subscribe(sub, "job.*", group="workers", sticky=sticky)
        side.subscribe(sub, "end")
        side.wait_ready(sub, DEADLINE)
    sides[0].wait_for_subscribers(pub, 2, DEADLINE)
    jobs = [[f"job.{number}", "", None, f"key {number % 10}"] for number in range(40)]
    sides[0].publish(pub, [*jobs, ["end", "", None, None]])
    got = [list(iter(lambda: side.receive(sub, DEADLINE)[0], "end")) for side, sub in subs]  # noqa: B023
    assert sorted(itertools.chain(*got)) == sorted(subject for subject, *_ in jobs)
    if sticky:
        keys = [{int(subject.partition(".")[2]) % 10 for subject in one} for one in got]
        assert keys[0].isdisjoint(keys[1])
    else:
        assert [len(one) for one in got] == [20, 20]


def test_peers_of_a_version_without_positions_get_all_on_a_pattern_that_they_share_and_the_others_positions(
    scene, past
):
    present = Present()
    pub, endpoint = scene.make(present, "publisher")
    subs = [(side, scene.make(side, "subscriber", endpoint, "publisher", True)) for side in (past, present)]
    for side, sub in subs:
        side.subscribe(sub, "a.>")
        side.wait_ready(sub, DEADLINE)
    other = scene.make(present, "subscriber", endpoint, "publisher", False)
    present.subscribe(other, ">")
    present.wait_ready(other, DEADLINE)
    subjects = ["a.1", "a.2", "b.1", "a.3", "a.4"]
    present.publish(pub, [[subject, "", None, None] for subject in subjects])
    wanted = [subject for subject in subjects if subject.startswith("a")]
    assert [past.receive(subs[0][1], DEADLINE) for _ in wanted] == [[one, "", {}, 0] for one in wanted]
    given = [present.made[other].receive(timeout=DEADLINE) for _ in subjects]
    shared = [present.made[subs[1][1]].receive(timeout=DEADLINE) for _ in wanted]
    positions = {message.subject: message.position for message in given}
    assert len({*positions.values()} - {None}) == len(subjects)
    assert [(one.subject, one.position) for one in shared] == [(one, positions[one]) for one in wanted]


@pytest.mark.parametrize("shared", [False, True])
def test_messages_of_a_publisher_without_positions_have_none(scene, past, shared):
    present = Present()
    pub, endpoint = scene.make(past, "publisher")
    sub = scene.make(present, "subscriber", endpoint, "publisher", shared)
    present.subscribe(sub, "a.>")
    present.wait_ready(sub, DEADLINE)
    past.publish(
        pub, [["a.1", "lone", None, None], *([f"a.{number}", "", None, None] for number in range(9))]
    )
    got = [present.made[sub].receive(timeout=DEADLINE) for _ in range(10)]
    assert [message.position for message in got] == [None] * 10
    assert [message.sequence - got[0].sequence for message in got] == list(range(10))


def met(scene, sides, nameserver=False):
    """Make a node of each version on one bus; give them once they have met."""
    where = scene.directory()
    server = scene.make(sides[0], "nameserver")[1] if nameserver else None
    directories = [scene.directory() if nameserver else where for _ in sides]
    nodes = [
        scene.make(side, "node", "bus", name, directory, server)
        for side, name, directory in zip(sides, ("one", "two"), directories, strict=True)
    ]
    for side, node, other in zip(sides, nodes, ("two", "one"), strict=True):
        side.wait_for_peers(node, [other], DEADLINE)
    return nodes


@pytest.mark.parametrize("nameserver", [False, True], ids=["directory", "name server"])
def test_nodes_meet_and_answer_requests(scene, sides, nameserver):
    asking, answering = sides
    one, two = met(scene, sides, nameserver)
    answering.answer(two, "service.*")
    reply = asking.request(one, "service.a", "question", {"n": 1}, DEADLINE)
    assert reply[1:3] == ["answer to question", {"n": 1}]
    with pytest.raises(RuntimeError, match=r"ReplyError: .*as asked"):
        asking.request(one, "service.a", "raise", None, DEADLINE)


def test_nodes_hear_each_other_and_share_a_group(scene, sides):
    sender, receiver = sides
    one, two = met(scene, sides)
    heard = receiver.listen(two, "a.>")
    shares = [
        (side, side.listen(node, "job.*", group="workers"))
        for side, node in zip(sides, (one, two), strict=True)
    ]
    for side, node in zip(sides, (one, two), strict=True):
        side.wait_ready(node, DEADLINE)
    sender.publish(one, RICH)
    assert [receiver.receive(heard, DEADLINE)[:3] for _ in RICH] == [message[:3] for message in RICH]
    sender.publish(one, [[f"job.{number}", "", None, None] for number in range(10)])
    got = [side.receive(share, DEADLINE)[0] for side, share in shares for _ in range(5)]
    assert sorted(got) == [f"job.{number}" for number in range(10)]


@pytest.mark.parametrize("forwards", in_suite(["present"], ["past"]))
def test_a_forwarder_joins_buses_of_both_versions(scene, sides, past, forwards):
    sender, receiver = sides
    where = scene.directory()
    one, two = (
        scene.make(sender, "node", "lan", "one", where),
        scene.make(receiver, "node", "wan", "two", where),
    )
    between = past if forwards == "past" else next(side for side in sides if side is not past)
    forwarder = scene.make(between, "forwarder", where, "lan", "wan")
    until(lambda: between.is_settled(forwarder))
    receiver.answer(two, "service.*")
    heard = receiver.listen(two, "a.>")

    def crosses():
        sender.publish(one, [["a.mark", "", None, None]])
        return receiver.receive(heard, 0.05)

    until(crosses)
    sender.publish(one, RICH)
    got = []
    while len(got) < len(RICH):
        subject, payload, headers, _ = receiver.receive(heard, DEADLINE)
        assert headers.pop("oz-via")
        got += [[subject, payload, headers]] if subject != "a.mark" else []
    assert got == [message[:3] for message in RICH]
    assert sender.request(one, "service.a", "question", None, DEADLINE)[1] == "answer to question"
