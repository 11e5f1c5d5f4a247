"""Publish numbers on `a.1` until a line comes on standard input; then say how many there were.

python flooding.py [--drop]
"""

import sys
import threading

import oz


def main(drops):
    over = threading.Event()
    count = 0
    options = oz.Options(high_water_mark=1000, resume_bytes=100_000) if drops else oz.Options()
    with oz.Publisher("tcp://127.0.0.1:*", on_full="drop" if drops else "block", options=options) as pub:
        print(pub.endpoint, flush=True)
        pub.wait_for_subscribers(timeout=60)
        threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
        while not over.is_set():
            pub.publish("a.1", b"%012d" % count + bytes(500 if drops else 0))
            count += 1
            if count % 100 == 0:
                over.wait(0.001 if drops else 0.005)
        pub.flush()
        print(count, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main("--drop" in sys.argv)
