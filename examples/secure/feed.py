"""Publishes prices and orders until a signal ends it, and counts the prices that it receives from other nodes."""

import signal
import time
from contextlib import suppress

import oz

signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave the bus in order
forged: list[oz.Message] = []

with oz.Node("feed", options=oz.NodeOptions(echo=False)) as node, suppress(KeyboardInterrupt):
    node.subscribe("md.>", handler=forged.append)
    while True:
        node.publish("md.xetra.sap", 128.4)
        node.publish("orders.open.17", "buy 100")
        node.publish("orders.secret.18", "buy 1,000,000")
        time.sleep(0.05)
print("feed    has received forged prices:", len(forged), flush=True)
