"""The pytest plugin: the fixture `oz_bus`."""

import asyncio
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import oz
import oz.asyncio
from support.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
ENDPOINT = "tcp://127.0.0.1:5555"
REAL = oz.asyncio.Node, oz.Node


@pytest.mark.parametrize("oz_bus", [0, 7], indirect=True)
def test_fixture_gives_a_bus(oz_bus):
    async def main():
        publisher, subscriber = oz_bus.publisher(), oz_bus.subscriber()
        subscriber.subscribe("a.*")
        await subscriber.wait_ready(timeout=5)
        await asyncio.sleep(600)
        await publisher.publish("a.b", b"c")
        return (await subscriber.receive(timeout=5)).payload

    assert oz_bus.run(main()) == b"c"
    assert oz_bus.now() > 600


def test_blocking_and_asyncio_code_creates_nodes_of_the_bus(oz_bus):
    async def serve():
        async with oz.asyncio.Node("prices") as node:
            node.subscribe("svc.price", handler=lambda message: message.reply(42))
            await asyncio.sleep(60)

    async def begin():
        return asyncio.create_task(serve())

    serving = oz_bus.run(begin())
    with oz.Node("shop") as node:
        node.wait_ready("prices")
        assert node.request("svc.price", timeout=5).payload == 42
    oz_bus.run(asyncio.wait_for(serving, 120))
    assert oz_bus.now() >= 60


def test_end_of_a_test_restores_the_classes():
    assert (oz.asyncio.Node, oz.Node) == REAL


async def publish():
    async with oz.asyncio.Publisher(ENDPOINT) as publisher:
        await publisher.wait_for_subscribers(timeout=7200)
        await publisher.publish("time.oslo", b"13:00")


def test_blocking_code_creates_sockets_of_the_bus(oz_bus):
    async def begin():
        return asyncio.create_task(publish())

    oz_bus.run(begin())
    with oz.Subscriber(ENDPOINT) as subscriber:
        subscriber.subscribe("time.*")
        assert subscriber.receive(timeout=3600).payload == b"13:00"


async def test_coroutine_runs_in_the_loop_of_the_bus(oz_bus, tmp_path):
    publishing = asyncio.create_task(publish())
    async with oz.asyncio.Subscriber(ENDPOINT) as subscriber:
        await asyncio.sleep(3600)
        subscriber.subscribe("time.*")
        assert (await subscriber.receive(timeout=3600)).payload == b"13:00"
    await publishing
    assert oz_bus.now() > 3600
    with pytest.raises(oz.OwnershipError, match=r"use oz\.asyncio"), oz.Node("prices"):
        pass


def test_handler_of_blocking_code_cannot_wait(oz_bus):
    with oz.Node("shop") as shop:
        shop.subscribe("ask", handler=lambda message: shop.request("other", timeout=1))
        with pytest.raises(oz.ReplyError) as raised:
            shop.request("ask", timeout=5)
    assert raised.value.kind == "OwnershipError"


USER = """
import sys


def test_without_it():
    assert not [name for name in sys.modules if name.partition(".")[0] in ("oz", "zmq")]


async def test_coroutine_that_fails(oz_bus):
    raise ValueError("on its own")
"""


def test_plugin_of_a_user_imports_nothing_before_it_is_used_and_a_coroutine_may_fail(tmp_path):
    (tmp_path / "test_of_a_user.py").write_text(USER)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "pytest_oz", "-W", "error"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert "1 failed, 1 passed" in found.stdout, found.stdout + found.stderr
    assert "on its own" in found.stdout
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["py_modules"] == "pytest_oz"
    assert "pytest_oz = pytest_oz" in setup["options.entry_points"]["pytest11"]
