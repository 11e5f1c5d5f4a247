"""A wire tap: it subscribes to all messages, and the feed denies the subscriptions that include secret orders."""

from queue import SimpleQueue

import oz

denials: SimpleQueue[oz.Event] = SimpleQueue()


def on_event(event: oz.Event) -> None:
    if event.kind == "denied":
        denials.put(event)


with oz.Node("tap", on_event=on_event) as node:
    for pattern in (">", "orders.>"):
        node.subscribe(pattern)
        print("tap     may not read", denials.get(timeout=40).about, flush=True)
    message = node.subscribe("orders.open.>").receive(timeout=40)
    print("tap     receives", message.subject, message.payload, flush=True)
