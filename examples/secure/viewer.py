"""May look at prices, and not make any."""

import oz

with oz.Node("viewer") as node:
    prices = node.subscribe("md.>")
    message = prices.receive(timeout=40)
    print("viewer  sees", message.subject, message.payload, flush=True)
    node.wait_for_subscribers(1, "md.xetra.sap", timeout=40)
    node.publish("md.xetra.sap", 0.01)
