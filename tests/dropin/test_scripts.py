"""Takes scripts of pyzmq's users, changes the line that makes the socket and nothing else, and runs both."""

from pathlib import Path

import pytest
import zmq

from support.scripts import finished, started
from support.waiting import DEADLINE

HERE = Path(__file__).parent

MADE_BY = {
    "as it is": None,
    "socket_class": "ctx.socket(zmq.{kind}, socket_class={module}.{name})",
    "constructor": "{module}.{name}(context=ctx)",
}
MESSAGES = [
    [b"time.us.east", b"1"],
    [b"time.us.west", b"2"],
    [b"time.eu.east", b"3", b"more"],
    [b"timeless", b"4"],
    [b"other", b"5"],
    [b"time.us.east", b"6"],
    [b"time.a.b.east", b"7"],
    [b"time.eu.east", b"8"],
    [b"time.east", b"9"],
    [b"time.uk.east", b"10"],
    [b"end"],
]


def changed(script, way, directory):
    """Give the script with the one line changed that makes its socket."""
    text = (HERE / script).read_text()
    if MADE_BY[way] is not None:
        kind, name = ("SUB", "Subscriber") if script.startswith("sub") else ("PUB", "Publisher")
        line = f"ctx.socket(zmq.{kind})"
        assert text.count(line) == 1
        module = "oz.asyncio" if "asyncio" in script else "oz"
        text = text.replace(line, MADE_BY[way].format(kind=kind, module=module, name=name))
        text = text.replace("import zmq\n", "import oz\nimport zmq\n", 1)
    path = directory / script
    path.write_text(text)
    return path


def heard_by(path, pattern, subscriptions):
    """Run a subscriber's script against a plain publisher; what it prints."""
    with zmq.Context() as ctx, ctx.socket(zmq.XPUB) as pub:
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        with started(path, f"tcp://127.0.0.1:{port}", pattern) as process:
            for _ in range(subscriptions):
                assert pub.poll(DEADLINE * 1000)
                pub.recv()
            for frames in MESSAGES:
                pub.send_multipart(frames)
            return finished(process)


def said_by(path):
    """Run a publisher's script for a plain subscriber; what that receives.

    A plain PUB socket gives no sign that a subscription has arrived, so a slow machine tries again.
    """
    for pause in (300, 3_000, 15_000):
        got = said_after(path, pause)
        if got[0] == [b"time.us.east", b"1"]:
            break
    return got


def said_after(path, pause):
    with zmq.Context() as ctx, ctx.socket(zmq.SUB) as sub, started(path) as process:
        monitor = sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        sub.set(zmq.RCVTIMEO, int(DEADLINE * 1000))
        sub.connect(f"tcp://127.0.0.1:{int(process.stdout.readline())}")
        sub.subscribe(b"")
        assert monitor.poll(DEADLINE * 1000)
        sub.disable_monitor()
        monitor.close()
        sub.poll(pause)
        process.stdin.write("go\n")
        process.stdin.flush()
        got = []
        while not got or got[-1] != [b"end"]:
            got.append(sub.recv_multipart())
        finished(process)
        return got


@pytest.mark.parametrize("script", ["sub_script.py", "sub_asyncio_script.py"])
def test_a_subscribers_script_prints_the_same_with_one_line_changed(script, tmp_path):
    outputs = {way: heard_by(changed(script, way, tmp_path), "time.", 2) for way in MADE_BY}
    assert "[b'time.east', b'9']" in outputs["as it is"]
    assert "timeless" not in outputs["as it is"]
    assert len(set(outputs.values())) == 1, outputs


@pytest.mark.parametrize("script", ["sub_script.py", "sub_asyncio_script.py"])
@pytest.mark.parametrize("way", ["socket_class", "constructor"])
def test_wildcards_work_in_a_subscribers_script_with_one_line_changed(script, way, tmp_path):
    output = heard_by(changed(script, way, tmp_path), "time.*.east", 2)
    for frames in MESSAGES:
        is_wanted = frames[0] in (b"time.us.east", b"time.eu.east", b"time.uk.east", b"end")
        shown = str(frames), str([frame.decode() for frame in frames])
        assert any(one in output for one in shown) == is_wanted, output


@pytest.mark.parametrize("script", ["pub_script.py", "pub_asyncio_script.py"])
def test_a_publishers_script_sends_the_same_with_one_line_changed(script, tmp_path):
    heard = {way: said_by(changed(script, way, tmp_path)) for way in MADE_BY}
    assert len(heard["as it is"]) == 9
    assert heard["socket_class"] == heard["constructor"] == heard["as it is"]
