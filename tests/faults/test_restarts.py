"""A restart and an absence that is too long are reported as a gap of unknown size."""

import pytest

from faults import oracle
from faults.driver import DEADLINE, Run, go_on, stop
from support.sizes import first_in_suite, size
from support.waiting import until

RATE = 1_000
ROUNDS = size(1, 4)
HANDLED = {"group": "workers", "ack": "handled"}


@pytest.mark.sized
@pytest.mark.parametrize(("kind", "group"), first_in_suite(("asyncio", "sync"), (True, False)))
def test_a_publisher_that_was_killed_leaves_a_gap_of_unknown_size(kind, group, tmp_path):
    with Run(tmp_path, kind) as run:
        for reading in ("sync", "asyncio"):
            # One group for each member, so that each receives everything.
            more = HANDLED | {"group": reading} if group else {}
            run.start(reading, run.role(reading, has_handler=group, **more))
        run.ready()
        counts = []
        for at in range(ROUNDS + 1):
            if at:
                run.publisher.kill()
                run.start_publisher()
            run.publisher.ask(do="wait", count=2, timeout=60)
            run.publisher.ask(do="start", rate=RATE)
            run.until_published(RATE // 4)
            counts.append(run.publisher.ask(do="stop")["published"])
            if at < ROUNDS:
                run.publisher.ask(do="burst", count=1_000)
        run.settle(2)
        for events in run.finish():
            oracle.check_holes(events)
            gaps = oracle.gaps(events)
            assert [count for count, _ in gaps] == [None] * ROUNDS, gaps
            found = oracle.messages(events)
            last = [number for of_run, number in found if of_run == run.runs]
            assert last == list(range(counts[-1])), "messages of the last publisher are missing"
            for of_run in range(1, run.runs):
                mine = [number for its_run, number in found if its_run == of_run]
                assert mine == list(range(len(mine))), (
                    "only the last messages of a killed publisher may be lost"
                )


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_publisher_that_closes_loses_nothing(kind, tmp_path):
    with Run(tmp_path, kind) as run:
        for reading in ("sync", "asyncio"):
            run.start(reading, run.role(reading))
        run.ready()
        counts = []
        for at in range(ROUNDS + 1):
            if at:
                assert run.publisher.ask(do="close", timeout=60)["left"] == 0
                run.publisher.end()
                run.start_publisher()
            run.publisher.ask(do="wait", count=2, timeout=60)
            counts.append(run.publisher.ask(do="burst", count=5_000)["published"])
        run.settle(2)
        wanted = [(at, number) for at, count in enumerate(counts, 1) for number in range(count)]
        for events in run.finish():
            assert oracle.messages(events) == wanted
            assert all(count is None for count, _ in oracle.gaps(events)), oracle.gaps(events)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["asyncio", "sync"])
def test_a_publisher_that_closes_beside_a_stopped_subscriber_counts_each_message_once(kind, tmp_path):
    with Run(tmp_path, kind, size=1_000, options={"high_water_mark": 1_000}) as run:
        stuck = run.role("stuck", has_proxy=False, options={"resume_seconds": 1.0})
        run.start(kind, stuck)
        run.ready()
        run.publisher.ask(do="wait", count=1, timeout=60)
        stop(stuck.program)
        run.publisher.ask(do="burst", count=30_000)
        closed = run.publisher.ask(do="close", timeout=1.0)
        assert closed["dropped"] > 0
        assert closed["dropped"] + closed["given_up"] == closed["published"] == 30_000
        assert closed["dropped"] + closed["left"] >= 30_000
        go_on(stuck.program)
        until(lambda: oracle.gaps(stuck.events()), DEADLINE)
        (events,) = run.finish()
        oracle.check_order(events)
        assert [count for count, _ in oracle.gaps(events)] == [None]
        assert 0 < len(oracle.messages(events)) <= closed["given_up"]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["asyncio", "sync"])
def test_an_absence_over_resume_seconds_leaves_a_gap_of_unknown_size(kind, tmp_path):
    short = {"resume_seconds": 1.0}
    with Run(tmp_path, kind, options=short) as run:
        absent = [run.role(f"{reading}-absent", options=short) for reading in ("sync", "asyncio")]
        present = run.role("present", options=short)
        run.start("sync", absent[0], present)
        run.start("asyncio", absent[1])
        run.ready()
        run.publisher.ask(do="wait", count=3, timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        for _ in range(ROUNDS):
            run.until_published(RATE // 4)
            for one in absent:
                one.proxy.stall()
                one.proxy.cut("rst")
            until(lambda: len(run.info()["sessions"]) == 1, DEADLINE)
            for one in absent:
                one.proxy.resume()
            run.publisher.ask(do="wait", count=3, timeout=60)
        run.until_published(RATE // 4)
        published = run.publisher.ask(do="stop")["published"]
        run.settle(3)
        *others, healthy = run.finish(*absent, present)
        oracle.check_complete(healthy, published)
        for events in others:
            oracle.check_holes(events)
            assert [count for count, _ in oracle.gaps(events)] == [None] * ROUNDS
            assert oracle.messages(events)[-1] == (1, published - 1)


@pytest.mark.heavy
@pytest.mark.parametrize("reading", ["sync", "asyncio"])
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_subscriber_that_restarts_costs_its_neighbours_nothing(kind, reading, tmp_path):
    with Run(tmp_path, kind) as run:
        healthy = run.role("healthy")
        run.start(reading, healthy)
        run.ready(healthy)
        run.publisher.ask(do="wait", count=1, timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        killed = []
        for at in range(ROUNDS + 1):
            one = run.role(f"killed-{at}")
            program = run.start(reading, one)
            run.ready(one)
            run.until_published(RATE // 4)
            if at < ROUNDS:
                program.kill()
                killed.append(one)
        published = run.publisher.ask(do="stop")["published"]
        until(lambda: _is_done(run), DEADLINE)
        oracle.check_complete(run.finish(healthy)[0], published)
        (last,) = run.finish(one)
        for events in (last, *(one.events() for one in killed)):
            oracle.check_holes(events)
            assert oracle.gaps(events) == []
        assert oracle.messages(last)[-1] == (1, published - 1)


def _is_done(run):
    up = [one for one in run.info()["sessions"] if one["state"] == "up"]
    return len(up) == 2 and not any(one["pending"] for one in up)
