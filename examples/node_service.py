"""Ask and answer on a bus: neither side knows where the other is."""

import oz

BUS = "service-example"
LIMITS = {"rates": 100, "credit": 20}


def on_limit(message: oz.Message) -> None:
    """Say whether a desk may trade so much; who asks gets exactly this answer."""
    desk = message.subject.rpartition(".")[2]
    message.reply({"desk": desk, "allowed": message.payload["size"] <= LIMITS[desk]})


with oz.Node("risk", bus=BUS) as risk, oz.Node("trader", bus=BUS) as trader:
    risk.subscribe("risk.limit.*", handler=on_limit)
    # After this each node knows the subscriptions of the other.
    risk.wait_for_peers("trader", timeout=15)
    risk.wait_ready(timeout=15)

    for desk, size in (("rates", 50), ("credit", 50)):
        answer = trader.request(f"risk.limit.{desk}", {"size": size}, timeout=10)
        print(desk, size, answer.payload["allowed"])

    # Nobody has a subscription for this one: that is known at once, without waiting for the timeout.
    try:
        trader.request("risk.margin.rates", {}, timeout=10)
    except oz.NoResponders:
        print("nobody answers risk.margin.rates")

    print("answered", risk.stats.replies)
