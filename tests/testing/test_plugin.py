"""The pytest plugin, as pytest runs it for users."""

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

from support.waiting import DEADLINE

ROOT = Path(__file__).parents[2]


BUS = """
import asyncio
import sys

import pytest

LOADED = [name for name in sys.modules if name.partition(".")[0] in ("oz", "zmq")]


def test_without_it():
    assert not LOADED


@pytest.mark.parametrize("oz_bus", [0, 7], indirect=True)
def test_with_it(oz_bus):
    async def main():
        publisher, subscriber = oz_bus.publisher(), oz_bus.subscriber()
        subscriber.subscribe("a.*")
        await subscriber.wait_ready(timeout=5)
        await asyncio.sleep(600)
        await publisher.publish("a.b", b"c")
        return (await subscriber.receive(timeout=5)).payload

    assert oz_bus.run(main()) == b"c"
    assert oz_bus.now() > 600
"""

NODES = """
import asyncio

import oz
import oz.asyncio

real = oz.asyncio.Node, oz.Node


async def serve():
    async with oz.asyncio.Node("prices") as node:
        node.subscribe("svc.price", handler=lambda message: message.reply(42))
        await asyncio.sleep(60)


def ask():
    with oz.Node("shop") as node:
        node.wait_ready("prices")
        return node.request("svc.price", timeout=5).payload


def test_with_it(oz_bus):
    async def begin():
        return asyncio.create_task(serve())

    serving = oz_bus.run(begin())
    assert ask() == 42
    oz_bus.run(asyncio.wait_for(serving, 120))
    assert oz_bus.now() >= 60


def test_without_it():
    assert (oz.asyncio.Node, oz.Node) == real
"""

SOCKETS = """
import oz
import oz.asyncio

ENDPOINT = "tcp://127.0.0.1:5555"


async def publish():
    async with oz.asyncio.Publisher(ENDPOINT) as publisher:
        await publisher.wait_for_subscribers(timeout=7200)
        await publisher.publish("time.oslo", b"13:00")


def receive():
    with oz.Subscriber(ENDPOINT) as subscriber:
        subscriber.subscribe("time.*")
        return subscriber.receive(timeout=3600).payload


def test_blocking_subscriber(oz_bus):
    import asyncio

    async def begin():
        return asyncio.create_task(publish())

    oz_bus.run(begin())
    assert receive() == b"13:00"


async def test_coroutine(oz_bus, tmp_path):
    import asyncio

    publishing = asyncio.create_task(publish())
    async with oz.asyncio.Subscriber(ENDPOINT) as subscriber:
        await asyncio.sleep(3600)
        subscriber.subscribe("time.*")
        assert (await subscriber.receive(timeout=3600)).payload == b"13:00"
    await publishing
    assert oz_bus.now() > 3600


async def test_coroutine_that_fails(oz_bus):
    raise ValueError("on its own")
"""

OWNERSHIP = """
import pytest

import oz
import oz.asyncio


async def test_coroutine(oz_bus):
    with pytest.raises(oz.OwnershipError, match="use oz.asyncio"):
        with oz.Node("prices"):
            pass


def test_handler(oz_bus):
    with oz.Node("shop") as shop:
        shop.subscribe("ask", handler=lambda message: shop.request("other", timeout=1))
        with pytest.raises(oz.ReplyError) as raised:
            shop.request("ask", timeout=5)
    assert raised.value.kind == "OwnershipError"
"""


def test_fixture_gives_a_bus_and_code_under_test_creates_objects_of_it(tmp_path):
    """The modules run in one process, with the plugin as where oz is installed."""
    for number, text in enumerate((BUS, NODES, SOCKETS, OWNERSHIP)):
        (tmp_path / f"test_of_a_user_{number}.py").write_text(text)
    options = ["-q", "-p", "no:randomly", "-p", "pytest_oz", "-W", "error"]
    command = [sys.executable, "-m", "pytest", *options]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert "1 failed, 9 passed" in found.stdout, found.stdout + found.stderr
    assert "on its own" in found.stdout


def test_installation_tells_pytest_of_the_plugin():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["py_modules"] == "pytest_oz"
    assert "pytest_oz = pytest_oz" in setup["options.entry_points"]["pytest11"]
