"""A subscriber as zmq.asyncio's users write it: `sub_asyncio_script.py ENDPOINT PATTERN`."""

import asyncio
import sys

import zmq
import zmq.asyncio


async def main(endpoint, pattern):
    ctx = zmq.asyncio.Context()
    sock = ctx.socket(zmq.SUB)
    sock.setsockopt(zmq.LINGER, 0)
    sock.connect(endpoint)
    sock.setsockopt_string(zmq.SUBSCRIBE, pattern)
    sock.setsockopt(zmq.SUBSCRIBE, b"end")

    print("multipart", await sock.recv_multipart())

    while not await sock.poll(1_000):
        pass
    parts = [await sock.recv_string()]
    while sock.getsockopt(zmq.RCVMORE):
        parts.append(await sock.recv_string())
    print("strings", parts)

    print("waited for", await asyncio.wait_for(sock.recv_multipart(), 20))

    poller = zmq.asyncio.Poller()
    poller.register(sock, zmq.POLLIN)
    last = None
    while last != b"end":
        for ready, _ in await poller.poll(20_000):
            assert ready is sock
            try:
                frames = await sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                continue
            last = frames[0]
            print("polled", frames)

    try:
        await asyncio.wait_for(sock.recv(), 0.01)
    except TimeoutError:
        print("nothing more")
    sock.close()
    print(sock.closed)
    ctx.term()


asyncio.run(main(*sys.argv[1:]))
