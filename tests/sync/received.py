"""What tests of subscribers have in common: messages that one publishes, and those that come."""

from support.waiting import DEADLINE


def subjects_until(sub, last="end"):
    got = []
    while (message := sub.receive(timeout=DEADLINE)).subject != last:
        got.append(message.subject)
    return got


def publish_all(pub, *subjects):
    for subject in subjects:
        pub.publish(subject, b"x")
