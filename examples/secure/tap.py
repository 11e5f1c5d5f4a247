"""A wire tap: it asks for everything, and is told what it may not have."""

import oz

with oz.Node("tap") as node:
    for pattern in (">", "orders.>", "orders.open.>"):
        subscription = node.subscribe(pattern)
        try:
            message = subscription.receive(timeout=40)
        except oz.PermissionDenied as denied:
            print(f"tap     may not have {pattern}, which asks for {denied.subject} too", flush=True)
        else:
            print("tap     gets", message.subject, message.payload, flush=True)
        subscription.unsubscribe()
