"""Subscribers with many patterns that join and die while the publisher publishes: figures, on a quiet machine."""

import os

import pytest

from faults import oracle
from faults.driver import DEADLINE, Run
from support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
RATE = 2_000
SUBSCRIBERS, PATTERNS = 50, 500
JOINING = 10_000
ROUNDS = 3


def longest(run):
    """Return the milliseconds of the longest call of `publish` since the last call: elapsed, and of work.

    On a busy machine the time that elapses says little. The work is that of the whole publisher process.
    """
    found = run.info()
    run.publisher.ask(do="reset")
    return f"{found['longest'] * 1_000:.1f}/{found['most_work'] * 1_000:.1f} ms"


def test_the_death_of_many_subscribers_stalls_no_publisher(tmp_path, capsys):
    options = {"resume_seconds": 2.0}
    lines = []
    with Run(tmp_path, "sync", options=options) as run:
        healthy = run.role("healthy", has_proxy=False)
        run.start("sync", healthy)
        run.ready(healthy)
        run.publisher.ask(do="wait", count=1, timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        for at in range(ROUNDS):
            dying = [
                run.role(f"dying-{at}-{one}", call=1.0, patterns=PATTERNS, has_proxy=False, options=options)
                for one in range(SUBSCRIBERS)
            ]
            longest(run)
            program = run.start("asyncio", *dying)
            run.ready(*dying)
            joining = longest(run)
            run.until_published(3 * RATE)
            quiet = longest(run)
            program.kill()
            until(lambda: len(run.info()["sessions"]) == 1, DEADLINE)
            run.until_published(RATE)
            lines.append(
                f"join {joining}, quiet {quiet}, death {longest(run)}, load {os.getloadavg()[0]:.0f}"
            )
        published = run.publisher.ask(do="stop")["published"]
        run.settle(1)
        (events,) = run.finish(healthy)
        oracle.check_complete(events, published)
    with capsys.disabled():
        print("\n" + "\n".join(lines))


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
@pytest.mark.parametrize("is_list", [True, False])
def test_many_patterns_join(kind, is_list, tmp_path, capsys):
    lines = []
    with Run(tmp_path, "sync") as run:
        run.publisher.ask(do="start", rate=RATE)
        for at in range(ROUNDS):
            longest(run)
            one = run.role(f"{at}", patterns=JOINING, is_list=is_list, has_proxy=False)
            program = run.start(kind, one)
            before = run.info()["cpu"]
            joined = program.reply(one.name)
            lines.append(
                f"{joined['seconds']:.2f} s, work of the subscriber {joined['work']:.2f} s and of the publisher "
                f"{run.info()['cpu'] - before:.2f} s, longest publish {longest(run)}, load {os.getloadavg()[0]:.0f}"
            )
            program.kill()
    with capsys.disabled():
        print(f"\n{kind}, {'one subscription' if is_list else 'many subscriptions'}:\n" + "\n".join(lines))
