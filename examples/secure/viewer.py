"""Reads prices. Its key may not publish them."""

import oz

with oz.Node("viewer") as node:
    prices = node.subscribe("md.>")
    message = prices.receive(timeout=40)
    print("viewer  receives", message.subject, message.payload, flush=True)
    node.wait_ready(subscriber="md.xetra.sap", timeout=40)
    try:
        node.publish("md.xetra.sap", 0.01)
    except oz.PermissionDenied as denied:
        print("viewer  may not publish", denied.subject, flush=True)
