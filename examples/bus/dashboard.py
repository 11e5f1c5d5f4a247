"""Shows who comes and goes, and asks for a quote at each price it gets to, five times."""

import oz

QUOTES = 5


def on_peer(peer: oz.Announcement, what: str) -> None:
    """Say who comes and goes."""
    print(f"{peer.name} is {what}")


with oz.Node("dashboard", bus="market-example", on_peer=on_peer) as node:
    prices = node.subscribe("price.*", overflow="conflate")
    shown = 0
    while shown < QUOTES:
        # It may have to wait for the others to start. Only the newest price of each pair waits for it.
        message = prices.receive(timeout=60)
        pair = message.subject.removeprefix("price.")
        try:
            quote = node.request(f"quote.{pair}", {"size": 5}, timeout=10).payload
        except oz.NoResponders:
            continue  # the pricing service is not there yet
        if "error" not in quote:
            print(f"{pair} {message.payload['mid']:.5f}, bid {quote['bid']:.5f}, ask {quote['ask']:.5f}")
            shown += 1
    print("lost", node.stats.lost)
