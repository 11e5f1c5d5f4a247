"""Changes of keys and rights while nodes run, and the reasons that a node without a trusted key reports."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

import oz
from oz.errors import PermissionDenied, Timeout
from oz.publisher.keys import PublisherKeys
from oz.subscriber.keys import SubscriberKeys
from oz.transport import credentials
from oz.transport.security import credentials_of
from support.keyring import Keyring
from support.waiting import DEADLINE, until

FIRST = 'publish = { allow = ["md.>"] }\nsubscribe = { allow = ["notes.>"] }'
SECOND = 'publish = { allow = ["notes.>"] }\nsubscribe = { allow = ["md.>"] }'


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "first", "second")
    made.permit(first=FIRST, second=SECOND)
    return made


@pytest.fixture
def keyed(make, ring, directory):
    """Create a node with the key of its name, and a directory of its own."""

    def create(name, *, permissions=True, **options):
        security = ring.security(name, permissions=permissions)
        return make(name, security=security, directory=f"{directory}/{name}", **options)

    return create


@pytest.fixture
def pair(keyed):
    first = keyed("first", bind="tcp://127.0.0.1:*")
    second = keyed("second", connect=first.endpoint)
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", timeout=DEADLINE)
    return first, second


def reason(node, name):
    """Return the text of a timeout."""
    with pytest.raises(Timeout) as raised:
        node.wait_ready(name, timeout=0.05)
    return str(raised.value)


def publish(node, subject, payload):
    """Publish, if the own file permits it."""
    with suppress(PermissionDenied):
        node.publish(subject, payload)


@pytest.mark.parametrize("phase", range(0, 50, 7))
def test_changes_of_files_take_effect_within_a_second(ring, monkeypatch, phase):
    """The clock is that of the test, so that a busy machine is not late."""
    now = 0.0
    monkeypatch.setattr(credentials, "time", SimpleNamespace(monotonic=lambda: now))
    made = credentials_of(ring.security("first", permissions=True))
    sender, receiver = PublisherKeys(made, "nats"), SubscriberKeys(made, bool, bool, bool, bool)
    receiver.rights.key = second = ring.public("second")

    def rights():
        """Do what is due, as the thread of a node, and return the rights."""
        sender.has_changed(now)
        if now >= receiver.next_deadline():
            receiver.tend(now)
        denial = sender.access.denial(second, (oz.compile("md.>"),))
        return sender.is_trusted(second), denial is None, receiver.rights.allows(b"notes.1")

    def seconds_until(wanted):
        nonlocal now
        began = now
        while rights() != wanted:
            now += 0.01
            assert now < began + 1
        now += phase / 100

    seconds_until((True, True, True))
    ring.permit(first=FIRST, second="subscribe = { deny = ['>'] }")
    seconds_until((True, False, False))
    ring.permit(first=FIRST, second=SECOND)
    seconds_until((True, True, True))
    ring.distrust("second")
    seconds_until((False, False, False))


def test_a_right_that_is_granted_later_revives_the_subscription(pair, ring):
    first, second = pair
    kept = second.subscribe("md.eu.>")
    second.wait_ready("first", timeout=DEADLINE)
    inbox = second.subscribe("notes.*")
    with pytest.raises(PermissionDenied):
        second.wait_ready("first", timeout=40)
    for round_number in range(2):
        ring.permit(first=FIRST, second=SECOND.replace('"md.>"', '"md.>", "notes.>"'))
        until(lambda: first.has_subscribers("notes.1"))
        ring.permit(first='publish = { allow = [">"] }', second=SECOND.replace('"md.>"', '"md.>", "notes.>"'))
        until(lambda number=round_number: publish(first, "notes.1", number) or inbox.pending)
        assert inbox.receive(timeout=DEADLINE).payload == round_number
        ring.permit(first=FIRST, second=SECOND)
        until(lambda: not first.has_subscribers("notes.1"))
        while inbox.pending:
            with suppress(PermissionDenied):
                inbox.receive(timeout=0)
    # The other subscription went on.
    first.publish("md.eu.x", 1)
    assert kept.receive(timeout=DEADLINE).payload == 1


# reasons


def test_a_seed_has_the_key_that_servers_names(make, ring, directory):
    first = make(
        "first", bind="tcp://127.0.0.1:*", security=ring.security("first"), directory=f"{directory}/1"
    )
    security = ring.security("second", servers={first.endpoint: "second"})
    second = make("second", connect=first.endpoint, security=security, directory=f"{directory}/2")
    until(lambda: "has no key that this side trusts" in reason(second, "first"))
    security = ring.security("second", servers={first.endpoint: "first"})
    right = make("right", connect=first.endpoint, security=security, directory=f"{directory}/3")
    right.wait_ready("first", timeout=DEADLINE)


def test_a_node_reads_its_keys_from_the_environment(make, ring, monkeypatch, directory):
    # `security=` may be the path of a file too.
    ring.configure("first")
    first = make(
        "first", bind="tcp://127.0.0.1:*", security=ring.file("first"), directory=f"{directory}/first"
    )
    ring.configure("second")
    monkeypatch.setenv("OZ_SECURITY", ring.file("second"))
    second = make("second", connect=first.endpoint, directory=f"{directory}/second")
    second.wait_ready("first", timeout=DEADLINE)
