"""Over `resume_bytes` and the bounds of the backlog, each lost message is counted, for each policy."""

import pytest

from faults import oracle
from faults.driver import Run
from support.sizes import first_in_suite, size

SUBJECTS = 11
MOST = size(3_000, 20_000)
"""Messages of a burst: ten times what window and backlog hold."""
SMALL = {"resume_bytes": 65_536, "high_water_mark": 300, "batch": 64}
POLICIES = (None, "drop_newest", "drop_oldest", "conflate")


def begin(fault, reader):
    if fault == "stall":
        reader.proxy.stall()
    elif fault == "half-open":
        reader.proxy.half_open("near")
        reader.proxy.stall()
    elif fault == "throttle":
        reader.proxy.throttle(200_000)
    else:
        reader.pause()


def end(fault, reader):
    if fault == "pause":
        reader.go()
    else:
        reader.proxy.resume()
        reader.proxy.throttle(None)


@pytest.mark.sized
@pytest.mark.parametrize(("kind", "reading"), first_in_suite(("sync", "asyncio"), ("asyncio", "sync")))
def test_each_message_that_a_policy_drops_is_counted(kind, reading, tmp_path):
    with Run(tmp_path, kind, size=1_000, subjects=SUBJECTS, options=SMALL) as run:
        faulty = {}
        for fault in ("stall", "half-open", "throttle", "pause"):
            for policy in POLICIES:
                for has_handler in (False, True):
                    name = f"{fault}-{policy}-{'handler' if has_handler else 'receive'}"
                    reader = run.role(
                        name, has_handler=has_handler, delivery={"max_pending": 200}, overflow=policy
                    )
                    faulty[reader] = fault, policy
        run.start(reading, *faulty)
        run.ready()
        run.publisher.ask(do="wait", count=len(faulty), timeout=60)
        run.publisher.ask(do="burst", count=50)
        run.settle(len(faulty))
        for _ in range(size(1, 3)):
            for reader, (fault, _) in faulty.items():
                begin(fault, reader)
            run.publisher.ask(do="burst", count=MOST)
            for reader, (fault, _) in faulty.items():
                end(fault, reader)
            run.settle(len(faulty))
            published = run.publisher.ask(do="burst", count=50)["published"]
            run.settle(len(faulty))
        dropped = run.info()["dropped"]
        problems, reported = [], 0
        for reader, events in zip(faulty, run.finish(), strict=True):
            policy = faulty[reader][1]
            try:
                # A conflated message has no place of its own: newer ones come before its count.
                oracle.check_counted(events, published, in_place=policy != "conflate")
                if policy == "conflate":
                    oracle.check_newest(events, published, SUBJECTS)
                lost = sum(count for count, _ in oracle.gaps(events))
                reported += sum(count for count, reason in oracle.gaps(events) if reason == "dropped")
                assert reader.result["dropped"] == lost
                assert reader.result["lost"] + reader.result["full"] == lost, (reader.result, lost)
                assert lost, "the fault was too short"
            except AssertionError as error:
                problems.append(f"{reader.name}: {str(error)[:400]}")
        assert not problems, "\n".join(problems)
        assert dropped == reported


@pytest.mark.sized
@pytest.mark.parametrize(
    ("kind", "on_full", "reading"),
    first_in_suite(("asyncio", "sync"), ("block", "raise"), ("sync", "asyncio")),
)
def test_a_publisher_that_does_not_drop_waits_for_slow_subscribers(kind, on_full, reading, tmp_path):
    with Run(tmp_path, kind, size=1_000, on_full=on_full, options=SMALL | {"send_timeout": 60.0}) as run:
        faulty = {run.role(fault): fault for fault in ("stall", "throttle", "pause")}
        run.start(reading, *faulty, run.role("healthy"))
        run.ready()
        run.publisher.ask(do="wait", count=len(run.readers), timeout=60)
        for reader, fault in faulty.items():
            begin(fault, reader)
        run.publisher.send(do="burst", count=MOST)
        for reader, fault in faulty.items():
            end(fault, reader)
        run.publisher.reply()
        run.settle(len(run.readers))
        info = run.info()
        for events in run.finish():
            oracle.check_complete(events, info["published"])
        assert info["dropped"] == 0
