"""Publishes prices and orders, until it is told that somebody else has tried to."""

from threading import Event

import oz

forged = Event()


def told(message):
    if "publishes" in message.payload.text:
        forged.set()


with oz.Node("feed", echo=False) as node:
    node.subscribe("_OZ.ADVISORY.ERROR.PERMISSION_DENIED", handler=told)
    node.subscribe("md.>", handler=lambda message: print("feed    takes", message.subject, flush=True))
    while not forged.wait(0.05):
        node.publish("md.xetra.sap", 128.4)
        node.publish("orders.open.17", "buy 100")
        node.publish("orders.secret.18", "buy 1,000,000")
    print("feed    drops a price that is not from here", flush=True)
