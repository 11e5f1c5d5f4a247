"""`oz pub` and `oz sub` over multicast, in processes of their own."""

import subprocess
import sys

import pytest

from multicast import needs
from support.ports import lasting_udp_port
from support.scripts import ENVIRONMENT

GROUP = "239.192.7.3"
LONGEST = 60

pytestmark = [needs.pgm, pytest.mark.timeout(400)]


def oz(*arguments):
    return [sys.executable, "-m", "oz", *arguments]


@pytest.fixture
def endpoint():
    return f"epgm://lo;{GROUP}:{lasting_udp_port()}"


def test_sub_prints_messages_of_pub(endpoint):
    listener = subprocess.Popen(
        oz("sub", "a.>", "--connect", endpoint, "--count", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert "no publisher is heard" in listener.stderr.readline()
        # It has joined, and the kernel may not deliver packets yet.
        for _ in range(5):
            done = subprocess.run(
                oz("pub", "a.b", "hello", "--bind", endpoint),
                capture_output=True,
                text=True,
                env=ENVIRONMENT,
                timeout=LONGEST,
            )
            assert (done.returncode, "Traceback" in done.stderr) == (0, False)
            if listener.poll() is not None:
                break
        assert listener.communicate(timeout=LONGEST)[0] == "a.b hello\n"
    finally:
        listener.kill()
        listener.communicate()


def test_replay_does_not_wait_for_multicast_subscribers(endpoint, tmp_path):
    pytest.importorskip("pyarrow")
    from oz.journal import Writer

    writer = Writer(tmp_path)
    writer.append([("a.b", b"1"), ("a.b", b"2")])
    writer.close()
    done = subprocess.run(
        oz("replay", str(tmp_path), "--speed", "max", "--bind", endpoint),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr
    assert "published 2 messages" in done.stderr
