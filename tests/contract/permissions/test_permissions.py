"""Keys and permissions."""

from contextlib import suppress
from pathlib import Path

import pytest

from contract.adapter import Options, errors, security, write_keys
from contract.promises import promise
from support.fault_proxy import FaultProxy
from support.waiting import until


@pytest.fixture
def keys(directory):
    """Directory with keys of three users, all trusted, and a function that writes their permissions."""
    root = Path(directory)
    public = write_keys(root, "feed", "desk", "other")

    def permit(**rules):
        text = 'default = "deny"\n'
        for name, lines in rules.items():
            text += f'[users.{name}]\nkey = "{public[name]}"\n{lines}\n'
        file = root / "permissions.toml"
        file.write_text(text)
        return file

    permit.root = root
    return permit


FEED = 'publish = { allow = ["md.>"] }'
DESK = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }'


@pytest.fixture
def feed(api, keys):
    """Publisher with the key of `feed` that serves `desk` by its rights."""
    # A small window, so that messages soon wait behind it.
    options = Options(resume_bytes=1_000)
    rights = keys(feed=FEED, desk=DESK)
    return api.publisher("tcp://127.0.0.1:*", security=security(keys.root, "feed", rights), options=options)


@pytest.fixture
def desk(api, keys, feed):
    """Subscriber of `feed` with the key of `desk`."""
    return api.subscriber(feed.endpoint, filtering="publisher", security=security(keys.root, "desk"))


@promise("A publisher sends a subscriber only messages with subjects that the subscriber's key may receive.")
def test_allowed_subjects_arrive_and_denied_ones_do_not(api, keys, feed, filtering):
    desk = api.subscriber(feed.endpoint, filtering=filtering, security=security(keys.root, "desk"))
    got = desk.subscribe("md.eu.*")
    feed.wait_for_subscribers("md.eu.x")
    feed.publish("md.secret.x", b"secret")
    feed.publish("md.eu.x", b"1")
    assert got.receive().payload == b"1"
    assert desk.stats.received == 1


@promise("A denied subscription raises PermissionDenied with the rule and an example of a denied subject.")
def test_denied_subscription_names_rule_and_witness(desk):
    desk.subscribe("md.*.x")
    with pytest.raises(errors.PermissionDenied) as raised:
        desk.wait_ready()
    assert "md.secret" in str(raised.value.rule)
    assert raised.value.subject == "md.secret.x"


@promise("wait_ready raises the refusal of a subscription once; the Timeout of receive names it again.")
def test_a_refusal_does_not_block_later_waits(desk, feed):
    desk.subscribe("md.*.x")
    with pytest.raises(errors.PermissionDenied):
        desk.wait_ready()
    desk.subscribe("md.eu.*")
    desk.wait_ready()
    with pytest.raises(errors.Timeout, match=r"refuses 'md\.\*\.x': .*md\.secret"):
        desk.receive(timeout=0.1)
    feed.publish("md.eu.x", b"1")
    assert desk.receive().payload == b"1"


@promise("A subscriber drops and counts messages that the key of their publisher may not publish.")
def test_denied_publish_is_dropped_and_counted(api, keys, filtering):
    file = keys(feed=FEED, desk='subscribe = { allow = [">"] }')
    publisher = api.publisher("tcp://127.0.0.1:*", security=security(keys.root, "feed"))
    subscriber = api.subscriber(
        publisher.endpoint, filtering=filtering, security=security(keys.root, "desk", file)
    )
    subscriber.subscribe(">")
    publisher.wait_for_subscribers("md.eu.x")
    publisher.publish("secret.x", b"forged")
    publisher.publish("md.eu.x", b"1")
    assert subscriber.receive().payload == b"1"
    assert (subscriber.stats.denied, subscriber.stats.lost) == (1, 0)


@promise("Nodes with keys exchange messages that their permissions allow; no denied request is handled.")
def test_nodes_are_held_to_their_rights(api, keys):
    file = keys(
        feed='subscribe = { allow = ["svc.*"] }\nreply = { allow = ["svc.*"] }',
        desk='request = { allow = ["svc.price"] }',
    )
    feed = api.node(
        "feed",
        bus="contract",
        bind="tcp://127.0.0.1:*",
        security=security(keys.root, "feed", file),
        options={"directory": str(keys.root / "feed")},
    )
    desk = api.node(
        "desk",
        bus="contract",
        connect=feed.endpoint,
        security=security(keys.root, "desk", file),
        options={"directory": str(keys.root / "desk")},
    )
    handled = []

    def handle(message):
        handled.append(message.subject)
        message.reply(message.payload)

    feed.subscribe("svc.*", handle)
    desk.wait_ready("feed")
    desk.wait_ready(subscriber="svc.price")
    assert desk.request("svc.price", 5).payload == 5
    with pytest.raises((errors.PermissionDenied, errors.Timeout)):
        desk.request("svc.secret", 5, timeout=0.3)
    assert desk.request("svc.price", 6).payload == 6
    assert handled == ["svc.price", "svc.price"]


@pytest.fixture
def asker(api, keys):
    """Node with the key of `desk` and its own file of permissions, without peers."""
    file = keys(desk='publish = { allow = ["md.>"] }\nrequest = { allow = ["svc.*"], deny = ["svc.secret"] }')
    options = {"directory": str(keys.root / "desk")}
    return api.node("desk", bus="contract", security=security(keys.root, "desk", file), options=options)


@promise("publish and request of a node raise PermissionDenied if the node's own file denies the subject.")
def test_a_node_raises_what_its_own_file_denies(asker):
    for call, subject, rule in (
        (lambda: asker.publish("other.x", 1), "other.x", "users.desk.publish.allow[0]"),
        (lambda: asker.publish_many([("other.y", 1)]), "other.y", "users.desk.publish.allow[0]"),
        (lambda: asker.request("svc.secret"), "svc.secret", "users.desk.request.deny[0]"),
        (lambda: asker.request("md.x"), "md.x", "users.desk.request.allow[0]"),
        (lambda: list(asker.request_many("svc.secret")), "svc.secret", "users.desk.request.deny[0]"),
    ):
        # The second call does not read a cache of allowed subjects.
        for _ in range(2):
            with pytest.raises(errors.PermissionDenied) as raised:
                call()
            assert raised.value.subject == subject
            assert rule in raised.value.rule
    asker.publish("md.x", 1)
    with pytest.raises(errors.NoResponders):
        asker.request("svc.price")


@promise("A node applies changes of its own permission file without a restart.")
def test_own_rights_of_a_node_change_with_the_file(asker, keys):
    asker.publish("md.x", 1)
    keys(desk='publish = { allow = ["other.>"] }\nrequest = { allow = ["svc.secret"] }')

    def is_denied():
        try:
            asker.publish("md.x", 1)
        except errors.PermissionDenied:
            return True

    until(is_denied)
    asker.publish("other.x", 1)
    with pytest.raises(errors.NoResponders):
        asker.request("svc.secret")


@promise("A reply needs the right to reply, and no right to publish, also if it is published to the inbox.")
def test_a_reply_needs_no_right_to_publish(api, keys):
    file = keys(
        feed='subscribe = { allow = ["svc.*"] }\nreply = { allow = ["svc.*"] }\npublish = { deny = [">"] }',
        desk='request = { allow = ["svc.*"] }',
    )
    first, second = (
        api.node(
            name,
            bus="contract",
            security=security(keys.root, name, file),
            options={"directory": str(keys.root)},
        )
        for name in ("feed", "desk")
    )
    got = first.subscribe("svc.*")
    first.wait_ready("desk")
    second.wait_ready("feed", subscriber="svc.x")
    for reply in (
        lambda message: message.reply(message.payload),
        lambda message: first.publish(message.reply_to, message.payload),
    ):
        asked = api.start(lambda: second.request("svc.x", 1))
        reply(got.receive())
        assert asked.outcome().payload == 1


@promise("A denied subscription does not affect the allowed subscriptions of the same subscriber.")
def test_denied_beside_allowed(feed, desk):
    desk.subscribe("md.eu.*")
    desk.subscribe("md.secret.x")
    feed.wait_for_subscribers("md.eu.x")
    feed.publish("md.secret.x", b"secret")
    feed.publish("md.eu.x", b"1")

    def receive():
        with suppress(errors.PermissionDenied):
            return desk.receive()

    assert until(receive).payload == b"1"


@promise("A key that is not trusted is refused.")
def test_untrusted_key_is_refused(api, keys):
    (keys.root / "trusted" / "other.key").unlink()
    rights = keys(feed=FEED, other=DESK)
    publisher = api.publisher("tcp://127.0.0.1:*", security=security(keys.root, "feed", rights))

    def connect():
        other = security(keys.root, "other")
        subscriber = api.subscriber(publisher.endpoint, filtering="publisher", security=other)
        subscriber.subscribe("md.eu.*")
        subscriber.wait_ready(timeout=5)

    with pytest.raises((errors.PermissionDenied, errors.Timeout)):
        connect()


@promise("A publisher with keys does not serve a subscriber without keys, whose Timeout names keys.")
def test_side_without_keys_is_not_served(api, feed):
    subscriber = api.subscriber(feed.endpoint, filtering="publisher")
    subscriber.subscribe("md.eu.*")
    with pytest.raises(errors.Timeout, match="keys"):
        subscriber.wait_ready(timeout=0.5)


@promise("Rights that are removed from the permission file end within seconds, without a restart.")
def test_rights_that_change_take_effect(keys, feed, desk):
    desk.subscribe("md.eu.*")
    desk.wait_ready()
    keys(feed=FEED, desk='subscribe = { allow = ["other.>"] }')

    def is_denied():
        feed.publish("md.eu.x", b"1")
        try:
            desk.receive(timeout=0.05)
        except errors.PermissionDenied:
            return True
        except errors.Timeout:
            return False
        return False

    until(is_denied)


@promise("Messages that wait for a subscriber are not delivered if its key loses the right to receive them.")
def test_messages_that_wait_are_denied_too(api, keys, feed):
    with FaultProxy(feed.faulty_endpoint("publisher")) as proxy:
        desk = feed.subscriber_through(proxy, filtering="publisher", security=security(keys.root, "desk"))
        desk.subscribe("md.eu.*")
        desk.subscribe("md.us.*")
        desk.wait_ready()
        endpoint = feed.faulty_endpoint("publisher")
        proxy.pass_on_to("tcp://127.0.0.1:1")
        proxy.cut()
        until(lambda: [subscriber.state for subscriber in feed.subscribers] == ["down"])
        feed.publish("md.eu.x", b"denied in the window")
        feed.publish("md.us.x", bytes(2_000))
        feed.flush()
        feed.publish("md.eu.x", b"denied behind the window")
        feed.publish("md.us.x", b"allowed")
        feed.flush()
        keys(feed=FEED, desk='subscribe = { allow = ["md.us.>"] }')
        until(lambda: not feed.has_subscribers("md.eu.x"))
        proxy.pass_on_to(endpoint)

        def receive():
            with suppress(errors.PermissionDenied, errors.Timeout):
                return desk.receive(timeout=0.05)

        assert [until(receive).payload for _ in range(2)] == [bytes(2_000), b"allowed"]
        api.close()
