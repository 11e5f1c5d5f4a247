"""Requests and replies on a bus. The nodes find each other."""

import oz

BUS = "service-example"
LIMITS = {"rates": 100, "credit": 20}


def on_limit(message: oz.Message) -> dict[str, object]:
    """Return whether a desk may trade this size. The return value is the reply."""
    desk = message.subject.rpartition(".")[2]
    return {"desk": desk, "allowed": message.payload["size"] <= LIMITS[desk]}


with oz.Node("risk", bus=BUS) as risk, oz.Node("trader", bus=BUS) as trader:
    risk.subscribe("risk.limit.*", handler=on_limit)
    trader.wait_ready(subscriber="risk.limit.rates", timeout=15)

    for desk, size in (("rates", 50), ("credit", 50)):
        answer = trader.request(f"risk.limit.{desk}", {"size": size}, timeout=10)
        print(desk, size, answer.payload["allowed"])

    # No node subscribes to this subject. The error comes at once, and not after the timeout.
    try:
        trader.request("risk.margin.rates", {}, timeout=10)
    except oz.NoResponders:
        print("no responder for risk.margin.rates")

    print("received", risk.stats.received)
