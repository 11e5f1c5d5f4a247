"""Subscribers that ask for too much, or for the end of what others have asked for."""

import json
from pathlib import Path

import pytest

import oz
from hostile.attacked import MOST_MEMORY
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE

HERE = Path(__file__).parent
COUNT = size(300, 5_000)


@pytest.fixture(params=["sync", "asyncio"])
def victim(request):
    with started(HERE / "publishing.py", request.param) as process:
        process.endpoint = process.stdout.readline().strip()
        yield process


def say(process, words):
    process.stdin.write(words + "\n")
    process.stdin.flush()


def answer_of(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def wait_for_attacker(victim):
    """Wait until what it asked for counts: it has nobody who tells it."""
    with oz.Subscriber(victim.endpoint, filtering="publisher") as sub:
        sub.subscribe("nothing")
        sub.wait_ready(DEADLINE)


def numbers_from(sub, count):
    return [int(sub.receive(timeout=DEADLINE).payload) for _ in range(count)]


@pytest.mark.sized
@pytest.mark.parametrize(
    ("attack", "is_refused"),
    [
        ("declare_without_end", False),
        ("listen_on_many_streams", True),
        ("subscribe_to_long_prefixes", True),
        ("declare_empty_chunks", False),
    ],
)
def test_who_asks_for_too_much_takes_nothing_from_others(victim, attack, is_refused):
    with started(HERE / "subscribing.py", attack, victim.endpoint) as attacker:
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        with (
            oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
            oz.Subscriber(victim.endpoint) as plain,
        ):
            for one in (sub, plain):
                one.subscribe("honest.*")
            sub.wait_ready(DEADLINE)
            say(victim, f"publish {COUNT} honest.x")
            assert numbers_from(sub, COUNT) == list(range(COUNT))
            assert sub.stats.lost == 0
            first, *rest = numbers_from(plain, 10)
            assert rest == list(range(first + 1, first + 10))
            told = answer_of(victim)
            while is_refused and not told["refused"]:
                say(victim, "stats")
                told = answer_of(victim)
            assert told["resident"] < MOST_MEMORY
            assert told["missed"] == 0


def test_nobody_unsubscribes_another(victim):
    with (
        oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
        started(HERE / "subscribing.py", "unsubscribe_another", victim.endpoint) as attacker,
    ):
        sub.subscribe("honest.*")
        sub.wait_ready(DEADLINE)
        sub.connect(attacker.stdout.readline().strip())
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        say(victim, f"publish {COUNT} honest.x")
        assert numbers_from(sub, COUNT) == list(range(COUNT))
        assert sub.stats.lost == 0


def test_who_is_refused_a_key_and_leaves_takes_it_from_nobody(victim):
    with oz.Subscriber(victim.endpoint) as plain:
        plain.subscribe("honest.*")
        wait_for_attacker(victim)
        with started(HERE / "subscribing.py", "be_refused_what_another_has", victim.endpoint) as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
            told = {"refused": 0}
            while not told["refused"]:
                say(victim, "stats")
                told = answer_of(victim)
        say(victim, f"publish {COUNT} honest.x")
        assert numbers_from(plain, COUNT) == list(range(COUNT))


def test_many_members_of_one_connection_have_one_share_of_a_group(victim):
    with oz.Subscriber(victim.endpoint, filtering="publisher") as worker:
        worker.subscribe("job", group="workers")
        worker.wait_ready(DEADLINE)
        with started(HERE / "subscribing.py", "join_a_group_many_times", victim.endpoint) as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
            say(victim, f"publish {COUNT} job")
            assert answer_of(victim)["missed"] == 0
            got = numbers_from(worker, COUNT // 2 - 1)
            assert got == sorted(got)


@pytest.mark.parametrize(
    ("attack", "most"),
    [
        # 8 MiB, and what allocators and honest traffic take.
        ("read_no_batches", 40_000_000),
        # What comes in the second for which it is looked at besides: one message each millisecond at most.
        ("read_no_messages", 110_000_000),
    ],
)
def test_who_reads_nothing_fills_no_memory(victim, attack, most):
    count = size(3_000, 20_000)
    with (
        oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
        oz.Subscriber(victim.endpoint) as plain,
        started(HERE / "subscribing.py", attack, victim.endpoint) as attacker,
    ):
        for one in (sub, plain):
            one.subscribe("honest.*")
        sub.wait_ready(DEADLINE)
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        wait_for_attacker(victim)
        say(victim, "stats")
        before = answer_of(victim)
        say(victim, f"publish {count} honest.x 60000")
        for expected in range(count):
            for one in (sub, plain):
                assert int(one.receive(timeout=DEADLINE).payload) == expected
        told = answer_of(victim)
        assert told["resident"] - before["resident"] < most
        assert sub.stats.lost == 0
        if attack == "read_no_batches":
            assert count - 1_000 < told["missed"] < count
            assert told["cut"] == 0
        else:
            assert (told["missed"], told["cut"]) == (0, 1)
