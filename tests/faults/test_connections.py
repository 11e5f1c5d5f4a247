"""A cut, half-open or stalled connection loses nothing, and neither do its healthy neighbours."""

import pytest

from faults import oracle
from faults.driver import Run, go_on, stop
from support.sizes import size

RATE = 1_000
"""Messages a second of the paced run."""
STALL = size(1.0, 5.0)
"""Seconds of a stall, a throttle and a pause."""


def _nothing(reader):
    pass


FAULTS = {
    "rst": (lambda reader: reader.proxy.cut("rst"), _nothing),
    "fin": (lambda reader: reader.proxy.cut("fin"), _nothing),
    "stall": (lambda reader: reader.proxy.stall(), lambda reader: reader.proxy.resume()),
    "stall-up": (lambda reader: reader.proxy.stall("up"), lambda reader: reader.proxy.resume()),
    "stall-down": (lambda reader: reader.proxy.stall("down"), lambda reader: reader.proxy.resume()),
    "half-open-near": (lambda reader: reader.proxy.half_open("near"), _nothing),
    "half-open-far": (lambda reader: reader.proxy.half_open("far"), _nothing),
    "throttle": (lambda reader: reader.proxy.throttle(20_000), lambda reader: reader.proxy.throttle(None)),
    "pause": (lambda reader: reader.pause(), lambda reader: reader.go()),
}
"""Begin and end of each fault."""


@pytest.mark.sized
@pytest.mark.parametrize("kind", ["sync", pytest.param("asyncio", marks=pytest.mark.heavy)])
def test_no_fault_of_a_connection_loses_a_message(kind, tmp_path):
    with Run(tmp_path, kind, on_full="drop", options={"high_water_mark": 100_000}) as run:
        faulty = {}
        for reading in ("sync", "asyncio"):
            found = {run.role(f"{reading}-{name}"): fault for name, fault in FAULTS.items()}
            run.start(reading, *found, run.role(f"{reading}-healthy"))
            faulty |= found
        suspended = run.role("suspended")
        run.start(kind, suspended)
        faulty[suspended] = (lambda reader: stop(reader.program), lambda reader: go_on(reader.program))
        run.ready()
        run.publisher.ask(do="wait", count=len(run.readers), timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        run.until_published(RATE // 4)
        for _ in range(size(1, 4)):
            for reader, (begin, _) in faulty.items():
                begin(reader)
            run.until_published(STALL * RATE)
            for reader, (_, end) in faulty.items():
                end(reader)
            run.until_published(RATE // 2)
        published = run.publisher.ask(do="stop")["published"]
        run.settle(len(run.readers))
        for events in run.finish():
            oracle.check_complete(events, published)
        info = run.info()
        assert info["dropped"] == info["given_up"] == 0
