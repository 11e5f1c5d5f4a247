"""Random faults of connections and processes for `OZ_SOAK` seconds: no message is lost, and no memory grows."""

import random
import time

import pytest

from faults import oracle
from faults.driver import Run, go_on, stop
from support.sizes import SOAK

FAULTS = 59
SECONDS = SOAK or 180.0
RATE = 2_000
LONGEST = 3.0
"""Seconds of a stall at most."""


def fault_of(reader, choice):
    """Return the begin and the end of a random fault, and its name."""
    proxy = reader.proxy
    found = {
        "rst": (lambda: proxy.cut("rst"), None),
        "fin": (lambda: proxy.cut("fin"), None),
        "half open near": (lambda: proxy.half_open("near"), None),
        "half open far": (lambda: proxy.half_open("far"), None),
        "stall": (proxy.stall, proxy.resume),
        "stall up": (lambda: proxy.stall("up"), proxy.resume),
        "stall down": (lambda: proxy.stall("down"), proxy.resume),
        "throttle": (lambda: proxy.throttle(50_000), lambda: proxy.throttle(None)),
        "pause": (reader.pause, reader.go),
        "suspend": (lambda: stop(reader.program), lambda: go_on(reader.program)),
    }
    name = choice(sorted(found))
    return name, *found[name]


@pytest.mark.heavy
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_random_faults_lose_no_message(kind, tmp_path, capsys):
    chance = random.Random(59)
    with Run(tmp_path, kind, options={"high_water_mark": 200_000}) as run:
        for name, reading, options in [
            ("sync", "sync", {}),
            ("asyncio", "asyncio", {}),
            ("handled", "sync", {"has_handler": True, "group": "alone", "ack": "handled"}),
        ]:
            run.start(reading, run.role(name, **options))
        run.ready()
        run.publisher.ask(do="wait", count=3, timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        run.until_published(5 * RATE)
        before = sizes(run)
        names = []
        ends = time.monotonic() + SECONDS
        for at in range(FAULTS):
            reader = chance.choice(run.readers)
            name, begin, end = fault_of(reader, chance.choice)
            names.append(name)
            begin()
            # The fault itself lasts.
            time.sleep(chance.uniform(0.1, LONGEST))
            if end is not None:
                end()
            time.sleep(max(0.0, (ends - time.monotonic()) / (FAULTS - at) - LONGEST))
        for item in run.readers:
            item.proxy.release()
        published = run.publisher.ask(do="stop")["published"]
        run.settle(3)
        after = sizes(run)
        for events in run.finish():
            oracle.check_complete(events, published)
        with capsys.disabled():
            print(f"\n{kind}: {published} messages, {len(names)} faults, MB before {before}, after {after}")
            print({item.name: item.result for item in run.readers}, run.info())


def sizes(run):
    """Return the resident memory of each process in MB."""
    found = {"publisher": run.info()["rss"]}
    for reader in run.readers:
        found[reader.name] = reader.ask("size")["rss"]
    return {name: round(value / 2**20, 1) for name, value in found.items()}
