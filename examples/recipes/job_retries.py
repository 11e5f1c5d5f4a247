"""A work queue with retries: a job that fails is published again, and goes to a dead letter after three attempts."""

from queue import SimpleQueue

import oz

finished: SimpleQueue[str] = SimpleQueue()


def resize(image: str) -> None:
    if image == "broken.png":
        raise ValueError("not an image")


def work(message: oz.Message) -> None:
    attempt = int(message.headers.get("attempt", 1))
    try:
        resize(message.payload)
    except ValueError as error:
        if attempt == 3:
            publisher.publish("dead.resize", message.payload, headers={"error": str(error)})
        else:
            publisher.publish(message.subject, message.payload, headers={"attempt": attempt + 1})
    else:
        finished.put(f"resized {message.payload}")


with oz.Node("web", bus="retries") as publisher, oz.Node("worker", bus="retries") as worker:
    # A worker that dies returns its jobs to the group.
    options = oz.Delivery(redeliver=True)
    worker.subscribe("job.resize", handler=work, group="resizers", ack="handled", delivery=options)
    publisher.subscribe(
        "dead.>", handler=lambda m: finished.put(f"gave up {m.payload}: {m.headers['error']}")
    )
    publisher.wait_ready(subscriber="job.resize")
    for image in ("cat.png", "broken.png"):
        publisher.publish("job.resize", image)
    for line in sorted(finished.get(timeout=10) for _ in range(2)):
        print(line)
