"""Parts of oz in one process, measured by pytest-benchmark.

    PYTHONPATH=benchmarks python -m pytest benchmarks/test_parts.py --benchmark-autosave [--benchmark-compare]

Each benchmark has a counterpart without oz in its group. The results are stored in `.benchmarks`.
"""

import re

import pattern_index
import pyarrow
import pyarrow.parquet
import pytest
import zmq

import oz
from oz.journal import Journal, Writer

COUNT = 2_000
PAYLOAD = b"x" * 100


@pytest.fixture(scope="module", params=[1_000, 100_000])
def patterns(request):
    return pattern_index.Case(request.param)


@pytest.mark.benchmark(group="match a new subject")
@pytest.mark.parametrize("kind", ["index", "trie", "remembered"])
def test_index(benchmark, patterns, kind):
    call = {"index": patterns.match_new, "trie": patterns.walk, "remembered": patterns.match_again}[kind]
    benchmark.extra_info["subjects"] = len(patterns.subjects)
    benchmark(call)


@pytest.mark.benchmark(group="compile a pattern")
@pytest.mark.parametrize("spec", ["time.*.east", "redis:sensor:[ab]?:*", r"regex:^(us|eu)\.east\..*$"])
def test_compile(benchmark, spec):
    benchmark(oz.compile, spec)


@pytest.fixture
def pair():
    """Function that connects a SUB of a kind to a PUSH-like PUB over inproc."""
    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        pub.sndhwm = 0
        pub.bind("inproc://pair")
        made = []

        def connect(kind):
            sub = oz.SubSocket(context, dialect="nats") if kind == "oz" else context.socket(zmq.SUB)
            sub.rcvhwm = 0
            sub.connect("inproc://pair")
            sub.subscribe("time.*.east" if kind == "oz" else b"time.")
            made.append(sub)
            return pub, sub

        yield connect
        for sub in made:
            sub.close(0)


@pytest.mark.benchmark(group=f"receive {COUNT} multipart messages by a drop-in SUB, half of which match")
@pytest.mark.parametrize("kind", ["oz", "SUB with a regex", "SUB"])
def test_drop_in(benchmark, pair, kind):
    pub, sub = pair(kind)
    matches = re.compile(rb"time\.[^.]+\.east").fullmatch if kind == "SUB with a regex" else bool

    def send():
        for number in range(COUNT):
            pub.send_multipart([b"time.c%d.%s" % (number % 100, b"east" if number % 2 else b"west"), PAYLOAD])
        pub.send_multipart([b"time.end.east", b""])

    def receive():
        while (frames := sub.recv_multipart())[1]:
            matches(frames[0])

    benchmark.pedantic(receive, setup=send, rounds=20)


ROWS = [(f"md.{number % 100}", PAYLOAD) for number in range(1_000)]


@pytest.mark.benchmark(group="append 1,000 records")
@pytest.mark.parametrize("sync", ["batch", "none"])
def test_append(benchmark, tmp_path, sync):
    with Writer(tmp_path, sync=sync) as writer:
        benchmark(writer.append, ROWS)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    with Writer(directory) as writer:
        for _ in range(200):
            writer.append(ROWS)
        writer.roll()
        writer.wait_sealed()
    return directory


@pytest.mark.benchmark(group="read 200,000 records of a sealed journal")
@pytest.mark.parametrize("kind", ["records", "table", "pattern", "pyarrow"])
def test_read(benchmark, recorded, kind):
    journal = Journal(recorded)
    calls = {
        "records": lambda: sum(1 for _ in journal.read()),
        "table": journal.table,
        "pattern": lambda: journal.table("md.7"),
        "pyarrow": lambda: [pyarrow.parquet.read_table(item) for item in recorded.glob("*.parquet")],
    }
    benchmark.pedantic(calls[kind], rounds=3)
