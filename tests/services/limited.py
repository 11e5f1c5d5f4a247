"""Record where files may not grow beyond 60 kB, lift that later, and say what was recorded and lost.

python limited.py DIRECTORY
"""

import logging
import resource
import sys
import threading

import oz
from oz.services.recorder import Recorder
from support.inside import backlog_of
from support.waiting import until

COUNT = 50_000
PATIENCE = 60.0


def main(directory):
    logging.disable()
    # What is compiled under the limit would be cut short too, and stay so.
    sys.dont_write_bytecode = True
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub,
        Recorder(
            directory, "a.>", connect=pub.endpoint, filtering="publisher", most_waiting=100_000
        ) as recorder,
    ):
        stats = recorder.stats
        working = threading.Thread(target=recorder.run)
        working.start()
        pub.wait_for_subscribers(timeout=60)
        for at in range(COUNT // 2):
            pub.publish("a.1", b"%012d" % at)
        pub.flush()
        until(
            lambda: (
                stats.is_full and stats.recorded + recorder.waiting + backlog_of(recorder).discarded == at + 1
            ),
            PATIENCE,
        )
        assert stats.recorded < at
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: not stats.is_full, PATIENCE)
        for at in range(COUNT // 2, COUNT):
            pub.publish("a.1", b"%012d" % at)
        pub.flush()
        until(lambda: stats.recorded + stats.lost == COUNT, PATIENCE)
        recorder.stop()
        working.join()
        print(stats.recorded, stats.lost)


if __name__ == "__main__":
    main(sys.argv[1])
