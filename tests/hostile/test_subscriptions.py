"""Subscribers that ask for too much, or for the end of what others have asked for."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

import oz
from hostile.attacked import MOST_MEMORY
from support.scripts import started
from support.sizes import in_suite, one_of_each, size
from support.waiting import DEADLINE, until

HERE = Path(__file__).parent
ROUNDS, EACH = size(1, 5), size(40, 100)
"""How often so many messages are published. All have arrived before the next ones: nothing is full."""

JOBS = size(100, 900)

IS_REFUSED = {
    "declare_without_end": False,
    "listen_on_many_streams": True,
    "subscribe_to_long_prefixes": True,
    "declare_empty_chunks": False,
}
"""What a stranger asks for, and whether it is refused some of it at once."""

MEMORY = {"declare_empty_chunks": 200_000_000}
"""Bytes of the victim at most, where that is less than for others: 20,000 chunks took 220 MB once, as each
answer listed all and nobody read them."""


TWINS = ["sync", "asyncio"]


@pytest.fixture
def victim(twin):
    with started(HERE / "publishing.py", twin) as process:
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


def goes_on(victim, *subscribers):
    """Have some messages published again and again, which the subscribers hear; how it is then."""
    for _ in range(ROUNDS):
        say(victim, f"publish {EACH} honest.x")
        for one in subscribers:
            assert numbers_from(one, EACH) == list(range(EACH))
        told = answer_of(victim)
    return told


def wait_for_plain(victim, plain):
    """Wait until a subscriber that is told nothing hears what is published, and has heard all of it."""

    def hears():
        say(victim, "publish 1 honest.x")
        answer_of(victim)
        with suppress(oz.Timeout):
            return plain.receive(timeout=0.05)

    until(hears)
    say(victim, "publish 1 honest.last")
    answer_of(victim)
    while plain.receive(timeout=DEADLINE).subject != "honest.last":
        pass


@pytest.mark.heavy
@pytest.mark.sized
@pytest.mark.parametrize(("attack", "twin"), one_of_each(sorted(IS_REFUSED), TWINS))
def test_who_asks_for_too_much_takes_nothing_from_others(victim, attack):
    with started(HERE / "subscribing.py", attack, victim.endpoint) as attacker:
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        with (
            oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
            oz.Subscriber(victim.endpoint) as plain,
        ):
            plain.subscribe("honest.*")
            wait_for_plain(victim, plain)
            sub.subscribe("honest.*")
            sub.wait_ready(DEADLINE)
            told = goes_on(victim, sub, plain)
            assert sub.stats.lost == 0
            while IS_REFUSED[attack] and not told["refused"]:
                say(victim, "stats")
                told = answer_of(victim)
            assert told["resident"] < MEMORY.get(attack, MOST_MEMORY)
            assert told["missed"] == 0


@pytest.mark.sized
@pytest.mark.parametrize("twin", ["sync", pytest.param("asyncio", marks=pytest.mark.heavy)])
def test_nobody_unsubscribes_another(victim):
    with (
        oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
        started(HERE / "subscribing.py", "unsubscribe_another", victim.endpoint) as attacker,
    ):
        sub.subscribe("honest.*")
        sub.wait_ready(DEADLINE)
        sub.connect(attacker.stdout.readline().strip())
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        goes_on(victim, sub)
        assert sub.stats.lost == 0


@pytest.mark.heavy
@pytest.mark.sized
@pytest.mark.parametrize("twin", ["asyncio", pytest.param("sync", marks=pytest.mark.heavy)])
def test_who_is_refused_a_key_and_leaves_takes_it_from_nobody(victim):
    with oz.Subscriber(victim.endpoint) as plain:
        plain.subscribe("honest.*")
        wait_for_plain(victim, plain)
        with started(HERE / "subscribing.py", "be_refused_what_another_has", victim.endpoint) as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()

            def is_refused():
                say(victim, "stats")
                told = answer_of(victim)
                assert attacker.poll() is None, (told, attacker.stderr.read())
                return told["refused"]

            until(is_refused)
        goes_on(victim, plain)


@pytest.mark.sized
@pytest.mark.parametrize("twin", ["sync", pytest.param("asyncio", marks=pytest.mark.heavy)])
def test_many_members_of_one_connection_have_one_share_of_a_group(victim):
    with oz.Subscriber(victim.endpoint, filtering="publisher") as worker:
        worker.subscribe("job", group="workers")
        worker.wait_ready(DEADLINE)
        with started(HERE / "subscribing.py", "join_a_group_many_times", victim.endpoint) as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
            say(victim, f"publish {JOBS} job")
            assert answer_of(victim)["missed"] == 0
            got = numbers_from(worker, JOBS // 2 - 1)
            assert got == sorted(got)


def publish_large(victim, subscribers, rounds):
    """Have 3 MB published again and again, which all who read get; return how the publisher is then."""
    for _ in range(rounds):
        say(victim, "publish 50 honest.x 60000")
        for one in subscribers:
            assert numbers_from(one, 50) == list(range(50))
        told = answer_of(victim)
    return told


@pytest.mark.sized
@pytest.mark.parametrize(
    ("attack", "twin"),
    in_suite(
        [("read_no_batches", "sync")],
        [("read_no_batches", "asyncio"), ("read_no_messages", "sync"), ("read_no_messages", "asyncio")],
    ),
)
def test_who_reads_nothing_fills_no_memory(victim, attack):
    with (
        oz.Subscriber(victim.endpoint, filtering="publisher") as sub,
        oz.Subscriber(victim.endpoint) as plain,
        started(HERE / "subscribing.py", attack, victim.endpoint) as attacker,
    ):
        plain.subscribe("honest.*")
        wait_for_plain(victim, plain)
        sub.subscribe("honest.*")
        sub.wait_ready(DEADLINE)
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        wait_for_attacker(victim)
        # What is missed by name is counted, who takes nothing of what all get is cut off.
        rounds = [publish_large(victim, (sub, plain), 1)]

        def takes_no_more():
            # The system may find room for a few until it has been full for a round.
            rounds.append(publish_large(victim, (sub, plain), 1))
            return rounds[-1]["cut"] or rounds[-1]["missed"] - rounds[-2]["missed"] == 50

        until(takes_no_more)
        told = rounds[-1]
        later = publish_large(victim, (sub, plain), size(16, 400))
        assert later["resident"] - told["resident"] < 40_000_000  # of 48 MB and more
        assert sub.stats.lost == 0
        if attack == "read_no_batches":
            assert later["missed"] - told["missed"] == size(800, 20_000)
            assert later["cut"] == 0
        else:
            assert (later["missed"], later["cut"]) == (0, 1)
