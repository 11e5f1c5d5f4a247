"""Other libraries as programs that `table` measures, called as `sides` says: nats-py, zenoh, and C.

None of them may lose anything:

- NATS: a subscription's queue has no limit (`pending_msgs_limit` and `pending_bytes_limit` of -1), the
  server holds back a gigabyte for a slow subscriber and makes the publisher wait before that is full (its
  default is to cut the subscriber off at 64 MB), and the publisher flushes at the end. A subscriber flushes
  after subscribing: the server has its subscriptions then. Messages are had by callback, which is the
  fastest of its three ways.
- zenoh: two peers, one tcp connection, no scouting; `CongestionControl.BLOCK` and a minute of patience. The
  keys are declared by the publisher beforehand and samples are had by iteration, which are its fastest
  ways. A subscriber publishes a message when it has subscribed, for which the publisher waits.
- C: the libzmq that pyzmq brought, and two frames for each message: what a pyzmq loop costs without Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import shutil
import socket
import ssl
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sides import TIMEOUT, Span, Tally, Work

READY = "ready"


def missing() -> dict[str, str]:
    """Tell which rivals are left out, and why."""
    found = {}
    for name, package in (("nats", "nats-py"), ("zenoh", "eclipse-zenoh")):
        if _version(package) is None:
            found[name] = f"{package} is not installed"
    if not _nats_executable():
        found.setdefault("nats", "there is no nats-server")
    if _version("psutil") is None:
        found.setdefault("nats", "psutil is not installed, which tells the processor time of its server")
    if shutil.which("cc") is None:
        found["C"] = "there is no C compiler"
    elif not _libzmq():
        found["C"] = "no shared libzmq of pyzmq is found to link with"
    return found


def versions() -> dict[str, str]:
    """Name the versions of those that are there."""
    found = {name: _version(name) for name in ("nats-py", "eclipse-zenoh")}
    if "nats" not in missing():
        server = subprocess.run([_nats_executable(), "--version"], capture_output=True, text=True, check=True)
        found["nats-server"] = server.stdout.strip().rpartition(": v")[2]
    if "C" not in missing():
        compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
        found["C compiler"] = compiler.stdout.splitlines()[0]
    return {name: version for name, version in found.items() if version}


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


# nats ----------------------------------------------------------------------------------------------------


def _nats_executable() -> str:
    return (
        shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server") or ""
    )


@contextlib.contextmanager
def nats_server(key: str = "", certificate: str = "") -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a server; give its address, and what tells the processor seconds that it has used.

    Args:
        key: the file of the key by which it speaks TLS; empty for plain TCP.
        certificate: the file of its certificate.
    """
    import psutil

    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "server.conf")
        config.write_text(
            'listen: "127.0.0.1:-1"\nmax_pending: 1GB\nwrite_deadline: "60s"\n'
            f"ports_file_dir: {json.dumps(directory)}\n"
        )
        if key:
            files = f"cert_file: {json.dumps(certificate)}, key_file: {json.dumps(key)}"
            with config.open("a") as file:
                file.write(f"tls {{ {files} }}\n")
        command = [_nats_executable(), "-c", str(config), "-l", str(Path(directory, "log"))]
        with subprocess.Popen(command) as server:
            try:
                process = psutil.Process(server.pid)
                yield _nats_address(Path(directory)), lambda: sum(process.cpu_times()[:2])
            finally:
                server.terminate()


def _nats_address(directory: Path) -> str:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        for file in directory.glob("*.ports"):
            with contextlib.suppress(ValueError):  # half written
                # One that speaks TLS has nothing else, and clients that are given a certificate ask for it.
                return json.loads(file.read_text())["nats"][0].replace("tls://", "nats://")
        time.sleep(0.05)
    raise SystemExit("nats-server does not start")


async def nats_client(address: str, certificate: str = "") -> Any:
    """Connect to a server, by TLS where its certificate is given."""
    import nats

    if not certificate:
        return await nats.connect(address)
    return await nats.connect(address, tls=ssl.create_default_context(cafile=certificate))


async def _nats_subscribe(client: Any, subject: str, callback: Callable[[Any], Awaitable[None]]) -> None:
    await client.subscribe(subject, cb=callback, pending_msgs_limit=-1, pending_bytes_limit=-1)


def nats_publisher(pipe: Connection, count: int, work: Work, address: str, certificate: str = "") -> None:
    """Publish with nats-py."""

    async def publish() -> None:
        subjects, turn = work.subjects, len(work.subjects)
        client = await nats_client(address, certificate)
        pipe.send(address)
        pipe.recv()
        for number in range(count):
            await client.publish(subjects[number % turn], work.payload)
        await client.publish(work.end)
        await client.flush(60)
        await client.close()

    asyncio.run(publish())


def nats_subscriber(
    endpoint: str, begin: Callable[[], object], work: Work, expected: int, certificate: str = ""
) -> tuple[int, float, float]:
    """Receive with nats-py. Each subscription has a queue of its own, so the end may come before the rest."""

    async def receive() -> tuple[int, float, float]:
        tally, complete = Tally(), asyncio.Event()

        async def take(message: Any) -> None:
            if message.subject != work.end:
                tally.count(message)
                if tally.got == expected:
                    complete.set()

        client = await nats_client(endpoint, certificate)
        for pattern in work.patterns:
            await _nats_subscribe(client, pattern, take)
        await client.flush()
        begin()
        await complete.wait()
        result = tally.stop()
        await client.close()
        return result

    return asyncio.run(receive())


# zenoh ---------------------------------------------------------------------------------------------------


def _key(text: str) -> str:
    return text.replace(".", "/").replace(">", "**")


def _free_endpoint() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{taken.getsockname()[1]}"


def _zenoh_session(listen: str | None = None, connect: str | None = None) -> Any:
    import zenoh

    config = zenoh.Config()
    for name, value in {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": [listen] if listen else [],
        "connect/endpoints": [connect] if connect else [],
        "transport/link/tx/queue/congestion_control/block/wait_before_close": 60_000_000,
    }.items():
        config.insert_json5(name, json.dumps(value))
    return zenoh.open(config)


def _zenoh_declare(session: Any, key: str) -> Any:
    import zenoh

    return session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)


def _zenoh_when_wanted(session: Any, key: str) -> Any:
    """Declare a key, and wait until somebody who subscribed to it is known."""
    publisher, deadline = _zenoh_declare(session, key), time.monotonic() + TIMEOUT
    while not publisher.matching_status:
        if time.monotonic() > deadline:
            raise SystemExit(f"zenoh knows of no subscriber of {key}")
        time.sleep(0.005)
    return publisher


def zenoh_publisher(pipe: Connection, count: int, work: Work, subscribers: int = 1) -> None:
    """Publish with zenoh."""
    endpoint = _free_endpoint()
    with _zenoh_session(listen=endpoint) as session:
        ready = session.declare_subscriber(READY)
        pipe.send(endpoint)
        for _ in range(subscribers):
            ready.recv()
        publishers = [_zenoh_declare(session, _key(subject)) for subject in work.subjects]
        end, turn = _zenoh_when_wanted(session, _key(work.end)), len(publishers)
        pipe.recv()
        for number in range(count):
            publishers[number % turn].put(work.payload)
        end.put(b"")
        pipe.recv()


def zenoh_subscriber(endpoint: str, begin: Callable[[], object], work: Work) -> tuple[int, float, float]:
    """Receive with zenoh."""
    with _zenoh_session(connect=endpoint) as session:
        (pattern,) = work.patterns
        subscriber = session.declare_subscriber(_key(pattern))
        _zenoh_when_wanted(session, READY).put(b"")
        begin()
        subscriber.recv()
        span, count, end = Span(), 1, _key(work.end)
        for sample in subscriber:
            if str(sample.key_expr) == end:
                break
            count += 1
        return span.stop(count)


# C -------------------------------------------------------------------------------------------------------

_PROGRAM = Path(__file__).with_name("rival.c")


def _libzmq() -> str:
    """Find the library that pyzmq uses in this process."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            if "/libzmq" in line:
                return line.split(maxsplit=5)[5].strip()
    return ""


@contextlib.contextmanager
def c_program() -> Iterator[str]:
    """Compile the program in C; give its path."""
    library = _libzmq()
    with tempfile.TemporaryDirectory() as directory:
        program = str(Path(directory, "rival"))
        search = f"-Wl,-rpath,{Path(library).parent},--allow-shlib-undefined"
        subprocess.run(["cc", "-O2", "-w", str(_PROGRAM), "-o", program, library, search], check=True)
        yield program


def c_publisher(pipe: Connection, count: int, program: str, subscribers: int = 1) -> None:
    """Publish in C."""
    command = [program, "publish", str(count), str(subscribers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pipe.send(process.stdout.readline().strip())


def c_subscriber(endpoint: str, begin: Callable[[], object], program: str) -> tuple[int, float]:
    """Receive in C."""
    command = [program, "receive", endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        begin()
        count, seconds = process.stdout.readline().split()
        return int(count), float(seconds)


def c_echo(pipe: Connection, count: int, program: str) -> None:
    """Send every message back, in C."""
    with subprocess.Popen([program, "echo"], stdout=subprocess.PIPE, text=True) as process:
        pipe.send([process.stdout.readline().strip() for _ in range(2)])


def c_ping(endpoints: list[str], begin: Callable[[], object], count: int, program: str) -> list[float]:
    """Time round trips in C; seconds."""
    begin()
    command = [program, "ping", str(count), *endpoints]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(float, done.stdout.split()))
