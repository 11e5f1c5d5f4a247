"""Prints peers that come and go, and requests a quote for each of five prices."""

import oz

QUOTES = 5


def on_event(event: oz.Event) -> None:
    """Print what happens to peers."""
    if event.peer is not None:
        print(event.peer.name, event.kind)


with oz.Node("dashboard", bus="market-example", on_event=on_event) as node:
    prices = node.subscribe("price.*", overflow="conflate")
    shown = 0
    while shown < QUOTES:
        # The other programs may not have started yet. Only the newest price of each pair waits.
        message = prices.receive(timeout=60)
        pair = message.subject.removeprefix("price.")
        try:
            quote = node.request(f"quote.{pair}", {"size": 5}, timeout=10).payload
        except oz.NoResponders:
            continue  # the pricing service has not started yet
        if "error" not in quote:
            print(f"{pair} {message.payload['mid']:.5f}, bid {quote['bid']:.5f}, ask {quote['ask']:.5f}")
            shown += 1
    print("lost", node.stats.lost)
