"""Handlers, several patterns in one subscription, overlapping subscriptions, and unsubscribing."""

import oz

trades: list[str] = []


def on_trade(message: oz.Message) -> None:
    trades.append(f"{message.subject} {message.payload['size']} at {message.payload['price']}")


def on_alarm(message: oz.Message) -> None:
    print("alarm:", message.subject, message.payload)


with (
    oz.Publisher(bind="tcp://127.0.0.1:*", codec="msgpack") as publisher,
    oz.Subscriber(connect=publisher.endpoint, codec="msgpack") as subscriber,
):
    subscriber.subscribe("trade.xetra.*", handler=on_trade)
    # A pattern of another dialect: two exchanges, and only orders that were filled or rejected.
    orders = subscriber.subscribe(r"regex:^order\.(xetra|nyse)\.(fill|reject)\..*")
    # One subscription may have several patterns. A message that two of them match is delivered once.
    alarms = subscriber.subscribe(["alarm.>", "*.xetra.halt"], handler=on_alarm)
    subscriber.subscribe("day.end")
    publisher.wait_for_subscribers("day.end")

    def play(*messages: tuple[str, object]) -> None:
        """Publish, then receive up to the marker. Handlers run inside `receive`."""
        publisher.publish_many([*messages, ("day.end", None)])
        while (message := subscriber.receive(timeout=10)).subject != "day.end":
            print("order:", message.subject, message.payload)

    play(
        ("trade.xetra.sap", {"price": 128.4, "size": 100}),
        ("trade.nyse.ibm", {"price": 171.2, "size": 50}),
        ("order.xetra.fill.17", "100 sap"),
        ("order.xetra.new.18", "50 sap"),
        ("order.nyse.reject.19", "no limit"),
        ("alarm.xetra.halt", "volatility"),
    )
    print("trades:", trades)

    print("without orders and alarms:")
    orders.unsubscribe()
    alarms.unsubscribe()
    play(
        ("order.xetra.fill.20", "not seen"),
        ("alarm.fire", "not seen"),
        ("trade.xetra.bmw", {"price": 96.1, "size": 10}),
    )
    print("trades:", trades)
