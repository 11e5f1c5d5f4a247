"""A slow consumer: with conflation it skips to the newest values. Without it, each loss is counted."""

import oz

# Small limits, so that the example fills them.
options = oz.Options(high_water_mark=100, resume_bytes=10_000)

with oz.Publisher("tcp://127.0.0.1:*", options=options) as publisher:
    gaps: list[oz.Gap] = []
    display = oz.Subscriber(publisher.endpoint)
    display.subscribe("level.*", overflow="conflate")
    archive = oz.Subscriber(publisher.endpoint, on_gap=gaps.append)
    archive.subscribe("level.*", overflow="drop_oldest")
    for subscriber in (display, archive):
        subscriber.wait_ready()

    for value in range(100_000):
        publisher.publish("level.tank", b"%d" % value)
    publisher.publish("level.end", b"")
    publisher.flush()

    seen = 0
    while (message := display.receive(timeout=5)).subject != "level.end":
        newest, seen = message.payload, seen + 1
    print("display: newest", newest.decode(), "of 100,000, skipped some:", seen < 100_000)

    delivered = 1
    while archive.receive(timeout=5).subject != "level.end":
        delivered += 1
    print("archive: reported", {gap.reason for gap in gaps})
    print("delivered and lost are all messages:", delivered + archive.stats.lost == 100_001)
    for subscriber in (display, archive):
        subscriber.close()
