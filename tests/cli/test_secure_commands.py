"""Commands with keys: by an option, a variable or the configuration file."""

import json
import tempfile
from contextlib import suppress

import pytest
import zmq

import oz as library
from oz.logs import forget_rates
from support.keyring import Keyring
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "feed", "desk")
    made.permit(
        feed='publish = { allow = ["md.>"] }',
        desk='subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }\npublish = { allow = ["other.>"] }',
    )
    made.make("thief")
    for name in ("feed", "desk", "thief"):
        made.configure(name)
    return made


@pytest.fixture
def pub(ring):
    with library.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as made:
        yield made


@pytest.fixture
def receive(oz_run):
    """Function that runs `oz sub` for one message while a publisher sends it; return its output."""

    def run(pub, pattern, subject, *options):
        def publish():
            pub.wait_for_subscribers(subject, timeout=DEADLINE)
            pub.publish(subject, b"1")

        publishing = Thread(publish)
        ended = oz_run("sub", pattern, "--connect", pub.endpoint, "--count", "1", "--timeout", "40", *options)
        assert ended.code == 0, ended.stderr
        publishing.outcome()
        return ended.stdout

    return run


@pytest.mark.parametrize("kind", ["option", "variable", "file"])
def test_option_or_environment_names_the_keys(ring, pub, receive, monkeypatch, kind):
    if kind == "variable":
        monkeypatch.setenv("OZ_SECURITY", ring.file("desk"))
    elif kind == "file":
        monkeypatch.setenv("OZ_CONFIG", ring.file("desk"))
    options = ("--security", ring.file("desk")) if kind == "option" else ()
    assert receive(pub, "md.eu", "md.eu", *options) == b"md.eu 1\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--connect", "tcp://127.0.0.1:1"),
        ("--connect", "tcp://127.0.0.1:1", "--filtering", "publisher"),
        ("--bus", "default"),
    ],
    ids=["prefix", "publisher", "bus"],
)
def test_denied_subscription_exits_1_with_rule_and_subject(ring, oz, options):
    ended = oz("sub", "md.eu.>", "md.*.x", *options, "--security", ring.file("desk"))
    assert ended.exit_code == 1
    assert "desk may not subscribe to 'md.*.x'" in ended.stderr
    assert "users.desk.subscribe.deny[0], line 7: deny subscribe 'md.secret.>'" in ended.stderr
    assert "'md.secret." in ended.stderr.partition("; ")[2]
    assert "ready" not in ended.stderr


def test_a_prefix_may_ask_for_too_much_where_the_pattern_is_granted(ring, oz, receive):
    ring.permit(feed='publish = { allow = ["md.>"] }', desk='subscribe = { allow = ["md.*.x"] }')
    keys = ("--security", ring.file("desk"))
    with library.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as pub:
        ended = oz("sub", "md.*.x", "--connect", pub.endpoint, "--filtering", "prefix", *keys)
        assert ended.exit_code == 1
        assert "desk may not subscribe to 'md.*.x'" in ended.stderr
        assert "--filtering publisher" in ended.stderr
        assert receive(pub, "md.*.x", "md.eu.x", *keys) == b"md.eu.x 1\n"


def explained(pub, ring, oz):
    """Publish until `oz explain md.eu` has listened; return the counts and the text."""

    def publish():
        pub.wait_for_subscribers("md.eu", timeout=DEADLINE)
        until(lambda: pub.publish_many([("md.eu", b"1"), ("md.us", b"2")]) and ended)

    ended, publishing = [], Thread(publish)
    options = ("--against", pub.endpoint, "--seconds", "1", "--json", "--security", ring.file("desk"))
    ended.append(oz("explain", "md.eu", *options))
    publishing.outcome()
    return json.loads(ended[0].stdout)[0], ended[0].stderr


def test_explain_counts_all_messages_if_the_key_may_have_them(ring, oz):
    with library.Publisher("tcp://127.0.0.1:*", security=ring.security("feed")) as pub:
        counts, _ = explained(pub, ring, oz)
    assert counts["seen"] > counts["matched"] > 0


def test_explain_counts_matches_if_the_key_may_not_have_all_messages(ring, pub, oz):
    counts, text = explained(pub, ring, oz)
    assert counts["seen"] == counts["matched"] > 0
    assert "only matches are counted" in text
    options = ("--against", pub.endpoint, "--security", ring.file("desk"))
    ended = oz("explain", "md.*.x", *options)
    assert ended.exit_code == 1
    assert (
        "refuses 'md.*.x': users.desk.subscribe.deny[0], line 7: deny subscribe 'md.secret.>'" in ended.stderr
    )


def test_a_group_that_a_key_may_not_join_ends_the_command(ring, oz):
    ring.permit(desk='subscribe = { allow = ["md.>"] }\ngroup = { allow = ["md.> work-*"] }')
    options = ("md.eu", "--connect", "tcp://127.0.0.1:1", "--security", ring.file("desk"))
    refused = oz("sub", *options, "--group", "other")
    assert refused.exit_code == 1
    assert "desk may not subscribe to 'md.eu'" in refused.stderr
    assert oz("sub", *options, "--group", "work-1", "--timeout", "0").exit_code == 4


def test_denied_recording_exits_1(ring, oz, tmp_path):
    pytest.importorskip("pyarrow")
    options = ("--connect", "tcp://127.0.0.1:1", "--security", ring.file("desk"))
    ended = oz("record", "md.>", "--journal", str(tmp_path / "recorded"), *options)
    assert ended.exit_code == 1
    assert "desk may not subscribe to 'md.>'" in ended.stderr
    assert not (tmp_path / "recorded").exists()


def test_denied_publishing_exits_1_with_the_rule(ring, oz):
    options = ("--bind", "tcp://127.0.0.1:*", "--wait", "0", "--security", ring.file("desk"))
    ended = oz("pub", "md.eu", "1", *options)
    assert ended.exit_code == 1
    assert "desk may not publish on 'md.eu'" in ended.stderr
    assert "users.desk.publish.allow[0], line 8" in ended.stderr
    assert oz("pub", "other.x", "1", *options).exit_code == 3
    assert oz("pub", "md.eu", "1", "--bus", "default", "--security", ring.file("desk")).exit_code == 1


def test_a_line_that_a_key_may_not_publish_is_named(ring, oz_run):
    options = ("--bind", "tcp://127.0.0.1:*", "--wait", "0", "--security", ring.file("desk"))
    ended = oz_run("pub", "-", *options, stdin=b"other.x 1\nmd.eu 2\n")
    assert ended.code == 1
    assert "line 2: desk may not publish on 'md.eu'" in ended.stderr


def test_right_that_is_withdrawn_ends_a_command_that_publishes(ring, oz_run, stdin):
    reading, writing = stdin
    writing.write(b"other.x 1\n")

    def write():
        ring.permit(desk="publish = { allow = ['more.>'] }")
        with suppress(BrokenPipeError, ValueError):
            until(lambda: writing.write(b"other.x 1\n") and ended)

    ended = []
    thread = Thread(write)
    options = ("--bind", "tcp://127.0.0.1:*", "--wait", "0", "--security", ring.file("desk"))
    ended.append(oz_run("pub", "-", *options, stdin=reading))
    thread.outcome()
    assert ended[0].code == 1
    assert "desk may not publish on 'other.x'" in ended[0].stderr


def test_file_without_the_key_of_a_command_denies_nothing(ring, oz):
    ring.permit(feed="")
    options = ("--bind", "tcp://127.0.0.1:*", "--security", ring.file("desk"))
    assert oz("pub", "md.eu", "1", "--wait", "0", *options).exit_code == 3
    assert oz("sub", "md.eu", "--timeout", "0", *options).exit_code == 4


@pytest.mark.parametrize("command", [("request", "md.eu", "1"), ("reply", "md.eu", "--echo")])
def test_denied_request_and_reply_exit_1(ring, oz, command, directory):
    ended = oz(*command, "--directory", directory, "--security", ring.file("desk"))
    assert ended.exit_code == 1
    assert f"desk has no allow rule for {command[0]}, and the default is deny" in ended.stderr
    assert "add an allow rule for desk in permissions.toml" in ended.stderr


def test_a_key_that_is_not_trusted_ends_the_command_with_both_keys(ring, pub, oz_run):
    ended = oz_run("sub", "md.eu", "--connect", pub.endpoint, "--security", ring.file("thief"))
    assert ended.code == 1
    assert ring.public("thief") in ended.stderr
    assert ring.public("feed") in ended.stderr


def test_commands_join_a_bus_with_keys(ring, oz_run, keyed_node, directory):
    joining = ("--connect", keyed_node.endpoint, "--directory", f"{directory}/other")
    assert oz_run("peers", *joining, "--security", ring.file("thief")).code == 3

    def publish():
        keyed_node.wait_for_subscribers("md.eu", timeout=DEADLINE)
        keyed_node.publish("md.eu", "1")

    publishing = Thread(publish)
    sub = ("sub", "md.eu", "--bus", "default", "--count", "1", "--timeout", "40", *joining)
    assert oz_run(*sub, "--security", ring.file("desk")).stdout == b"md.eu 1\n"
    publishing.outcome()


def test_a_forwarder_has_keys_for_all_its_legs_or_for_one_leg(ring, oz, signal_when, directory):
    legs = [f"--leg=bus={bus},directory={directory}" for bus in ("a", "b")]
    legs[1] += f",security={ring.file('desk')}"
    place = library.NodeOptions(directory=directory)

    def has_joined():
        with library.Node(bus="b", security=ring.security("feed"), options=place) as node:
            return node.wait_ready(count=1, timeout=DEADLINE) is None

    signal_when(has_joined)
    assert oz("forwarder", *legs, "--security", ring.file("feed")).exit_code == 0
    wrong = oz("forwarder", legs[0], "--leg", "bus=b,security=nowhere.toml")
    assert wrong.exit_code != 0
    assert "nowhere.toml" in wrong.stderr


def test_plain_forwarder_refuses_keys(ring, oz):
    refused = oz(
        "forwarder", "--connect", "tcp://a:1", "--backend", "tcp://*:*", "--security", ring.file("desk")
    )
    assert refused.exit_code == 2
    assert "plain sockets have no keys" in refused.stderr


@pytest.fixture
def keyed_node(ring, directory):
    options = library.NodeOptions(directory=directory)
    with library.Node(
        "feed", bind="tcp://127.0.0.1:*", security=ring.security("feed"), options=options
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("peers", "--timeout", "0.1"), 3),
        (("top", "--once", "--interval", "0.2"), 3),
        (("request", "svc.x"), 3),
        (("ping", "feed", "--wait", "0.1"), 3),
        (("trace", "md.eu", "--timeout", "0.1"), 3),
        (("pub", "md.eu", "1", "--bus", "default", "--wait", "0.1"), 3),
        (("sub", "md.eu", "--bus", "default", "--timeout", "0.1"), 4),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_without_a_key_on_a_bus_with_keys_names_the_cause(oz, keyed_node, command, code):
    ended = oz(*command)
    assert ended.exit_code == code, ended.stderr
    assert ended.stderr.count("this node has no keys") == 1
    assert "give this node security=" in ended.stderr


def test_peers_without_a_key_name_the_cause_for_an_endpoint_with_keys(oz, keyed_node, tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as other:
        ended = oz(
            "peers", "--timeout", "0.1", "--connect", keyed_node.endpoint, "--directory", f"{other}/none"
        )
    assert ended.exit_code == 3
    assert ended.stderr.count("if the other side has keys, give security=") == 1


def test_a_request_without_a_responder_names_no_call_of_python(oz, directory):
    ended = oz("request", "svc.x")
    assert ended.exit_code == 3
    assert "oz request: no node on bus default has a subscription for svc.x: " in ended.stderr


def test_each_denied_subscription_is_logged(ring, pub, caplog):
    forget_rates()
    with library.Subscriber(
        pub.endpoint, filtering="publisher", security=ring.security("desk", permissions=True)
    ) as subscriber:
        for subject in ("md.secret.a", "other.b"):
            subscriber.subscribe(subject)
        until(lambda: sum("may not subscribe" in record.getMessage() for record in caplog.records) == 2)
