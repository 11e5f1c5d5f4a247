"""Listens to prices, and quotes for whoever asks, until it is ended."""

import signal
from contextlib import suppress

import oz

signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave the bus in order
mids: dict[str, float] = {}


def on_price(message: oz.Message) -> None:
    """Remember the newest price."""
    mids[message.subject.removeprefix("price.")] = message.payload["mid"]


def on_quote(message: oz.Message) -> None:
    """Answer with a price that is the wider, the more somebody wants."""
    pair = message.subject.removeprefix("quote.")
    if pair not in mids:
        message.reply({"error": f"no price of {pair} yet"})
        return
    half = mids[pair] * 1e-5 * message.payload["size"]
    message.reply({"bid": mids[pair] - half, "ask": mids[pair] + half})


with oz.Node("pricing", bus="market-example") as node, suppress(KeyboardInterrupt):
    node.subscribe("price.*", handler=on_price, overflow="conflate")
    # Start it twice, and the two share the requests.
    node.subscribe("quote.*", handler=on_quote, group="pricers")
    while True:
        signal.pause()
