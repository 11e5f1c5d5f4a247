"""Other libraries as programs that `table` measures, called as `sides` says: nats-py, zenoh and C.

None of them may lose anything:

- NATS: the queue of a subscription has no limit (`pending_msgs_limit` and `pending_bytes_limit` of -1). The server
  keeps up to a gigabyte for a slow subscriber, and then blocks the publisher. By default it disconnects a
  subscriber at 64 MB. The publisher flushes at the end, and a subscriber after it has subscribed. Messages arrive
  by callback, the fastest way of nats-py.
- zenoh: two peers without scouting, and `CongestionControl.BLOCK` with a limit of a minute.
  Declared publishers and iteration are the fastest ways. The subscriber publishes a message after it has subscribed.
- C: the libzmq of pyzmq, with two frames for each message. It has the cost of a pyzmq loop without Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sides import TIMEOUT, Span, Tally, Work


def missing() -> dict[str, str]:
    """Print the rivals that are left out, and the reasons."""
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
    """Return the versions of the installed rivals."""
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
def nats_server() -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a server; yield its address, and a function that returns its processor seconds."""
    import psutil

    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "server.conf")
        config.write_text(
            'listen: "127.0.0.1:-1"\nmax_pending: 1GB\nwrite_deadline: "60s"\n'
            f"ports_file_dir: {json.dumps(directory)}\n"
        )
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
                return json.loads(file.read_text())["nats"][0]
        time.sleep(0.05)
    raise SystemExit("nats-server does not start")


async def _nats_subscribe(client: Any, subject: str, callback: Callable[[Any], Awaitable[None]]) -> None:
    await client.subscribe(subject, cb=callback, pending_msgs_limit=-1, pending_bytes_limit=-1)


def nats_publisher(pipe: Connection, count: int, work: Work, address: str) -> None:
    """Publish with nats-py."""
    import nats

    async def publish() -> None:
        subjects, turn = work.subjects, len(work.subjects)
        client = await nats.connect(address)
        pipe.send(address)
        pipe.recv()
        for number in range(count):
            await client.publish(subjects[number % turn], work.payload)
        await client.publish(work.end)
        await client.flush(60)
        await client.close()

    asyncio.run(publish())


def nats_subscriber(
    endpoint: str, begin: Callable[[], object], work: Work, expected: int
) -> tuple[int, float, float]:
    """Receive with nats-py. The queues of subscriptions are separate: the last message may arrive early."""
    import nats

    async def receive() -> tuple[int, float, float]:
        tally, complete = Tally(), asyncio.Event()

        async def take(message: Any) -> None:
            if message.subject != work.end:
                tally.count(message)
                if tally.got == expected:
                    complete.set()

        client = await nats.connect(endpoint)
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


def free_endpoint() -> str:
    """Return an endpoint of zenoh with a free port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{taken.getsockname()[1]}"


def zenoh_session(listen: str = "", connect: str = "") -> Any:
    """Open a session that listens or connects."""
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


def _zenoh_publisher(session: Any, subject: str, *, wait: bool = False) -> Any:
    import zenoh

    block, ends = zenoh.CongestionControl.BLOCK, time.monotonic() + TIMEOUT
    publisher = session.declare_publisher(subject.replace(".", "/"), congestion_control=block)
    while wait and not publisher.matching_status:
        if time.monotonic() > ends:
            raise SystemExit(f"zenoh knows of no subscriber of {subject}")
        time.sleep(0.005)
    return publisher


def zenoh_publisher(pipe: Connection, count: int, work: Work) -> None:
    """Publish with zenoh."""
    endpoint = free_endpoint()
    with zenoh_session(listen=endpoint) as session:
        ready = session.declare_subscriber("ready")
        pipe.send(endpoint)
        ready.recv()
        publishers = [_zenoh_publisher(session, subject) for subject in work.subjects]
        end, turn = _zenoh_publisher(session, work.end, wait=True), len(publishers)
        pipe.recv()
        for number in range(count):
            publishers[number % turn].put(work.payload)
        end.put(b"")
        pipe.recv()


def zenoh_subscriber(endpoint: str, begin: Callable[[], object], work: Work) -> tuple[int, float, float]:
    """Receive with zenoh."""
    with zenoh_session(connect=endpoint) as session:
        (pattern,) = work.patterns
        subscriber = session.declare_subscriber(pattern.replace(".", "/").replace(">", "**"))
        _zenoh_publisher(session, "ready", wait=True).put(b"")
        begin()
        subscriber.recv()
        span, count, end = Span(), 1, work.end.replace(".", "/")
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
