"""A publisher as zmq.asyncio's users write it: prints its port, and publishes when it is told to."""

import asyncio
import sys

import zmq
import zmq.asyncio


async def main():
    ctx = zmq.asyncio.Context()
    sock = ctx.socket(zmq.PUB)
    sock.setsockopt(zmq.LINGER, 20_000)
    port = sock.bind_to_random_port("tcp://127.0.0.1")
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await sock.send_multipart([b"time.us.east", b"1"])
    await sock.send_string("time.us.west", zmq.SNDMORE)
    await sock.send_string("2")
    await sock.send_multipart([b"other.topic", b"3"])
    poller = zmq.asyncio.Poller()
    poller.register(sock, zmq.POLLOUT)
    assert dict(await poller.poll(1_000)) == {sock: zmq.POLLOUT}
    for number in range(4, 8):
        await sock.send_multipart([b"time.eu.east", b"%d" % number])
    await sock.send_json({"n": 8})
    await sock.send(b"end")
    sock.close()
    ctx.term()


asyncio.run(main())
