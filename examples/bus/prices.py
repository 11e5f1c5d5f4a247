"""Publishes prices, ten a second, until a signal ends it."""

import random
import signal
import time
from contextlib import suppress

import oz

signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave the bus in order
mids = {"EURUSD": 1.09, "EURGBP": 0.85, "USDJPY": 151.2}

with oz.Node("prices", bus="market-example") as node, suppress(KeyboardInterrupt):
    while True:
        for pair in mids:
            mids[pair] *= 1 + random.uniform(-1e-4, 1e-4)
            node.publish(f"price.{pair}", {"mid": mids[pair]})
        time.sleep(0.1)
