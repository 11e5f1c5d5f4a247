"""Record where files may not grow beyond 60 kB, then 260 kB, then as they like; all of it waits in memory.

python limited_in_part.py DIRECTORY
"""

import logging
import resource
import sys
import threading
import time

import oz
from oz.services.recorder import Recorder
from support.waiting import until

COUNT = 20_000
PATIENCE = 60.0


def main(directory):
    logging.disable()
    # What is compiled under the limit would be cut short too, and stay so.
    sys.dont_write_bytecode = True
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub,
        Recorder(directory, "a.>", connect=pub.endpoint, filtering="publisher", sync="never") as recorder,
    ):
        stats = recorder.stats
        working = threading.Thread(target=recorder.run)
        working.start()
        pub.wait_for_subscribers(timeout=60)
        for at in range(COUNT):
            pub.publish("a.1", b"%012d" % at + bytes(100))
        pub.flush()
        until(lambda: stats.is_full and stats.recorded + recorder.waiting == COUNT, PATIENCE)
        settled = settle(recorder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (260_000, hard))
        until(lambda: stats.recorded > settled + 500, PATIENCE)
        partly = settle(recorder)
        waiting = recorder.waiting
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: stats.recorded == COUNT and not stats.is_full, PATIENCE)
        recorder.stop()
        working.join()
        assert not stats.lost
        print(settled, partly, waiting, stats.recorded)


def settle(recorder):
    """Wait until no more finds room; how much is recorded."""
    while True:
        before = recorder.stats.recorded
        time.sleep(0.6)  # it tries four times a second
        if recorder.stats.recorded == before:
            return before


if __name__ == "__main__":
    main(sys.argv[1])
