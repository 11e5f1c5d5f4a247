"""A request with a deadline to a service with two replicas. One of them dies while it has the request."""

import threading

import oz

BUS = "replicas"
replicas = {name: oz.Node(name, bus=BUS) for name in ("east", "west")}
crashed = threading.Event()


def quote(name: str, message: oz.Message) -> str:
    if not crashed.is_set():
        crashed.set()  # The first request never gets a reply.
        threading.Thread(target=replicas[name].close, kwargs={"timeout": 0}).start()
        threading.Event().wait(5)
    return f"{message.payload} costs 42"


with oz.Node("shop", bus=BUS) as shop:
    for name, node in replicas.items():
        node.subscribe("quote", handler=lambda message, name=name: quote(name, message), group="quotes")
        node.wait_ready("shop")
    shop.wait_for_subscribers("quote", count=2)

    # `retries=1` sends the request to the other replica when the first one is lost. It may run twice.
    reply = shop.request("quote", "tea", timeout=4, retries=1)
    print("reply:", reply.payload)
    try:
        shop.request("no.such.service", timeout=4)
    except oz.NoResponders:
        print("no responder, at once")
for node in replicas.values():
    node.close(timeout=0)
