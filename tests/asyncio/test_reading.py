"""The reading of a node's socket in a loop, by the sign of its descriptor and without it."""

import asyncio
from contextlib import contextmanager

import pytest
import zmq
import zmq.asyncio

from oz.asyncio.reading import LoopReader
from support.handling_tasks import in_loop
from support.waiting import DEADLINE, until


@contextmanager
def pair():
    with (
        zmq.asyncio.Context() as context,
        zmq.Socket(context, zmq.PUSH) as sending,
        context.socket(zmq.PULL) as reading,
    ):
        reading.linger = sending.linger = 0
        reading.bind("inproc://pair")
        sending.connect("inproc://pair")
        yield reading, sending


def with_pair(test):
    """Run a test in a loop, with a socket to read and one that sends to it."""

    async def whole():
        with pair() as (reading, sending):
            await test(reading, sending)

    return in_loop(whole)


class Taken:
    """What was read, at most so many messages in a turn."""

    def __init__(self, socket, most=100):
        self.frames, self.turns = [], 0
        self._socket, self._most = socket, most
        self._changed = asyncio.Event()

    def read(self):
        self.turns += 1
        for _ in range(self._most):
            try:
                self.frames.append(zmq.Socket.recv(self._socket, zmq.NOBLOCK))
            except zmq.Again:
                break
        self._changed.set()
        return bool(int(zmq.Socket.get(self._socket, zmq.EVENTS)) & zmq.POLLIN)

    async def until(self, count):
        async with asyncio.timeout(DEADLINE):
            while len(self.frames) < count:
                self._changed.clear()
                await self._changed.wait()


def numbers(count):
    return [b"%d" % number for number in range(count)]


@with_pair
async def test_what_comes_is_read_in_the_loop(reading, sending):
    taken = Taken(reading)
    reader = LoopReader(reading, taken.read)
    assert reader.start()
    for frame in numbers(3):
        sending.send(frame)
        await taken.until(int(frame) + 1)
    reader.stop()
    assert taken.frames == numbers(3)


@with_pair
async def test_what_a_turn_leaves_is_read_in_the_next_though_nothing_more_comes(reading, sending):
    taken = Taken(reading, most=1)
    reader = LoopReader(reading, taken.read)
    assert reader.start()
    for frame in numbers(50):
        sending.send(frame)
    await taken.until(50)
    reader.stop()
    assert taken.frames == numbers(50)
    assert taken.turns >= 50


@with_pair
async def test_a_look_finds_what_was_there_before_the_sign_was_taken(reading, sending):
    taken = Taken(reading)
    reader = LoopReader(reading, taken.read)
    assert reader.start()
    await asyncio.sleep(0)
    sending.send(b"0")
    # Whoever sets an option takes the sign of the descriptor.
    until(lambda: int(zmq.Socket.get(reading, zmq.EVENTS)) & zmq.POLLIN)
    reader.look()
    await taken.until(1)
    reader.stop()


@with_pair
async def test_nothing_is_read_once_it_is_stopped(reading, sending):
    taken = Taken(reading)
    reader = LoopReader(reading, taken.read)
    assert reader.start()
    sending.send(b"0")
    await taken.until(1)
    sending.send(b"1")
    reader.look()
    reader.stop()
    until(lambda: int(zmq.Socket.get(reading, zmq.EVENTS)) & zmq.POLLIN)
    for _ in range(3):
        await asyncio.sleep(0)
    assert taken.frames == [b"0"]


@with_pair
async def test_a_loop_that_watches_no_descriptors_awaits_the_socket(reading, sending):
    def refuse(*_):
        raise NotImplementedError

    taken = Taken(reading)
    reader = LoopReader(reading, taken.read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        assert not reader.start()
    running = asyncio.create_task(reader.run())
    sending.send(b"0")
    await taken.until(1)
    reader.look()
    sending.send(b"1")
    await taken.until(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert taken.frames == numbers(2)


@with_pair
async def test_a_socket_that_fails_is_not_read_for_ever(reading, sending):
    failures = []

    def fail():
        failures.append(1)
        raise zmq.ZMQError(zmq.ETERM)

    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(lambda *_: told.set())
    reader = LoopReader(reading, fail)
    assert reader.start()
    sending.send(b"0")
    async with asyncio.timeout(DEADLINE):
        await told.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    # As its node does when it closes.
    reader.stop()
    assert failures == [1]
