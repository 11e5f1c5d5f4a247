"""A restart and an absence that is too long are reported as a gap of unknown size."""

import pytest

from faults import oracle
from faults.driver import Run
from support.sizes import first_in_suite, size

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
