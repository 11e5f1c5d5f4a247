"""Receives prices and replies to requests for quotes, until a signal ends it."""

import signal
from contextlib import suppress

import oz

signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave the bus in order
mids: dict[str, float] = {}


def on_price(message: oz.Message) -> None:
    """Remember the newest price."""
    mids[message.subject.removeprefix("price.")] = message.payload["mid"]


def on_quote(message: oz.Message) -> dict[str, object]:
    """Return a quote. Its spread grows with the size."""
    pair = message.subject.removeprefix("quote.")
    if pair not in mids:
        return {"error": f"no price of {pair} yet"}
    half = mids[pair] * 1e-5 * message.payload["size"]
    return {"bid": mids[pair] - half, "ask": mids[pair] + half}


with oz.Node("pricing", bus="market-example") as node, suppress(KeyboardInterrupt):
    node.subscribe("price.*", handler=on_price, overflow="conflate")
    # Two processes of this program share the requests.
    node.subscribe("quote.*", handler=on_quote, group="pricers")
    while True:
        signal.pause()
