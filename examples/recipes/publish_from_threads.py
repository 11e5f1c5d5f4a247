"""Several threads share one publisher. The messages of each thread stay in order, and none is lost."""

import threading

import oz

with (
    oz.Publisher("tcp://127.0.0.1:*", on_full="block") as publisher,
    oz.Subscriber(publisher.endpoint) as subscriber,
):
    subscriber.subscribe("thread.>")
    subscriber.wait_ready()

    def publish(name: str) -> None:
        for number in range(1000):
            publisher.publish(f"thread.{name}", b"%d" % number)

    threads = [threading.Thread(target=publish, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()

    received: dict[str, list[int]] = {}
    for _ in range(3000):
        message = subscriber.receive(timeout=10)
        received.setdefault(message.subject, []).append(int(message.payload))
    for thread in threads:
        thread.join()
    print(sorted(received), "in order:", all(numbers == list(range(1000)) for numbers in received.values()))
